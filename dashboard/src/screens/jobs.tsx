import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { get, type Problem, type Query, serverNow, type Schemas } from "../api.ts";
import {
  type Filter,
  fromQuery,
  inWords,
  isEmpty,
  resolved,
  type State,
  toQuery,
} from "../filters.ts";
import { count, plural } from "../format.ts";
import { type Action, actOnSome, allows, bulkFilter, type Summary, VERBS } from "../jobs.ts";
import { asProblem, isPaused, useLive } from "../live.ts";
import { route } from "../router.ts";
import { may } from "../session.ts";
import { Button, Command, Empty, Head, Skeleton, Trouble } from "../ui/basics.tsx";
import { BulkDialog, BulkProgress } from "../ui/bulk.tsx";
import { isOpen, open } from "../ui/dialog.tsx";
import { JobRows } from "../ui/jobrows.tsx";
import { Filters, isPlain, Matches, show } from "./jobfilters.tsx";

const PAGE = 50;
const EVERY_MS = 5000;
/** A page may be empty and have a next one: so many are asked for without being told to. */
const BARREN_MAX = 5;

export function Jobs() {
  const filter = fromQuery(route.value.query);
  const key = toQuery(filter).toString();
  return (
    <>
      <Head title="Jobs" sub={isEmpty(filter) ? "Newest first." : `Shown: ${inWords(filter)}.`} />
      <Filters filter={filter} />
      <BulkProgress />
      <List filter={filter} key={key} />
    </>
  );
}

function queryOf(filter: Filter, cursor?: string): Query {
  return { ...resolved(filter, serverNow()), limit: PAGE, cursor } as Query;
}

interface Loaded {
  jobs: Summary[];
  next: string | null;
  pages: number;
}

/** All that is loaded, the next page when it is wanted, and the first one again now and then. */
function useJobs(filter: Filter) {
  const [loaded, setLoaded] = useState<Loaded>();
  const [fresh, setFresh] = useState<Summary[]>([]);
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const isMore = (loaded?.pages ?? 0) > 1;

  const first = useLive(
    (signal) => get<Schemas["JobPage"]>("v1/jobs", queryOf(filter), signal),
    EVERY_MS,
    [],
  );
  useEffect(() => {
    const page = first.data;
    if (!page) return;
    if (!loaded || !isMore) {
      setLoaded({ jobs: page.jobs, next: page.next, pages: 1 });
      return;
    }
    const known = new Set(loaded.jobs.map((job) => job.id));
    const news = new Map(page.jobs.map((job) => [job.id, job]));
    setFresh(page.jobs.filter((job) => !known.has(job.id)));
    setLoaded({ ...loaded, jobs: loaded.jobs.map((job) => news.get(job.id) ?? job) });
  }, [first.data]);

  async function more(): Promise<void> {
    if (!loaded?.next || isBusy) return;
    setBusy(true);
    setProblem(undefined);
    try {
      let { jobs, pages } = loaded;
      let next: string | null = loaded.next;
      const before = jobs.length;
      for (let asked = 0; next && jobs.length < before + PAGE && asked < BARREN_MAX; asked += 1) {
        const page: Schemas["JobPage"] = await get("v1/jobs", queryOf(filter, next));
        jobs = [...jobs, ...page.jobs];
        next = page.next;
        pages += 1;
        setLoaded({ jobs, next, pages });
      }
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
    problem: problem ?? first.problem,
    more,
    restart,
    refresh: first.refresh,
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
    const watcher = new IntersectionObserver(
      (entries) => {
        if (entries.some((each) => each.isIntersecting)) void list.more();
      },
      { rootMargin: "800px" },
    );
    if (end.current) watcher.observe(end.current);
    return () => watcher.disconnect();
  });
  // A page that is empty, or short, may have a next one that is not.
  useEffect(() => {
    if (list.loaded?.next && list.loaded.jobs.length < PAGE / 2 && list.loaded.pages === 1)
      void list.more();
  }, [list.loaded]);
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
      {jobs === undefined && !list.problem ? <Skeleton rows={14} /> : null}
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
      {jobs && !jobs.length && !list.loaded?.next ? <Nothing filter={filter} /> : null}
      <div class="list-end" ref={end}>
        {list.isBusy ? <Skeleton rows={2} /> : null}
        {list.loaded?.next && !list.isBusy ? (
          <Button onClick={() => void list.more()}>Go on</Button>
        ) : null}
        {jobs?.length && !list.loaded?.next ? (
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
          hasMore={Boolean(list.loaded?.next)}
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
      if (event.key === "Escape") return clear();
      if (event.key === "x") {
        target.closest("tr")?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
        return;
      }
      const step = { j: 1, k: -1 }[event.key];
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
  function act(action: Action): void {
    if (isAll) {
      const state = filter.state ?? (action === "retry" ? "dead" : undefined);
      const wanted: Filter = state ? { ...filter, state } : filter;
      open(
        <BulkDialog
          action={action}
          filter={bulkFilter(wanted)}
          words={inWords(wanted)}
          changed={done}
        />,
      );
      return;
    }
    actOnSome(action, selected, done);
    clear();
  }
  const actions: Action[] = ["retry", "cancel", "delete"];
  return (
    <div class="selection" role="region" aria-label="Selected jobs">
      <span>
        <b>{isAll ? "All that match" : count(selected.length)}</b> selected
      </span>
      {isAllLoaded && hasMore && !isAll ? (
        <Button kind="ghost" onClick={() => setAll(true)}>
          Select all that match
        </Button>
      ) : null}
      <span class="gap" />
      {actions.map((action) => {
        const fits = selected.filter((job) => allows(action, job.state)).length;
        const isOff = isAll ? !allowsAll(action, filter.state) : fits === 0;
        const title = isOff ? REASONS[action] : "";
        const some = !isAll && fits && fits < selected.length ? ` ${fits}` : "";
        return (
          <Button
            key={action}
            icon={action === "delete" ? "trash" : action}
            title={title}
            isDisabled={isOff}
            kind={action === "delete" ? "danger" : "plain"}
            onClick={() => act(action)}
          >
            {VERBS[action] + some}
          </Button>
        );
      })}
      <Button kind="ghost" icon="close" label="Select none" onClick={clear} />
    </div>
  );
}

const REASONS: Record<Action, string> = {
  retry: "Only dead and cancelled jobs can be retried",
  cancel: "Only jobs that have not ended can be cancelled",
  delete: "Choose a state other than running to delete all that match",
};

/** Deleting takes a state; a cancel without one is of all that have not ended. */
function allowsAll(action: Action, state: State | undefined): boolean {
  return state === undefined ? action !== "delete" : allows(action, state);
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
        <Button onClick={() => show({})}>Show all jobs</Button>
      </p>
    </Empty>
  );
}
