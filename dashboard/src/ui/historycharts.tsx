import {
  COUNTS,
  depth,
  DURATIONS,
  type History,
  oldest,
  percentiles,
  type Range,
  rateScale,
  throughput,
  timesOf,
  unitOf,
  wordsOf,
} from "../history.ts";
import { ChartPanel } from "./chart.tsx";

/** How jobs have fared, and what waited: all of them, or those of one queue or kind. */
export function HistoryCharts({
  history,
  range,
  hasDepths = true,
}: {
  history: History | undefined;
  range: Range;
  /** Depths are sampled per queue. */
  hasDepths?: boolean;
}) {
  if (!history) {
    return (
      <div class="charts">
        {Array.from({ length: hasDepths ? 5 : 3 }, (_, each) => each).map((each) => (
          <section class="panel chart-bone" key={each} />
        ))}
      </div>
    );
  }
  const series = history.series[0];
  const times = timesOf(history);
  const runs = throughput(history, series);
  const span = `in the last ${wordsOf(range)}`;
  return (
    <div class="charts">
      <ChartPanel
        title="Throughput"
        class="chart-wide"
        times={times}
        lines={runs}
        scale={rateScale(unitOf(runs))}
        nothing={`Nothing ran ${span}.`}
        height={196}
        isStacked
      />
      <ChartPanel
        title="Waiting time"
        times={times}
        lines={percentiles(history, series, "wait")}
        scale={DURATIONS}
        nothing={`Nothing ran ${span}.`}
      />
      <ChartPanel
        title="Run time"
        times={times}
        lines={percentiles(history, series, "run")}
        scale={DURATIONS}
        nothing={`Nothing ran ${span}.`}
      />
      {hasDepths ? (
        <>
          <ChartPanel
            title="Depth"
            times={times}
            lines={depth(history)}
            scale={COUNTS}
            nothing={`No job was found waiting ${span}; it is looked at once a minute.`}
          />
          <ChartPanel
            title="Age of the oldest ready job"
            times={times}
            lines={oldest(history)}
            scale={DURATIONS}
            nothing={`No job was found waiting ${span}; it is looked at once a minute.`}
          />
        </>
      ) : null}
    </div>
  );
}
