import { count, duration, rate, type RateUnit, rateUnit, share } from "../format.ts";
import {
  DURATIONS,
  everyMs,
  isRange,
  loadHistory,
  percentiles,
  type Range,
  RANGES,
  rateScale,
  runsOf,
  SECONDS,
  type Series,
  throughput,
  timesOf,
  totalRuns,
  unitOf,
  wordsOf,
} from "../history.ts";
import { useLive } from "../live.ts";
import { route, to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import { Panel, QueueLink } from "../ui/basics.tsx";
import { ChartPanel } from "../ui/chart.tsx";
import { Icon } from "../ui/icons.tsx";
import type { Kind } from "./kinds.tsx";
import { RangeSwitch } from "./overview.tsx";

export function currentRange(): Range {
  const asked = route.value.query.get("range");
  return isRange(asked) ? asked : "1h";
}

export function KindRates({ kinds }: { kinds: Kind[] }) {
  const range = currentRange();
  const hasHistory = may("read") && seesAll();
  const live = useLive(
    (signal) =>
      hasHistory ? loadHistory(range, { by: "kind" }, signal) : Promise.resolve(undefined),
    everyMs(range),
    [range],
  );
  const series = new Map(live.data?.series.map((each) => [each.kind, each]));
  // One unit for the column.
  const unit = rateUnit(live.data?.series.map((each) => runsOf(each) / SECONDS[range]) ?? []);
  return (
    <>
      {hasHistory ? (
        <div class="range-line">
          <RangeSwitch range={range} path={["kinds"]} />
        </div>
      ) : null}
      <div class="table-wrap">
        <table class="table kinds">
          <thead>
            <tr>
              <th>Kind</th>
              <th>Queue</th>
              <th class="number">Workers</th>
              {hasHistory ? (
                <>
                  <th class="number">Runs</th>
                  <th class="number">Rate</th>
                  <th class="number">Failed</th>
                  <th class="number">Run p50</th>
                  <th class="number">p95</th>
                  <th class="number">Wait p95</th>
                </>
              ) : null}
              <th>
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {kinds.map((each) => (
              <tr key={each.kind}>
                <th scope="row">
                  <a class="name" href={to(["kinds", each.kind])}>
                    {each.kind}
                  </a>
                </th>
                <td data-label="queue">
                  {each.queue && may("read") ? (
                    <QueueLink queue={each.queue} />
                  ) : (
                    (each.queue ?? <span class="soft">elsewhere</span>)
                  )}
                </td>
                <td class="number" data-label="workers">
                  {each.workers || <span class="zero">0</span>}
                </td>
                {hasHistory ? (
                  <Rates
                    series={series.get(each.kind)}
                    range={range}
                    unit={unit}
                    isLoaded={live.data !== undefined}
                  />
                ) : null}
                <td class="row-actions">
                  {may("enqueue") ? (
                    <a
                      class="button ghost"
                      href={to(["kinds", each.kind])}
                      aria-label={`Enqueue ${each.kind}`}
                    >
                      <Icon name="plus" /> <span>Enqueue</span>
                    </a>
                  ) : null}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export function Rates({
  series,
  range,
  unit,
  isLoaded,
}: {
  series: Series | undefined;
  range: Range;
  unit: RateUnit;
  isLoaded: boolean;
}) {
  const { succeeded, retrying, dead } = totalRuns(series);
  const runs = succeeded + retrying + dead;
  const empty = <span class="zero">{isLoaded ? "–" : ""}</span>;
  const shown = (seconds: number | null | undefined) =>
    seconds == null ? empty : duration(seconds);
  const failed = retrying + dead;
  return (
    <>
      <td class="number" data-label="runs">
        {runs ? count(runs) : empty}
      </td>
      <td class="number" data-label="rate">
        {runs ? rate(runs / SECONDS[range], unit) : empty}
      </td>
      <td class="number" data-label="failed">
        {runs ? <span class={failed ? "count-dead" : "zero"}>{share(failed, runs)}</span> : empty}
      </td>
      <td class="number" data-label="run p50">
        {shown(series?.total.run.p50)}
      </td>
      <td class="number" data-label="run p95">
        {shown(series?.total.run.p95)}
      </td>
      <td class="number" data-label="wait p95">
        {shown(series?.total.wait.p95)}
      </td>
    </>
  );
}

/** How a kind has fared: its rate, its run times, and how they are spread. */
export function KindHistory({ kind }: { kind: string }) {
  const range = currentRange();
  const live = useLive(
    (signal) => (seesAll() ? loadHistory(range, { kind }, signal) : Promise.resolve(undefined)),
    everyMs(range),
    [range],
  );
  if (!seesAll()) return null;
  const history = live.data;
  const series = history?.series[0];
  const { succeeded, retrying, dead } = totalRuns(series);
  const text = RANGES.find((each) => each.range === range)!.text;
  const runs = history ? throughput(history, series) : [];
  return (
    <>
      <div class="range-line">
        <RangeSwitch range={range} path={["kinds", kind]} />
        <span class="soft">
          {history
            ? `${count(succeeded)} succeeded, ${count(retrying)} to be tried again, ` +
              `${count(dead)} given up in ${text}`
            : ""}
        </span>
      </div>
      <div class="charts charts-four">
        {history ? (
          <>
            <ChartPanel
              title="Throughput"
              times={timesOf(history)}
              lines={runs}
              scale={rateScale(unitOf(runs))}
              nothing={`Nothing ran in the last ${wordsOf(range)}.`}
              height={150}
              isStacked
            />
            <ChartPanel
              title="Run time"
              times={timesOf(history)}
              lines={percentiles(history, series, "run")}
              scale={DURATIONS}
              nothing={`Nothing ran in the last ${wordsOf(range)}.`}
              height={150}
            />
            <ChartPanel
              title="Waiting time"
              times={timesOf(history)}
              lines={percentiles(history, series, "wait")}
              scale={DURATIONS}
              nothing={`Nothing ran in the last ${wordsOf(range)}.`}
              height={150}
            />
            <Panel title="Spread of run times">
              <Histogram series={series} />
            </Panel>
          </>
        ) : (
          [0, 1, 2, 3].map((each) => <section class="panel chart-bone" key={each} />)
        )}
      </div>
    </>
  );
}

function Histogram({ series }: { series: Series | undefined }) {
  const buckets = series?.total.run.buckets ?? [];
  if (!buckets.length) return <p class="soft">No runs in this stretch.</p>;
  const most = Math.max(...buckets.map((each) => each.count));
  return (
    <ol class="histogram" tabIndex={0} aria-label="Spread of run times">
      {buckets.map((each, place) => (
        <li key={place}>
          <span class="histogram-label">
            {each.up_to === null ? "more" : `≤ ${duration(each.up_to)}`}
          </span>
          <span class="histogram-bar">
            <span style={{ width: `${Math.max(1, (each.count / most) * 100)}%` }} />
          </span>
          <span class="histogram-count">{count(each.count)}</span>
        </li>
      ))}
    </ol>
  );
}
