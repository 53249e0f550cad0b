// Lines over time, by uPlot. Colours are those of the page, also after it has turned dark.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { isDark } from "../theme.ts";

export interface Line {
  label: string;
  values: (number | null)[];
  /** The name of a colour of the page: `--accent`. */
  color: string;
  isFilled?: boolean;
  dash?: number[];
}

interface Props {
  /** Seconds since 1970. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  label: string;
  height?: number;
}

export function Chart(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const shape = `${props.lines.map((each) => each.label).join()} ${isDark.value}`;

  useEffect(() => {
    const element = place.current!;
    const made = new uPlot(options(props, element), dataOf(props), element);
    plot.current = made;
    const watcher = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height: props.height ?? 180 });
    });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(dataOf(props)), [props.times, props.lines]);
  return (
    <figure class="chart" role="img" aria-label={`${props.label}: ${spoken(props)}`}>
      <div ref={place} class="chart-place" style={{ minHeight: `${props.height ?? 180}px` }} />
    </figure>
  );
}

function dataOf({ times, lines }: Props): uPlot.AlignedData {
  return [times, ...lines.map((each) => each.values)];
}

function spoken({ lines, format }: Props): string {
  return lines
    .map((line) => {
      const last = line.values.findLast((each) => each !== null);
      return `${line.label} ${last === undefined || last === null ? "none" : format(last)}`;
    })
    .join(", ");
}

function options(props: Props, element: HTMLElement): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const font = `11px ${color("--sans")}`;
  const axis = { stroke: color("--soft"), font, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: props.height ?? 180,
    padding: [8, 26, 0, 0],
    cursor: {
      sync: { key: "rowlock" },
      y: false,
      points: { size: 6 },
      drag: { setScale: false, x: false, y: false },
    },
    legend: { live: true },
    scales: {
      x: { time: true },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), top(high)] },
    },
    axes: [
      { ...axis, grid: { show: false }, values: clockValues, space: 64, size: 28 },
      {
        ...axis,
        grid: { stroke: color("--line"), width: 1 },
        size: 58,
        space: 34,
        values: (_, ticks) => ticks.map((each) => props.format(each)),
      },
    ],
    series: [
      { value: (_, at) => (at === null ? "" : clock(at)) },
      ...props.lines.map((line): uPlot.Series => ({
        label: line.label,
        stroke: color(line.color),
        width: 1.75,
        // Where nobody looked, nobody knows: a line over it would be a guess.
        spanGaps: false,
        ...(line.isFilled ? { fill: `${color(line.color)}22` } : {}),
        ...(line.dash ? { dash: line.dash } : {}),
        points: { show: false },
        // Without a cursor, the last value that there is.
        value: (plot, value, place, at) => {
          const shown = at == null ? lastOf(plot.data[place]!) : value;
          return shown == null ? "–" : props.format(shown);
        },
      })),
    ],
  };
}

function lastOf(values: ArrayLike<number | null | undefined>): number | null | undefined {
  for (let place = values.length - 1; place >= 0; place -= 1) {
    if (values[place] != null) return values[place];
  }
  return null;
}

function top(high: number | null | undefined): number {
  return high ? high * 1.1 : 1;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

function clock(at: number): string {
  return CLOCK_SECONDS.format(at * 1000);
}

function clockValues(_: uPlot, ticks: number[], __: number, ___: number, step: number): string[] {
  const format = step < 60 ? CLOCK_SECONDS : CLOCK;
  return ticks.map((each) => format.format(each * 1000));
}
