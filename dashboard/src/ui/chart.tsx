// Lines or bars over time, by uPlot. Colours are those of the page, also after it has turned dark.
//
// Nothing is drawn that nobody measured: gaps stay open, a sample between two gaps is a dot, and
// the legend has the values of one step: that under the cursor, or the last one.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { lonely, stacked } from "../series.ts";
import { isDark } from "../theme.ts";
import { Panel } from "./basics.tsx";

export interface Line {
  label: string;
  values: (number | null)[];
  /** The name of a colour of the page: `--accent`. */
  color: string;
  isFilled?: boolean;
  dash?: number[];
}

/** What the numbers of a chart are, and how its axis counts. */
export interface Scale {
  format: (value: number) => string;
  labels: (ticks: number[]) => string[];
  steps: number[];
}

interface Props {
  title: string;
  /** Seconds since 1970: when each step begins. */
  times: number[];
  lines: Line[];
  scale: Scale;
  /** Said instead of an empty grid. */
  nothing: string;
  height?: number;
  /** Bars of each step, one upon the other, instead of lines. */
  isStacked?: boolean;
  class?: string;
}

/** A panel with a chart; its legend is the panel's head. */
export function ChartPanel(props: Props) {
  const [place, setPlace] = useState<number>();
  const isEmpty = useMemo(
    () => !props.lines.some((line) => line.values.some((each) => each !== null && each !== 0)),
    [props.lines],
  );
  return (
    <Panel
      title={props.title}
      class={`chart-panel ${props.class ?? ""}`}
      aside={<Legend props={props} place={place} />}
    >
      {isEmpty ? (
        <p class="chart-nothing" style={{ height: `${props.height ?? HEIGHT}px` }}>
          {props.nothing}
        </p>
      ) : (
        <Plot props={props} setPlace={setPlace} />
      )}
    </Panel>
  );
}

const HEIGHT = 172;

function Legend({ props, place }: { props: Props; place: number | undefined }) {
  const { times, lines, scale } = props;
  const shown = place ?? times.length - 1;
  return (
    <span class="legend">
      <span class="legend-time">
        {times[shown] === undefined ? "" : momentOf(times[shown], times)}
      </span>
      {lines.map((line) => {
        const value = line.values[shown];
        return (
          <span class="legend-item" key={line.label}>
            <span class={`legend-dot dot${line.color}`} aria-hidden="true" />
            {line.label} <b>{value == null ? "–" : scale.format(value)}</b>
          </span>
        );
      })}
    </span>
  );
}

