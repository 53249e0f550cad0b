import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { get, type Problem, type Query, serverNow, type Schemas } from "../api.ts";
import {
  type ApiFilter,
  asOne,
  type Filter,
  fromQuery,
  inWords,
  isEmpty,
  resolved,
  toQuery,
} from "../filters.ts";
import { count, plural } from "../format.ts";
import { advance, isOver, type Strand, strandsOf } from "../joblist.ts";
import {
  type Action,
  actOnSome,
  allows,
  bulkDetails,
  bulkFilter,
  type Details,
  NEEDS_DETAILS,
  type Summary,
  VERBS,
} from "../jobs.ts";
import { asProblem, isPaused, useLive } from "../live.ts";
import { route } from "../router.ts";
import { may } from "../session.ts";
import { begin } from "../ui/actions.tsx";
import { Button, Command, Empty, Head, Skeleton, Trouble } from "../ui/basics.tsx";
import { BulkDialog, BulkProgress } from "../ui/bulk.tsx";
import { isOpen, open } from "../ui/dialog.tsx";
import { JobRows } from "../ui/jobrows.tsx";
import { hasLetters } from "../ui/keys.tsx";
import { Menu } from "../ui/menu.tsx";
import { Filters, isPlain, Matches, show } from "./jobfilters.tsx";

const PAGE = 50;
const EVERY_MS = 5000;

export function Jobs() {
  const { filter, faults } = fromQuery(route.value.query);
  const key = toQuery(filter).toString();
  return (
    <>
      <Head
        title="Jobs"
        sub={
          faults.length
            ? "The filter was not understood."
            : isEmpty(filter)
              ? "Newest first."
              : `Shown: ${inWords(filter)}.`
        }
      />
      <Filters filter={filter} faults={faults} />
      <BulkProgress />
      {faults.length ? null : <List filter={filter} key={key} />}
    </>
  );
}

async function loadPage(query: Query, signal?: AbortSignal): Promise<Schemas["JobPage"]> {
  const asked = { ...query, ...resolved(query as ApiFilter, serverNow()) } as Query;
  return get<Schemas["JobPage"]>("v1/jobs", asked, signal);
}

interface Loaded {
  jobs: Summary[];
  strands: Strand[];
  stretches: number;
  read: number;
}

function merged(before: Summary[], more: Summary[]): Summary[] {
  // A job that changes its state while several are listed may come twice.
  return [...new Map([...before, ...more].map((job) => [job.id, job])).values()];
}

