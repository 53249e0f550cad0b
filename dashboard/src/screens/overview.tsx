import type { ComponentChildren } from "preact";

import { get, getWhole, type Problem, type Schemas } from "../api.ts";
import { count, duration, plural, rate } from "../format.ts";
import { type Finding, findings } from "../health.ts";
import {
  depth,
  everyMs,
  type History,
  isRange,
  loadHistory,
  oldest,
  percentiles,
  type Range,
  RANGES,
  throughput,
  timesOf,
  totalRuns,
} from "../history.ts";
import { now, useLive } from "../live.ts";
import { route, to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import { Command, Count, Head, Panel, Skeleton, StateBadge, Time, Trouble } from "../ui/basics.tsx";
import { Chart } from "../ui/chart.tsx";
import { Icon } from "../ui/icons.tsx";

const NOW_MS = 5000;
const SILENT_MS = 45_000;

interface Now {
  queues: Schemas["Queue"][];
  workers: Schemas["Worker"][] | undefined;
  dead: Schemas["JobSummary"][];
}

async function loadNow(signal: AbortSignal): Promise<Now> {
  const [queues, workers, dead] = await Promise.all([
    getWhole<Schemas["Queues"]>("v1/queues", "queues", signal),
    seesAll() ? getWhole<Schemas["Workers"]>("v1/workers", "workers", signal) : undefined,
    get<Schemas["JobPage"]>("v1/jobs", { state: "dead", limit: 5 }, signal),
  ]);
  return { queues: queues.queues, workers: workers?.workers, dead: dead.jobs };
}

export function Overview() {
  const asked = route.value.query.get("range");
  const range: Range = isRange(asked) ? asked : "1h";
  const current = useLive(loadNow, NOW_MS, []);
  const past = useLive(
    (signal) => (seesAll() ? loadHistory(range, {}, signal) : Promise.resolve(undefined)),
    everyMs(range),
    [range],
  );
  const problem = current.problem ?? past.problem;
  function retry(): void {
    current.refresh();
    past.refresh();
  }
  return (
    <>
      <Head title="Overview">
        <RangeSwitch range={range} />
      </Head>
      {problem ? <Trouble problem={problem} retry={retry} /> : null}
      <Verdict current={current.data} history={past.data} problem={problem} range={range} />
      <Tiles current={current.data} history={past.data} range={range} />
      {seesAll() ? <Charts history={past.data} /> : null}
      <div class="pair">
        <Panel title="Queues" aside={<a href="#/queues">All queues</a>}>
          <QueueList current={current.data} />
        </Panel>
        <Panel title="Given up lately" aside={<a href="#/dead">Dead letters</a>}>
          <DeadList current={current.data} />
        </Panel>
      </div>
    </>
  );
}

export function RangeSwitch({ range, path = [] }: { range: Range; path?: string[] }) {
  return (
    <div class="switch" role="group" aria-label="Stretch of time">
      {RANGES.map((each) => (
        <a
          key={each.range}
          href={to(path, { range: each.range })}
          aria-current={each.range === range ? "true" : undefined}
        >
          {each.text}
        </a>
      ))}
    </div>
  );
}

function alive(workers: Schemas["Worker"][]): Schemas["Worker"][] {
  return workers.filter(
    (each) => each.last_beat_at && now.value - Date.parse(each.last_beat_at) < SILENT_MS,
  );
}

function Verdict({
  current,
  history,
  problem,
  range,
}: {
  current: Now | undefined;
  history: History | undefined;
  problem: Problem | undefined;
  range: Range;
}) {
  if (!current)
    return problem ? null : (
      <div class="verdict verdict-wait">
        <Skeleton rows={1} />
      </div>
    );
  const found = findings({
    queues: current.queues,
    workers: current.workers && alive(current.workers).length,
    runs: history && totalRuns(history.series[0]),
    span: textOf(range),
  });
  const worst = found[0]?.level ?? "good";
  const titles = { good: "All is well", warn: "Worth a look", bad: "Something is wrong" };
  const isNew = !current.queues.length;
  return (
    <section class={`verdict verdict-${worst}`} aria-label="Health">
      <span class="verdict-icon">
        <Icon name={worst === "good" ? "check" : "dead"} size={22} />
      </span>
      <div class="verdict-text">
        <h2>{titles[worst]}</h2>
        {found.length === 0 ? (
          <p>{wellText(current, history, range)}</p>
        ) : (
          <ul>
            {found.slice(0, 5).map((each) => (
              <FindingLine key={each.text} finding={each} />
            ))}
          </ul>
        )}
        {found.length > 5 ? <p class="soft">and {found.length - 5} more</p> : null}
        {isNew && may("enqueue") ? (
          <p>
            Enqueue a first job: <Command>{`rowlock enqueue hello '{}'`}</Command>
          </p>
        ) : null}
      </div>
    </section>
  );
}

function textOf(range: Range): string {
  return RANGES.find((each) => each.range === range)!.text;
}

function wellText(current: Now, history: History | undefined, range: Range): string {
  const workers = current.workers ? alive(current.workers).length : undefined;
  const wait = history?.series[0]?.total.wait.p95;
  const parts = [
    workers === undefined
      ? ""
      : `${count(workers)} ${workers === 1 ? "worker is" : "workers are"} at work`,
    wait == null
      ? "no job has waited long"
      : `95 % of jobs waited ${duration(wait)} or less in the last ${textOf(range)}`,
  ];
  const text = parts.filter(Boolean).join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function FindingLine({ finding }: { finding: Finding }) {
  return (
    <li>
      <a href={to(finding.path, finding.query)}>{finding.text}</a>
      {finding.level === "bad" ? <span class="tag tag-bad">urgent</span> : null}
    </li>
  );
}

function Tiles({
  current,
  history,
  range,
}: {
  current: Now | undefined;
  history: History | undefined;
  range: Range;
}) {
  const series = history?.series[0];
  const total = series?.total;
  const runs = total ? total.succeeded + total.retrying + total.dead + total.cancelled : 0;
  const recent = history ? lately(history) : undefined;
  const ready = summed(current, "ready");
  const dead = summed(current, "dead");
  const ages = current?.queues.map((each) => each.oldest_ready_seconds ?? 0) ?? [];
  const text = textOf(range);
  return (
    <div class="tiles">
      {seesAll() ? (
        <>
          <Tile
            label="Throughput"
            value={recent === undefined ? undefined : rate(recent)}
            note={`${count(runs)} in ${text}`}
          />
          <Tile
            label="Wait, p95"
            value={history && told(total?.wait.p95)}
            note={`p50 ${told(total?.wait.p50)}`}
          />
          <Tile
            label="Run, p95"
            value={history && told(total?.run.p95)}
            note={`p50 ${told(total?.run.p50)}`}
          />
        </>
      ) : null}
      <Tile
        label="Ready"
        value={
          ready && (
            <a href={to(["jobs"], { state: "ready" })}>
              <Count value={ready} />
            </a>
          )
        }
        note={Math.max(0, ...ages) ? `oldest ${duration(Math.max(...ages))}` : "none waits"}
      />
      <Tile
        label="Running"
        value={
          current && (
            <a href={to(["jobs"], { state: "running" })}>
              <Count value={summed(current, "running")!} />
            </a>
          )
        }
        note={current?.workers ? plural(alive(current.workers).length, "worker") : ""}
      />
      <Tile
        label="Dead"
        value={
          dead && (
            <a class={dead.value ? "count-dead" : ""} href="#/dead">
              <Count value={dead} />
            </a>
          )
        }
        note={total ? `${count(total.dead)} in ${text}` : ""}
      />
    </div>
  );
}

/** Runs a second in the last minute whose sums are there. */
function lately(history: History): number {
  const series = history.series[0];
  if (!series) return 0;
  const steps = Math.max(1, Math.round(60 / history.step));
  const last = (counts: number[]) =>
    counts.slice(-1 - steps, -1).reduce((sum, each) => sum + each, 0);
  const ended =
    last(series.succeeded) + last(series.retrying) + last(series.dead) + last(series.cancelled);
  return ended / (steps * history.step);
}

function told(seconds: number | null | undefined): string {
  return seconds == null ? "–" : duration(seconds);
}

function summed(
  current: Now | undefined,
  state: "ready" | "dead" | "running",
): Schemas["Count"] | undefined {
  return (
    current && {
      value: current.queues.reduce((sum, each) => sum + each.counts[state].value, 0),
      exact: current.queues.every((each) => each.counts[state].exact),
    }
  );
}

function Tile({ label, value, note }: { label: string; value: ComponentChildren; note: string }) {
  return (
    <div class="tile">
      <span class="tile-label">{label}</span>
      <span class="tile-value">{value ?? <span class="bone tile-bone" />}</span>
      <span class="tile-note">{note}</span>
    </div>
  );
}

function Charts({ history }: { history: History | undefined }) {
  if (!history) {
    return (
      <div class="charts">
        {[0, 1, 2, 3].map((each) => (
          <section class="panel chart-bone" key={each} />
        ))}
      </div>
    );
  }
  const series = history.series[0];
  const times = timesOf(history);
  return (
    <div class="charts">
      <Panel title="Throughput" class="chart-wide">
        <Chart
          times={times}
          lines={throughput(history, series)}
          format={rate}
          label="Throughput"
          height={200}
        />
      </Panel>
      <Panel title="Wait, from due to claimed">
        <Chart
          times={times}
          lines={percentiles(history, series, "wait")}
          format={duration}
          label="Wait"
        />
      </Panel>
      <Panel title="Run time">
        <Chart
          times={times}
          lines={percentiles(history, series, "run")}
          format={duration}
          label="Run time"
        />
      </Panel>
      <Panel title="Depth">
        <Chart times={times} lines={depth(history)} format={count} label="Depth" />
      </Panel>
      <Panel title="Age of the oldest ready job">
        <Chart
          times={times}
          lines={oldest(history)}
          format={duration}
          label="Age of the oldest ready job"
        />
      </Panel>
    </div>
  );
}

function QueueList({ current }: { current: Now | undefined }) {
  if (!current) return <Skeleton rows={4} />;
  if (!current.queues.length) return <p class="soft">There are none yet.</p>;
  const busiest = [...current.queues]
    .sort(
      (a, b) =>
        b.counts.ready.value +
        b.counts.running.value -
        a.counts.ready.value -
        a.counts.running.value,
    )
    .slice(0, 6);
  return (
    <ul class="lines">
      {busiest.map((each) => (
        <li key={each.queue}>
          <a class="name grow" href={to(["jobs"], { queue: each.queue })}>
            {each.queue}
          </a>
          {each.is_paused ? <span class="tag tag-warn">paused</span> : null}
          <span class="soft">
            <Count value={each.counts.ready} /> ready
          </span>
          <span class="soft">
            <Count value={each.counts.running} /> running
          </span>
        </li>
      ))}
    </ul>
  );
}

function DeadList({ current }: { current: Now | undefined }) {
  if (!current) return <Skeleton rows={4} />;
  if (!current.dead.length) return <p class="soft">No job has been given up.</p>;
  return (
    <ul class="lines">
      {current.dead.map((job) => (
        <li key={job.id}>
          <StateBadge state={job.state} />
          <a class="name" href={to(["jobs", job.id])}>
            {job.kind}
          </a>
          <span class="error-line grow">{job.last_error?.split("\n")[0]}</span>
          <span class="soft">
            <Time at={job.finished_at} />
          </span>
        </li>
      ))}
    </ul>
  );
}