function Plot({
  props,
  setPlace,
}: {
  props: Props;
  setPlace: (place: number | undefined) => void;
}) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const current = useRef(props);
  current.current = props;
  const shape = `${props.lines.map((each) => each.label).join()} ${isDark.value}`;
  const height = props.height ?? HEIGHT;

  useEffect(() => {
    const place = element.current!;
    const drawn = new uPlot(options(current, place, setPlace), dataOf(props), place);
    plot.current = drawn;
    const watcher = new ResizeObserver(() => {
      drawn.setSize({ width: place.clientWidth, height });
    });
    watcher.observe(place);
    return () => {
      watcher.disconnect();
      drawn.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(dataOf(props)), [props.times, props.lines]);
  return (
    <figure class="chart" role="img" aria-label={`${props.title}: ${spoken(props)}`}>
      <div ref={element} class="chart-place" style={{ minHeight: `${height}px` }} />
    </figure>
  );
}

function dataOf({ times, lines, isStacked }: Props): uPlot.AlignedData {
  if (!isStacked) return [times, ...lines.map((each) => each.values)];
  return [times, ...stacked(lines.map((each) => each.values)).reverse()];
}

function spoken({ lines, scale }: Props): string {
  return lines
    .map((line) => {
      const last = line.values.at(-1);
      return `${line.label} ${last == null ? "none" : scale.format(last)}`;
    })
    .join(", ");
}

function options(
  current: { current: Props },
  element: HTMLElement,
  setPlace: (place: number | undefined) => void,
): uPlot.Options {
  const props = current.current;
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const font = `11px ${color("--sans")}`;
  const axis = { stroke: color("--soft"), font, ticks: { show: false } };
  const step = (props.times[1] ?? 60) - (props.times[0] ?? 0);
  const series = props.isStacked ? [...props.lines].reverse() : props.lines;
  return {
    width: element.clientWidth,
    height: props.height ?? HEIGHT,
    padding: [10, 30, 0, 0],
    cursor: {
      sync: { key: "rowlock" },
      y: false,
      points: { size: 6, show: !props.isStacked },
      drag: { setScale: false, x: false, y: false },
    },
    legend: { show: false },
    hooks: { setCursor: [(plot) => setPlace(plot.cursor.idx ?? undefined)] },
    scales: {
      x: {
        time: true,
        ...(props.isStacked
          ? {
              range: (_: uPlot, low: number, high: number) =>
                [low, high + step] as [number, number],
            }
          : {}),
      },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), top(high)] },
    },
    axes: [
      { ...axis, grid: { show: false }, values: clockValues, space: 64, size: 26 },
      {
        ...axis,
        grid: { stroke: color("--line"), width: 1 },
        size: axisSize,
        gap: 6,
        space: 32,
        incrs: props.scale.steps,
        values: (_, ticks) => current.current.scale.labels(ticks),
      },
    ],
    series: [
      {},
      ...series.map((line): uPlot.Series => {
        const stroke = color(line.color);
        if (props.isStacked) {
          return {
            label: line.label,
            fill: stroke,
            paths: uPlot.paths.bars!({ size: [0.72, 22], align: 1, radius: 0.15 }),
            points: { show: false },
          };
        }
        return {
          label: line.label,
          stroke,
          width: 1.75,
          // Where nobody looked, nobody knows: a line over it would be a guess.
          spanGaps: false,
          ...(line.isFilled ? { fill: `${stroke}22` } : {}),
          ...(line.dash ? { dash: line.dash } : {}),
          points: {
            show: true,
            size: 5,
            fill: stroke,
            filter: (plot, place) => lonely(plot.data[place]!),
          },
        };
      }),
    ],
  };
}

/** As wide as the longest label: a label that is cut is read as another number. */
function axisSize(plot: uPlot, values: string[] | null, place: number, cycle: number): number {
  const axis = plot.axes[place] as uPlot.Axis & { _size?: number; font?: unknown };
  // A second look with other labels would go back and forth.
  if (cycle > 1 && axis._size) return axis._size;
  const longest = (values ?? []).reduce((a, b) => (b.length > a.length ? b : a), "");
  const [font] = axis.font as unknown as string[];
  if (font) plot.ctx.font = font;
  const width = plot.ctx.measureText(longest).width / devicePixelRatio;
  return Math.ceil(width) + 14;
}

function top(high: number | null | undefined): number {
  return high ? high * 1.1 : 1;
}

const TIME: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const CLOCK = new Intl.DateTimeFormat("en-GB", TIME);
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", { ...TIME, second: "2-digit" });
const CLOCK_DAY = new Intl.DateTimeFormat("en-GB", { ...TIME, weekday: "short" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
const DAY_SECONDS = 86_400;

function momentOf(at: number, times: number[]): string {
  const length = times.at(-1)! - times[0]!;
  const step = (times[1] ?? at) - times[0]!;
  const format = length >= DAY_SECONDS ? CLOCK_DAY : step < 60 ? CLOCK_SECONDS : CLOCK;
  return format.format(at * 1000);
}

function clockValues(_: uPlot, ticks: number[], __: number, ___: number, step: number): string[] {
  const format = step < 60 ? CLOCK_SECONDS : step >= DAY_SECONDS ? DAY : CLOCK;
  return ticks.map((each) => format.format(each * 1000));
}
