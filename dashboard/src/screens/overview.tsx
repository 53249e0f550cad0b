import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { get, getWhole, type Problem, type Schemas } from "../api.ts";
import { clock, count, duration, plural, rate, rateUnit } from "../format.ts";
import { type Finding, findings, inSlots } from "../health.ts";
import {
  everyMs,
  type History,
  isRange,
  isYoung,
  loadHistory,
  type Range,
  RANGES,
  throughput,
  totalRuns,
  wordsOf,
} from "../history.ts";
import { now, useLive } from "../live.ts";
import { route, to } from "../router.ts";
import { may, me, seesAll } from "../session.ts";
import { Command, Count, Head, Panel, Skeleton, StateBadge, Time, Trouble } from "../ui/basics.tsx";
import { HistoryCharts } from "../ui/historycharts.tsx";
import { Icon } from "../ui/icons.tsx";
import { Sparkline } from "../ui/sparkline.tsx";

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

/** `isWall`: for a screen on a wall, at which nobody sits. */
export function Overview({ isWall = false }: { isWall?: boolean }) {
  const asked = route.value.query.get("range");
  const [usual, setUsual] = useState<Range>("1h");
  const range: Range = isRange(asked) ? asked : usual;
  const current = useLive(loadNow, NOW_MS, []);
  const past = useLive(
    (signal) => (seesAll() ? loadHistory(range, {}, signal) : Promise.resolve(undefined)),
    everyMs(range),
    [range],
  );
  // Whoever has just begun sees the first jobs, not an empty hour.
  useEffect(() => {
    if (past.data && isYoung(past.data)) setUsual("5m");
  }, [past.data]);
  const problem = current.problem ?? past.problem;
  function retry(): void {
    current.refresh();
    past.refresh();
  }
  return (
    <>
      <Head title={isWall ? (me.value?.environment?.name ?? "rowlock") : "Overview"}>
        {isWall ? <WallClock /> : null}
        {seesAll() ? <RangeSwitch range={range} path={isWall ? ["wall"] : []} /> : null}
        <a
          class="button ghost"
          href={isWall ? "#/" : "#/wall"}
          title={isWall ? "Leave the wall" : "Show it on a wall"}
          aria-label={isWall ? "Leave the wall" : "Show it on a wall"}
        >
          <Icon name={isWall ? "close" : "fit"} />
        </a>
      </Head>
      {problem ? <Trouble problem={problem} retry={retry} /> : null}
      <Verdict current={current.data} history={past.data} problem={problem} range={range} />
      <Tiles current={current.data} history={past.data} range={range} />
      {seesAll() ? <HistoryCharts history={past.data} range={range} /> : null}
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

function WallClock() {
  return <span class="wall-clock">{clock(now.value, now.value)}</span>;
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
    span: wordsOf(range),
  });
  const worst = found[0]?.level ?? "good";
  const isNew = !current.queues.length;
  return (
    <section class={`verdict verdict-${worst}`} aria-label="Health">
      <span class="verdict-icon">
        <Icon name={worst === "good" ? "check" : "dead"} size={16} />
      </span>
      <div class="verdict-text">
        <h2>{found[0] ? <FindingLink finding={found[0]} /> : "All is well"}</h2>
        {found[0]?.level === "bad" ? <span class="tag tag-bad">urgent</span> : null}
        {found.length === 0 ? <p>{wellText(current, history, range)}</p> : null}
        {found.length > 1 ? (
          <ul>
            {found.slice(1, 5).map((each) => (
              <li key={each.text}>
                <FindingLink finding={each} />
              </li>
            ))}
            {found.length > 5 ? <li class="soft">and {found.length - 5} more</li> : null}
          </ul>
        ) : null}
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
      : `95 % of jobs waited ${duration(wait)} or less in the last ${wordsOf(range)}`,
  ];
  const text = parts.filter(Boolean).join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function FindingLink({ finding }: { finding: Finding }) {
  return <a href={to(finding.path, finding.query)}>{finding.text}</a>;
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
  const oldestAge = Math.max(0, ...(current?.queues.map(ageOf) ?? []));
  const text = textOf(range);
  const lines = history && throughput(history, series);
  const unit = lines && rateUnit([recent, ...lines.flatMap((each) => each.values)]);
  const depths = history?.depths.find((each) => each.queue === null);
  const past = <T,>(values: T[] | undefined) => values?.slice(0, -1) ?? [];
  return (
    <div class="tiles">
      {seesAll() ? (
        <>
          <Tile
            label="Throughput"
            value={recent === undefined ? undefined : rate(recent, unit)}
            note={history ? `${count(runs)} in ${text}` : ""}
            spark={lines?.[0] && <Sparkline values={lines[0].values} tone="good" />}
          />
          <Tile
            label="Wait, p95"
            value={history && shown(total?.wait.p95)}
            note={history ? `p50 ${shown(total?.wait.p50)}` : ""}
            spark={<Sparkline values={past(series?.wait_p95)} tone="violet" />}
          />
          <Tile
            label="Run, p95"
            value={history && shown(total?.run.p95)}
            note={history ? `p50 ${shown(total?.run.p50)}` : ""}
            spark={<Sparkline values={past(series?.run_p95)} tone="violet" />}
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
        note={!current ? "" : oldestAge ? `oldest ${duration(oldestAge)}` : "none waits"}
        spark={<Sparkline values={past(depths?.ready)} tone="calm" />}
      />
      <RunningTile current={current} values={past(depths?.running)} />
      <Tile
        label="Dead"
        value={
          dead && (
            <a class={total?.dead ? "count-dead" : ""} href="#/dead">
              <Count value={dead} />
            </a>
          )
        }
        note={total ? `${count(total.dead)} in ${text}` : ""}
        spark={<Sparkline values={past(series?.dead)} tone="bad" />}
      />
    </div>
  );
}

function ageOf(queue: Schemas["Queue"]): number {
  return queue.oldest_ready_seconds ?? 0;
}

/** Jobs in a slot. Those that a worker holds ahead of one are told apart. */
function RunningTile({ current, values }: { current: Now | undefined; values: (number | null)[] }) {
  const held = summed(current, "running");
  const workers = current?.workers && alive(current.workers);
  const { running, ahead, slots } = inSlots(held?.value ?? 0, workers ?? []);
  const parts = [
    slots ? `of ${plural(slots, "slot")}` : workers ? plural(workers.length, "worker") : "",
    ahead ? `${count(ahead)} claimed ahead` : "",
  ];
  return (
    <Tile
      label="Running"
      value={
        held && (
          <a href={to(["jobs"], { state: "running" })}>
            <Count value={{ value: running, exact: held.exact }} />
          </a>
        )
      }
      note={parts.filter(Boolean).join(", ")}
      spark={<Sparkline values={values} />}
    />
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

function shown(seconds: number | null | undefined): string {
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

export function Tile({
  label,
  value,
  note,
  spark,
}: {
  label: string;
  value: ComponentChildren;
  note: string;
  spark?: ComponentChildren;
}) {
  return (
    <div class="tile">
      <span class="tile-label">{label}</span>
      <span class="tile-value">{value ?? <span class="bone tile-bone" />}</span>
      <span class="tile-spark">{spark}</span>
      <span class="tile-note">{note}</span>
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
          <a class="name grow" href={to(["queues", each.queue])}>
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
            <Time at={job.finished_at} show="clock" />
          </span>
        </li>
      ))}
    </ul>
  );
}
