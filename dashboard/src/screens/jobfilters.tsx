// What is shown of the jobs: tabs, a search box, choices. All of it is in the address.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, getWhole, type Query, serverNow, type Schemas } from "../api.ts";
import { type Completion, completions, type Known } from "../complete.ts";
import {
  asOne,
  type Filter,
  fromSearch,
  ID,
  isEmpty,
  only,
  resolved,
  type State,
  STATES,
  toQuery,
  toSearch,
  withValues,
} from "../filters.ts";
import { count, counted, plural } from "../format.ts";
import { inSlots } from "../health.ts";
import { useLive } from "../live.ts";
import { go, replace, route, to } from "../router.ts";
import { seesAll } from "../session.ts";
import { Button } from "../ui/basics.tsx";
import { Icon, STATE_ICONS } from "../ui/icons.tsx";

const STATS_MS = 10_000;
const TYPING_MS = 350;

export function show(filter: Filter): void {
  go(to(["jobs"], toQuery(filter)));
}

export function Filters({ filter, faults }: { filter: Filter; faults: string[] }) {
  const queue = only(filter, "queue");
  const stats = useLive(
    async (signal) => {
      // Workers report what they hold ahead of a slot for all queues together.
      const [found, workers] = await Promise.all([
        get<Schemas["Stats"]>("v1/stats", queue ? { queue } : {}, signal),
        !queue && seesAll()
          ? getWhole<Schemas["Workers"]>("v1/workers", "workers", signal)
          : undefined,
      ]);
      const ahead = workers ? inSlots(found.counts.running.value, workers.workers).ahead : 0;
      return { counts: found.counts, ahead };
    },
    STATS_MS,
    [queue],
  );
  const names = useNames();
  return (
    <div class="filters">
      <div class="tabs" role="group" aria-label="State">
        <Tab filter={filter} state={undefined} isRefused={faults.length > 0} />
        {STATES.map((state) => (
          <Tab
            key={state}
            filter={filter}
            state={state}
            isRefused={faults.length > 0}
            count={isPlain(filter) ? stats.data?.counts[state] : undefined}
            ahead={state === "running" ? stats.data?.ahead : 0}
          />
        ))}
      </div>
      <div class="filter-bar">
        <SearchBox filter={filter} faults={faults} names={names} />
        <Choices filter={filter} names={names} />
      </div>
      {faults.length ? (
        <ul class="faults" role="alert" id="filter-faults">
          {faults.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

/** Whether the counts of states say how many there are. */
export function isPlain(filter: Filter): boolean {
  const names = [...toQuery(filter).keys()];
  return (
    names.every((name) => name === "state" || name === "queue") &&
    (filter.is.queue?.length ?? 0) <= 1
  );
}

export function Matches({ filter }: { filter: Filter }) {
  const one = asOne(filter);
  const live = useLive(
    (signal) =>
      one
        ? get<Schemas["Count"]>("v1/jobs/count", { ...resolved(one, serverNow()) } as Query, signal)
        : Promise.resolve(undefined),
    0,
    [],
  );
  const found = live.data;
  if (!one) return null;
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
  isRefused,
  count: found,
  ahead = 0,
}: {
  filter: Filter;
  state: State | undefined;
  /** Nothing is shown, so no tab is the one that is. */
  isRefused: boolean;
  count?: Schemas["Count"] | undefined;
  /** How many of them a worker holds ahead of a slot: they have not begun. */
  ahead?: number | undefined;
}) {
  const next = withValues(filter, "state", state ? [state] : []);
  // A fingerprint is of dead jobs.
  if (state !== "dead") delete next.fingerprint;
  const states = filter.is.state;
  const isCurrent = state ? states?.includes(state) : !states && !filter.not.state;
  return (
    <a
      class="tab"
      href={to(["jobs"], toQuery(next))}
      aria-current={isCurrent && !isRefused ? "true" : undefined}
    >
      {state ? (
        <span class={`state-icon state-${state}`}>
          <Icon name={STATE_ICONS[state]} size={12} />
        </span>
      ) : null}
      {state ?? "all"}
      {found && ahead ? (
        <span class="tab-count">
          {counted({ ...found, value: found.value - ahead })}, {count(ahead)} claimed ahead
        </span>
      ) : found ? (
        <span class="tab-count">{counted(found)}</span>
      ) : null}
    </a>
  );
}

/** The address of a typed search; one that was not understood is kept as it is. */
function addressOf(text: string): string {
  const { filter, faults } = fromSearch(text);
  return to(["jobs"], faults.length ? { search: text } : toQuery(filter));
}

function SearchBox({
  filter,
  faults,
  names,
}: {
  filter: Filter;
  faults: string[];
  names: Known | undefined;
}) {
  const known = route.value.query.get("search") ?? toSearch(filter);
  const [text, setText] = useState(known);
  const [offered, setOffered] = useState<Completion[]>([]);
  const [place, setPlace] = useState(-1);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const typed = useRef(known);
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    // The address was changed by something else than this box.
    if (addressOf(typed.current) !== addressOf(known)) {
      typed.current = known;
      setText(known);
    }
  }, [known]);
  useEffect(() => () => clearTimeout(timer.current), []);

  function apply(next: string): void {
    clearTimeout(timer.current);
    if (ID.test(next.trim())) go(to(["jobs", next.trim()]));
    else replace(addressOf(next));
  }
  function type(next: string): void {
    typed.current = next;
    setText(next);
    offer(next);
    clearTimeout(timer.current);
    // A name without its value is on its way; only Enter asks what is wrong with it.
    if (/(?:^|\s)-?\w+:$/.test(next)) return;
    timer.current = setTimeout(() => apply(next), TYPING_MS);
  }
  function offer(next: string): void {
    setPlace(-1);
    setOffered(names ? completions(next, names) : []);
  }
  function take(completion: Completion): void {
    type(completion.text);
    box.current?.focus();
  }
  function hear(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && offered.length) {
      event.preventDefault();
      event.stopPropagation();
      setOffered([]);
    } else if (step && offered.length) {
      event.preventDefault();
      setPlace((place + step + offered.length + (place < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if ((event.key === "Enter" || event.key === "Tab") && offered[place]) {
      event.preventDefault();
      take(offered[place]);
    }
  }
  return (
    <form
      class={`search ${faults.length ? "search-bad" : ""}`}
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        setOffered([]);
        apply(text);
      }}
    >
      <Icon name="search" />
      <input
        ref={box}
        type="search"
        data-search
        aria-label="Filter jobs"
        aria-invalid={faults.length ? "true" : undefined}
        aria-describedby={faults.length ? "filter-faults" : undefined}
        aria-autocomplete="list"
        aria-controls={offered.length ? "filter-completions" : undefined}
        aria-activedescendant={offered[place] ? `completion-${place}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder="Text in an error, an id, or state:dead,retrying -kind:heartbeat since:1h"
        value={text}
        onKeyDown={hear}
        onFocus={() => offer(text)}
        onBlur={() => setOffered([])}
        onInput={(event) => type(event.currentTarget.value)}
      />
      {offered.length ? (
        <ul class="completions" id="filter-completions" role="listbox" aria-label="Completions">
          {offered.map((each, number) => (
            <li
              key={each.label}
              id={`completion-${number}`}
              role="option"
              aria-selected={number === place}
              // Before the box loses the focus.
              onMouseDown={(event) => {
                event.preventDefault();
                take(each);
              }}
            >
              <code>{each.label}</code> <small>{each.hint}</small>
            </li>
          ))}
        </ul>
      ) : null}
    </form>
  );
}

function useNames(): Known | undefined {
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
  return names.data;
}

function Choices({ filter, names }: { filter: Filter; names: Known | undefined }) {
  const set = (name: "kind" | "queue") => (value: string) =>
    show(withValues(filter, name, value ? [value] : []));
  function setSince(value: string): void {
    const { since: _, ...rest } = filter;
    show(value ? { ...rest, since: value } : rest);
  }
  const spans: [string, string][] = [
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
        value={filter.is.kind?.join(", ")}
        options={options(names?.kinds)}
        choose={set("kind")}
      />
      <Choice
        label="Queue"
        value={filter.is.queue?.join(", ")}
        options={options(names?.queues)}
        choose={set("queue")}
      />
      <Choice label="Created in the last" value={filter.since} options={spans} choose={setSince} />
      {isEmpty(filter) && !route.value.query.has("search") ? null : (
        <Button kind="ghost" icon="close" onClick={() => show({ is: {}, not: {} })}>
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
