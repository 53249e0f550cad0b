// One queue: what it holds, how it has fared, who works on it, and what keeps it back.

import { get, getWhole, type Schemas } from "../api.ts";
import type { State } from "../filters.ts";
import { count, counted, duration, plural, rate, rateUnit, share } from "../format.ts";
import {
  everyMs,
  type History,
  loadHistory,
  type Range,
  RANGES,
  runsOf,
  SECONDS,
  totalRuns,
} from "../history.ts";
import { now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import { Empty, Head, KindLink, Meter, Panel, Skeleton, Trouble } from "../ui/basics.tsx";
import { HistoryCharts } from "../ui/historycharts.tsx";
import { Icon } from "../ui/icons.tsx";
import { currentRange, Rates } from "./kindhistory.tsx";
import { RangeSwitch, Tile } from "./overview.tsx";
import { PauseButton, StateCount } from "./queues.tsx";

type Queue = Schemas["Queue"];
type Worker = Schemas["Worker"];
type Limit = Schemas["Limit"];

interface Found {
  queue: Queue | undefined;
  workers: Worker[];
  limits: Limit[];
}

const EVERY_MS = 5000;
const SILENT_MS = 45_000;
/** So many of its jobs are asked for their limits: those that run, and those that come next. */
const JOBS_ASKED = 50;

async function load(name: string, signal: AbortSignal): Promise<Found> {
  const jobs = (state: State) =>
    get<Schemas["JobPage"]>("v1/jobs", { queue: name, state, limit: JOBS_ASKED }, signal);
  const [queues, workers, running, ready] = await Promise.all([
    get<Schemas["Queues"]>("v1/queues", { queue: name }, signal),
    seesAll() ? getWhole<Schemas["Workers"]>("v1/workers", "workers", signal) : undefined,
    jobs("running"),
    jobs("ready"),
  ]);
  const names = new Set([...running.jobs, ...ready.jobs].flatMap((job) => job.limit ?? []));
  const limits = names.size
    ? (await getWhole<Schemas["Limits"]>("v1/limits", "limits", signal)).limits
    : [];
  return {
    queue: queues.queues[0],
    workers: workers?.workers.filter((each) => isServing(each, name)) ?? [],
    limits: limits.filter((each) => names.has(each.name)),
  };
}

function isServing(worker: Worker, queue: string): boolean {
  const isAlive = worker.last_beat_at && now.value - Date.parse(worker.last_beat_at) < SILENT_MS;
  return Boolean(isAlive) && (!worker.queues.length || worker.queues.includes(queue));
}

export function QueueScreen({ name }: { name: string }) {
  const range = currentRange();
  const live = useLive((signal) => load(name, signal), EVERY_MS, []);
  const past = useLive(
    (signal) =>
      seesAll() ? loadHistory(range, { queue: name }, signal) : Promise.resolve(undefined),
    everyMs(range),
    [range],
  );
  const kinds = useLive(
    (signal) =>
      seesAll()
        ? loadHistory(range, { queue: name, by: "kind" }, signal)
        : Promise.resolve(undefined),
    everyMs(range),
    [range],
  );
  const found = live.data;
  const problem = live.problem ?? past.problem;
  if (found && !found.queue) {
    return (
      <Empty icon="search" title="There is no such queue">
        <p>A queue is there as long as it has jobs, or is paused.</p>
        <p>
          <a class="button" href="#/queues">
            Show all queues
          </a>
        </p>
      </Empty>
    );
  }
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/queues">Queues</a> <Icon name="right" size={12} />
      </nav>
      <Head
        title={
          <>
            {name} {found?.queue?.is_paused ? <span class="tag tag-warn">paused</span> : null}
          </>
        }
      >
        {seesAll() ? <RangeSwitch range={range} path={["queues", name]} /> : null}
        <a class="button" href={to(["jobs"], { queue: name })}>
          <Icon name="jobs" /> <span>Its jobs</span>
        </a>
        {found?.queue && may("admin") && seesAll() ? (
          <PauseButton queue={found.queue} refresh={live.refresh} isWide />
        ) : null}
      </Head>
      {problem ? <Trouble problem={problem} retry={live.refresh} /> : null}
      <Tiles found={found} history={past.data} range={range} />
      {seesAll() ? (
        <>
          <HistoryCharts history={past.data} range={range} />
          <div class="pair">
            <Panel title="Kinds">
              <KindList history={kinds.data} range={range} />
            </Panel>
            <div class="side-column">
              <Panel title="Workers" aside={<a href="#/workers">All workers</a>}>
                <WorkerList found={found} name={name} />
              </Panel>
              <LimitList limits={found?.limits ?? []} />
            </div>
          </div>
        </>
      ) : null}
    </>
  );
}