/** All that is loaded, the next page when it is wanted, and the first one again now and then. */
function useJobs(filter: Filter) {
  const [loaded, setLoaded] = useState<Loaded>();
  const [fresh, setFresh] = useState<Summary[]>([]);
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const [isCut, setCut] = useState(false);
  const isMore = (loaded?.stretches ?? 0) > 1;

  const first = useLive(
    (signal) => advance(filter, strandsOf(filter), PAGE, (query) => loadPage(query, signal)),
    EVERY_MS,
    [],
  );
  useEffect(() => {
    const page = first.data;
    if (!page) return;
    const { strands, read } = page;
    const jobs = merged([], page.jobs);
    if (!loaded || !isMore) {
      setLoaded({ jobs, strands, read, stretches: 1 });
      setCut(page.isCut);
      return;
    }
    const known = new Set(loaded.jobs.map((job) => job.id));
    const news = new Map(jobs.map((job) => [job.id, job]));
    setFresh(jobs.filter((job) => !known.has(job.id)));
    setLoaded({ ...loaded, jobs: loaded.jobs.map((job) => news.get(job.id) ?? job) });
  }, [first.data]);

  async function more(): Promise<void> {
    if (!loaded || isOver(loaded.strands) || isBusy) return;
    setBusy(true);
    setCut(false);
    setProblem(undefined);
    try {
      const next = await advance(filter, loaded.strands, PAGE, loadPage);
      setLoaded({
        jobs: merged(loaded.jobs, next.jobs),
        strands: next.strands,
        read: loaded.read + next.read,
        stretches: loaded.stretches + 1,
      });
      setCut(next.isCut);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  function restart(): void {
    setLoaded(undefined);
    setFresh([]);
    first.refresh();
  }
  return {
    loaded,
    fresh,
    isBusy,
    /** Whether nothing more is asked for until somebody says so. */
    isCut,
    hasMore: loaded !== undefined && !isOver(loaded.strands),
    problem: problem ?? first.problem,
    more,
    restart,
  };
}

function List({ filter }: { filter: Filter }) {
  const list = useJobs(filter);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [isAll, setAll] = useState(false);
  const end = useRef<HTMLDivElement>(null);
  const jobs = list.loaded?.jobs;
  const selected = useMemo(() => jobs?.filter((job) => chosen.has(job.id)) ?? [], [jobs, chosen]);

  useEffect(() => {
    // A search that found little in much goes on when it is told to.
    if (list.isCut) return undefined;
    const watcher = new IntersectionObserver(
      (entries) => {
        if (entries.some((each) => each.isIntersecting)) void list.more();
      },
      { rootMargin: "800px" },
    );
    if (end.current) watcher.observe(end.current);
    return () => watcher.disconnect();
  });
  useListKeys(() => setChosen(new Set()));

  function done(): void {
    setChosen(new Set());
    setAll(false);
    list.restart();
  }
  const mayChange = may("admin");
  return (
    <>
      {list.problem ? <Trouble problem={list.problem} retry={list.restart} /> : null}
      {list.fresh.length ? (
        <button
          type="button"
          class="fresh"
          onClick={() => {
            scrollTo(0, 0);
            list.restart();
          }}
        >
          {list.fresh.length >= PAGE
            ? `${PAGE} or more new jobs`
            : plural(list.fresh.length, "new job")}
          : show
        </button>
      ) : null}
      {jobs === undefined && !list.problem ? <Skeleton rows={14} kind="jobs" /> : null}
      {isPlain(filter) || !jobs?.length ? null : <Matches filter={filter} />}
      {jobs?.length ? (
        <JobRows
          jobs={jobs}
          chosen={mayChange ? chosen : undefined}
          choose={(next) => {
            setAll(false);
            setChosen(next);
          }}
        />
      ) : null}
      {jobs && !jobs.length && !list.hasMore ? <Nothing filter={filter} /> : null}
      <div class="list-end" ref={end}>
        {list.isBusy ? <Skeleton rows={2} /> : null}
        {list.hasMore && !list.isBusy ? (
          <>
            {list.isCut ? (
              <p class="soft" role="status">
                Looked through {plural(list.loaded!.read, "job")} so far: there are more.
              </p>
            ) : null}
            <Button onClick={() => void list.more()}>Go on</Button>
          </>
        ) : null}
        {jobs?.length && !list.hasMore ? (
          <p class="soft">{plural(jobs.length, "job")}, and no more.</p>
        ) : null}
      </div>
      {chosen.size ? (
        <SelectionBar
          filter={filter}
          selected={selected}
          isAll={isAll}
          setAll={setAll}
          isAllLoaded={selected.length === jobs?.length}
          hasMore={list.hasMore}
          clear={() => {
            setChosen(new Set());
            setAll(false);
          }}
          done={done}
        />
      ) : null}
    </>
  );
}

/** j and k move along the rows, whose links have the focus. */
function useListKeys(clear: () => void): void {
  useLayoutEffect(() => {
    function hear(event: KeyboardEvent): void {
      const target = event.target as HTMLElement;
      if (isOpen() || target.matches("input:not([type=checkbox]), select, textarea")) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") {
        clear();
        return;
      }
      if (event.key === "x" && hasLetters.value) {
        target.closest("tr")?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
        return;
      }
      const step = hasLetters.value ? { j: 1, k: -1 }[event.key] : undefined;
      if (!step) return;
      const links = [...document.querySelectorAll<HTMLElement>("tr[data-id] a.job-link")];
      const here = links.indexOf(target.closest("tr")?.querySelector("a.job-link") as HTMLElement);
      const next = links[here < 0 ? 0 : here + step];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    }
    addEventListener("keydown", hear);
    return () => removeEventListener("keydown", hear);
  });
}

const MAIN_ACTIONS: Action[] = ["retry", "cancel", "delete"];
const MORE_ACTIONS: Action[] = ["run_now", "run_again", "reschedule", "reroute"];

function SelectionBar({
  filter,
  selected,
  isAll,
  setAll,
  isAllLoaded,
  hasMore,
  clear,
  done,
}: {
  filter: Filter;
  selected: Summary[];
  isAll: boolean;
  setAll: (value: boolean) => void;
  isAllLoaded: boolean;
  hasMore: boolean;
  clear: () => void;
  done: () => void;
}) {
  // Rows that come while one decides would only confuse.
  useEffect(() => {
    const before = isPaused.value;
    isPaused.value = true;
    return () => {
      isPaused.value = before;
    };
  }, []);
  const one = asOne(filter);
  const everything = isEmpty(filter) ? "ALL jobs" : "All that match";

  function askForAll(action: Action, details: Details): void {
    const state = one!.state ?? (action === "retry" ? "dead" : undefined);
    const wanted: ApiFilter = state ? { ...one, state } : one!;
    const isUnfiltered = isEmpty(filter);
    const words = isUnfiltered
      ? action === "retry"
        ? "dead jobs"
        : "jobs that have not ended"
      : inWords(filter);
    open(
      <BulkDialog
        action={action}
        filter={bulkFilter(wanted)}
        words={isUnfiltered ? `of ALL ${words}` : words}
        isAll={isUnfiltered}
        extra={bulkDetails(action, details)}
        changed={done}
      />,
    );
  }

  function act(action: Action): void {
    if (isAll) {
      if (NEEDS_DETAILS.has(action)) {
        begin(action, "all that match", async (details) => askForAll(action, details));
      } else {
        askForAll(action, {});
      }
      return;
    }
    const fit = selected.filter((job) => allows(action, job.state));
    begin(action, plural(fit.length, "job"), async (details) => {
      clear();
      await actOnSome(action, selected, done, details);
    });
  }

  const isOff = (action: Action) =>
    isAll ? !allowsAll(action, one) : !selected.some((job) => allows(action, job.state));
  const label = (action: Action) => {
    const fits = selected.filter((job) => allows(action, job.state)).length;
    return VERBS[action].name + (!isAll && fits && fits < selected.length ? ` ${fits}` : "");
  };
  return (
    <div class="selection" role="region" aria-label="Selected jobs">
      <span>
        <b>{isAll ? everything : count(selected.length)}</b> selected
      </span>
      {isAllLoaded && hasMore && !isAll ? (
        <Button
          kind="ghost"
          isDisabled={!one}
          title={one ? "" : "Narrow the filter to single values to act on all that match"}
          onClick={() => setAll(true)}
        >
          Select all that match
        </Button>
      ) : null}
      <span class="gap" />
      {MAIN_ACTIONS.map((action) => (
        <Button
          key={action}
          icon={VERBS[action].icon}
          title={isOff(action) ? reasonOf(action, isAll) : ""}
          isDisabled={isOff(action)}
          kind={action === "delete" ? "danger" : "plain"}
          onClick={() => act(action)}
        >
          {label(action)}
        </Button>
      ))}
      <Menu
        label="More"
        icon="dots"
        isUp
        items={MORE_ACTIONS.map((action) => ({
          text: label(action),
          icon: VERBS[action].icon,
          isDisabled: isOff(action),
          title: isOff(action) ? reasonOf(action, isAll) : "",
          act: () => act(action),
        }))}
      />
      <Button kind="ghost" icon="close" label="Select none" onClick={clear} />
    </div>
  );
}

function reasonOf(action: Action, isAll: boolean): string {
  return isAll && action !== "retry" && action !== "cancel"
    ? `Choose a state first: ${[...VERBS[action].states].join(", ")}`
    : VERBS[action].reason;
}

/** All but these take a state; a cancel without one is of all that have not ended. */
function allowsAll(action: Action, one: ApiFilter | undefined): boolean {
  if (!one) return false;
  if (one.state === undefined) return action === "cancel" || action === "retry";
  return allows(action, one.state);
}

function Nothing({ filter }: { filter: Filter }) {
  if (isEmpty(filter)) {
    return (
      <Empty icon="jobs" title="No jobs yet">
        <p>Enqueue one from your program, or from a shell:</p>
        <Command>{`rowlock enqueue hello '{"name": "Ada"}'`}</Command>
        <p>
          A worker runs it as soon as there is one: <code>rowlock worker</code>
        </p>
      </Empty>
    );
  }
  return (
    <Empty icon="search" title="No jobs match">
      <p>There are no {inWords(filter)}.</p>
      <p>
        <Button onClick={() => show({ is: {}, not: {} })}>Show all jobs</Button>
      </p>
    </Empty>
  );
}
