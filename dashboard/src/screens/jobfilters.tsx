// What is shown of the jobs: tabs, a search box, choices. All of it is in the address.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, getWhole, type Query, serverNow, type Schemas } from "../api.ts";
import {
  type Filter,
  fromSearch,
  ID,
  isEmpty,
  resolved,
  type State,
  STATES,
  toQuery,
  toSearch,
} from "../filters.ts";
import { counted, plural } from "../format.ts";
import { useLive } from "../live.ts";
import { go, replace, to } from "../router.ts";
import { Button } from "../ui/basics.tsx";
import { Icon, STATE_ICONS } from "../ui/icons.tsx";

const STATS_MS = 10_000;
const TYPING_MS = 350;

export function show(filter: Filter): void {
  go(to(["jobs"], toQuery(filter)));
}

export function Filters({ filter }: { filter: Filter }) {
  const queue = filter.queue;
  const stats = useLive(
    (signal) => get<Schemas["Stats"]>("v1/stats", queue ? { queue } : {}, signal),
    STATS_MS,
    [queue],
  );
  return (
    <div class="filters">
      <div class="tabs" role="group" aria-label="State">
        <Tab filter={filter} state={undefined} />
        {STATES.map((state) => (
          <Tab
            key={state}
            filter={filter}
            state={state}
            count={isPlain(filter) ? stats.data?.counts[state] : undefined}
          />
        ))}
      </div>
      <SearchBox filter={filter} />
      <Choices filter={filter} />
    </div>
  );
}

/** Whether the counts of states say how many there are. */
export function isPlain(filter: Filter): boolean {
  return [...toQuery(filter).keys()].every((name) => name === "state" || name === "queue");
}

export function Matches({ filter }: { filter: Filter }) {
  const live = useLive(
    (signal) =>
      get<Schemas["Count"]>("v1/jobs/count", { ...resolved(filter, serverNow()) } as Query, signal),
    0,
    [],
  );
  const found = live.data;
  return (
    <p class="matches soft">
      {found
        ? `${found.exact ? "" : "At least "}${plural(found.value, "job matches", "jobs match")}.`
        : "\u00a0"}
    </p>
  );
}

function Tab({
  filter,
  state,
  count: found,
}: {
  filter: Filter;
  state: State | undefined;
  count?: Schemas["Count"] | undefined;
}) {
  const next = { ...filter };
  if (state) next.state = state;
  else delete next.state;
  return (
    <a
      class="tab"
      href={to(["jobs"], toQuery(next))}
      aria-current={filter.state === state ? "true" : undefined}
    >
      {state ? (
        <span class={`state-icon state-${state}`}>
          <Icon name={STATE_ICONS[state]} size={12} />
        </span>
      ) : null}
      {state ?? "all"}
      {found ? <span class="tab-count">{counted(found)}</span> : null}
    </a>
  );
}

function SearchBox({ filter }: { filter: Filter }) {
  const known = toSearch(filter);
  const [text, setText] = useState(known);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const typed = useRef(known);
  useEffect(() => {
    // The address was changed by something else than this box.
    if (toSearch(fromSearch(typed.current)) !== known) {
      typed.current = known;
      setText(known);
    }
  }, [known]);
  function apply(next: string): void {
    clearTimeout(timer.current);
    if (ID.test(next.trim())) return go(to(["jobs", next.trim()]));
    replace(to(["jobs"], toQuery(fromSearch(next))));
  }
  return (
    <form
      class="search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        apply(text);
      }}
    >
      <Icon name="search" />
      <input
        type="search"
        data-search
        aria-label="Filter jobs"
        autocomplete="off"
        spellcheck={false}
        placeholder="Text in the error, an id, or kind:send_email queue:mail tag:vip since:1h"
        value={text}
        onInput={(event) => {
          const next = event.currentTarget.value;
          typed.current = next;
          setText(next);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => apply(next), TYPING_MS);
        }}
      />
    </form>
  );
}

function Choices({ filter }: { filter: Filter }) {
  const names = useLive(
    async (signal) => {
      const [kinds, queues] = await Promise.all([
        get<Schemas["Kinds"]>("v1/kinds", {}, signal),
        getWhole<Schemas["Queues"]>("v1/queues", "queues", signal),
      ]);
      return {
        kinds: kinds.kinds.map((each) => each.kind),
        queues: queues.queues.map((each) => each.queue),
      };
    },
    0,
    [],
  );
  const set = (name: "kind" | "queue" | "since") => (value: string) => {
    const next = { ...filter };
    if (value) next[name] = value;
    else delete next[name];
    show(next);
  };
  const spans = [
    ["", "any time"],
    ["15m", "15 minutes"],
    ["1h", "1 hour"],
    ["1d", "1 day"],
    ["7d", "7 days"],
  ];
  return (
    <div class="choices">
      <Choice
        label="Kind"
        value={filter.kind}
        options={options(names.data?.kinds)}
        choose={set("kind")}
      />
      <Choice
        label="Queue"
        value={filter.queue}
        options={options(names.data?.queues)}
        choose={set("queue")}
      />
      <Choice
        label="Created in the last"
        value={filter.since}
        options={spans as [string, string][]}
        choose={set("since")}
      />
      {isEmpty(filter) ? null : (
        <Button kind="ghost" icon="close" onClick={() => show({})}>
          Clear
        </Button>
      )}
    </div>
  );
}

function options(names: string[] | undefined): [string, string][] {
  return [["", "any"], ...(names ?? []).map((name): [string, string] => [name, name])];
}

function Choice({
  label,
  value = "",
  options,
  choose,
}: {
  label: string;
  value?: string | undefined;
  options: [string, string][];
  choose: (value: string) => void;
}) {
  const isListed = options.some(([each]) => each === value);
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        {isListed ? null : <option value={value}>{value}</option>}
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