function Tiles({
  found,
  history,
  range,
}: {
  found: Found | undefined;
  history: History | undefined;
  range: Range;
}) {
  const queue = found?.queue;
  const total = history?.series[0]?.total;
  const runs = runsOf(history?.series[0]);
  const { retrying, dead } = totalRuns(history?.series[0]);
  const text = RANGES.find((each) => each.range === range)!.text;
  const perSecond = runs / SECONDS[range];
  const state = (name: State) => queue && <StateCount queue={queue} state={name} />;
  const slots = slotsOf(found?.workers ?? [], queue?.queue ?? "");
  return (
    <div class="tiles">
      <Tile label="Ready" value={state("ready")} note={queue ? oldestWords(queue) : ""} />
      <Tile
        label="Running"
        value={state("running")}
        note={slots ? `of ${plural(slots.slots, "slot")}` : ""}
      />
      {seesAll() ? (
        <>
          <Tile
            label="Throughput"
            value={history && rate(perSecond, rateUnit([perSecond]))}
            note={history ? `${count(runs)} in ${text}` : ""}
          />
          <Tile
            label="Wait, p95"
            value={history && (total?.wait.p95 == null ? "–" : duration(total.wait.p95))}
            note={total?.wait.p50 == null ? "" : `p50 ${duration(total.wait.p50)}`}
          />
          <Tile
            label="Failed"
            value={history && share(retrying + dead, runs)}
            note={history ? `${count(dead)} given up in ${text}` : ""}
          />
        </>
      ) : null}
      <Tile
        label="Dead"
        value={state("dead")}
        note={queue ? `${counted(queue.counts.retrying)} retrying` : ""}
      />
    </div>
  );
}

function oldestWords(queue: Queue): string {
  const age = queue.oldest_ready_seconds;
  return age === null ? "none waits" : `oldest ${duration(age)}`;
}

/** The slots that its jobs can have: those of their own, where a worker keeps some for it. */
function slotsOf(workers: Worker[], queue: string): { slots: number; busy: number } | undefined {
  if (!workers.length || workers.some((each) => each.slots == null)) return undefined;
  const sum = (of: (worker: Worker) => number) =>
    workers.reduce((before, each) => before + of(each), 0);
  return {
    slots: sum((each) => each.queue_slots[queue]?.slots ?? each.slots ?? 0),
    busy: sum((each) => each.queue_slots[queue]?.busy ?? each.busy ?? 0),
  };
}

function KindList({ history, range }: { history: History | undefined; range: Range }) {
  if (!history) return <Skeleton rows={4} />;
  const series = [...history.series].sort((a, b) => runsOf(b) - runsOf(a));
  if (!series.length) return <p class="soft">Nothing ran.</p>;
  const unit = rateUnit(series.map((each) => runsOf(each) / SECONDS[range]));
  return (
    <table class="table plain-table">
      <thead>
        <tr>
          <th>Kind</th>
          <th class="number">Runs</th>
          <th class="number">Rate</th>
          <th class="number">Failed</th>
          <th class="number">Run p50</th>
          <th class="number">p95</th>
          <th class="number">Wait p95</th>
        </tr>
      </thead>
      <tbody>
        {series.map((each) => (
          <tr key={each.kind}>
            <th scope="row">
              <KindLink kind={each.kind ?? ""} />
            </th>
            <Rates series={each} range={range} unit={unit} isLoaded />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const WORKERS_SHOWN = 10;

function WorkerList({ found, name }: { found: Found | undefined; name: string }) {
  if (!found) return <Skeleton rows={3} />;
  if (!found.workers.length) return <p class="error-line">No live worker serves it.</p>;
  const sorted = [...found.workers].sort((a, b) => (b.busy ?? 0) - (a.busy ?? 0));
  return (
    <ul class="lines">
      {sorted.slice(0, WORKERS_SHOWN).map((each) => {
        const slots = slotsOf([each], name);
        return (
          <li key={each.id}>
            <span class="grow name" title={each.id}>
              {each.host || each.id} {each.pid ? <span class="soft">{each.pid}</span> : null}
            </span>
            {each.queue_slots[name] ? <span class="tag">own slots</span> : null}
            {slots ? (
              <>
                <Meter value={slots.busy / Math.max(1, slots.slots)} label="Slots in use" />
                <span class="soft">
                  {count(slots.busy)} of {count(slots.slots)}
                </span>
              </>
            ) : (
              <span class="soft">{plural(each.running.length, "job")}</span>
            )}
          </li>
        );
      })}
      {sorted.length > WORKERS_SHOWN ? (
        <li class="soft">and {count(sorted.length - WORKERS_SHOWN)} more</li>
      ) : null}
    </ul>
  );
}

/** The limits of its jobs that run or are ready. */
function LimitList({ limits }: { limits: Limit[] }) {
  if (!limits.length) return null;
  return (
    <Panel title="Limits of its jobs" aside={<a href="#/limits">All limits</a>}>
      <ul class="lines">
        {limits.map((each) => (
          <li key={each.name}>
            <a class="name grow" href={to(["limits", each.name])}>
              {each.name}
            </a>
            {each.is_paused ? <span class="tag tag-warn">paused</span> : null}
            <span class="soft">
              {counted(each.running)}
              {each.rules.concurrency === null ? "" : ` of ${count(each.rules.concurrency)}`}{" "}
              running
            </span>
            <span class="soft">{counted(each.waiting)} waiting</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
