// A bar of jobs by state, with their numbers.

import { counted } from "../format.ts";
import { type Counts, ended, inWords, NODE_STATES, parts, total } from "../workflows.ts";

/** Its words are read beside it: it is for the eye alone. */
export function CountBar({ counts }: { counts: Counts }) {
  return (
    <span class="countbar" aria-hidden="true" title={inWords(counts)}>
      {parts(counts).map((each) => (
        <span
          key={each.state}
          class={`bar-${each.state}`}
          style={{ width: `${each.percent.toFixed(2)}%` }}
        />
      ))}
    </span>
  );
}

export function Done({ counts }: { counts: Counts }) {
  return (
    <span class="done">
      {counted(ended(counts))} <span class="soft">of {counted(total(counts))}</span>
    </span>
  );
}

/** What the colours of the bar mean, and how many of each there are. */
export function CountLegend({ counts }: { counts: Counts }) {
  return (
    <ul class="count-legend">
      {NODE_STATES.filter((each) => counts[each].value).map((each) => (
        <li key={each}>
          <span class={`legend-dot bar-${each}`} /> <b>{counted(counts[each])}</b> {each}
        </li>
      ))}
    </ul>
  );
}
