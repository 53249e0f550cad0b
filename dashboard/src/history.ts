// What the store remembers of the last minutes, hours and days, as lines to be drawn.

import { get, type Schemas } from "./api.ts";
import {
  COUNT_STEPS,
  countLabels,
  DURATION_STEPS,
  durationLabels,
  MINUTE_RATE_STEPS,
  RATE_STEPS,
  rateLabels,
} from "./axis.ts";
import { count, duration, rate, type RateUnit, rateUnit } from "./format.ts";
import type { Line, Scale } from "./ui/chart.tsx";

export type History = Schemas["History"];
export type Series = Schemas["HistorySeries"];
export type Range = "5m" | "1h" | "24h" | "7d";

/** `text` stands on a button, `words` in a sentence: "in the last hour". */
export const RANGES: { range: Range; text: string; words: string; everyMs: number }[] = [
  { range: "5m", text: "5 min", words: "5 minutes", everyMs: 10_000 },
  { range: "1h", text: "1 h", words: "hour", everyMs: 20_000 },
  { range: "24h", text: "24 h", words: "24 hours", everyMs: 60_000 },
  { range: "7d", text: "7 d", words: "7 days", everyMs: 300_000 },
];

export const SECONDS: Record<Range, number> = {
  "5m": 300,
  "1h": 3600,
  "24h": 86_400,
  "7d": 604_800,
};

export function wordsOf(range: Range): string {
  return RANGES.find((each) => each.range === range)!.words;
}

export function isRange(text: string | null): text is Range {
  return RANGES.some((each) => each.range === text);
}

export function everyMs(range: Range): number {
  return RANGES.find((each) => each.range === range)!.everyMs;
}

export async function loadHistory(
  range: Range,
  query: { kind?: string; queue?: string; by?: string },
  signal: AbortSignal,
): Promise<History> {
  return get<History>("v1/history", { range, ...query }, signal);
}

export const DURATIONS: Scale = {
  format: duration,
  labels: durationLabels,
  steps: DURATION_STEPS,
};
export const COUNTS: Scale = { format: count, labels: countLabels, steps: COUNT_STEPS };

/** One unit for the axis, the legend and the tile. */
export function rateScale(unit: RateUnit): Scale {
  return {
    format: (value) => rate(value, unit),
    labels: (ticks) => rateLabels(ticks, unit),
    steps: unit === "s" ? RATE_STEPS : MINUTE_RATE_STEPS,
  };
}

export function unitOf(lines: Line[]): RateUnit {
  return rateUnit(lines.flatMap((each) => each.values));
}

/** The times, but for the step that is going on: its sums are not all there yet. */
export function timesOf(history: History): number[] {
  return history.times.slice(0, -1).map((each) => Date.parse(each) / 1000);
}

function cut<T>(values: T[]): T[] {
  return values.slice(0, -1);
}

const NO_RUNS: number[] = [];

export function throughput(history: History, series: Series | undefined): Line[] {
  const empty = cut(history.times).map(() => 0);
  const rates = (...counts: number[][]) =>
    series
      ? cut(counts[0] ?? NO_RUNS).map(
          (_, place) => counts.reduce((sum, each) => sum + each[place]!, 0) / history.step,
        )
      : empty;
  return [
    {
      label: "succeeded",
      values: series ? rates(series.succeeded) : empty,
      color: "--good",
    },
    {
      label: "failed",
      values: series ? rates(series.retrying, series.dead) : empty,
      color: "--bad",
    },
  ];
}

export function percentiles(
  history: History,
  series: Series | undefined,
  of: "run" | "wait",
): Line[] {
  const none = cut(history.times).map(() => null);
  const line = (share: 50 | 95 | 99) => (series ? cut(series[`${of}_p${share}`]) : none);
  return [
    { label: "p50", values: line(50), color: "--accent" },
    { label: "p95", values: line(95), color: "--violet", dash: [6, 3] },
    { label: "p99", values: line(99), color: "--warn", dash: [2, 3] },
  ];
}

export function depth(history: History): Line[] {
  const all = history.depths.find((each) => each.queue === null);
  const none = cut(history.times).map(() => null);
  return [
    { label: "ready", values: all ? cut(all.ready) : none, color: "--calm", isFilled: true },
    { label: "running", values: all ? cut(all.running) : none, color: "--accent" },
    { label: "retrying", values: all ? cut(all.retrying) : none, color: "--warn", dash: [6, 3] },
  ];
}

export function oldest(history: History): Line[] {
  const all = history.depths.find((each) => each.queue === null);
  const values = all
    ? cut(all.oldest_ready_seconds).map(
        (each, place) => each ?? (all.ready[place] === null ? null : 0),
      )
    : cut(history.times).map(() => null);
  return [{ label: "oldest ready", values, color: "--violet", isFilled: true }];
}

const YOUNG_STEPS = 6;

/** Whether jobs have run in the last minutes only: an hour of it would be an empty chart. */
export function isYoung(history: History): boolean {
  const series = history.series[0];
  if (!series) return false;
  const runs = series.succeeded.map((each, place) => each + (series.retrying[place] ?? 0));
  const first = runs.findIndex((each) => each > 0);
  return history.step === 60 && first >= 0 && first >= runs.length - YOUNG_STEPS;
}

/** Runs that succeeded or failed. */
export function runsOf(series: Series | undefined): number {
  const { succeeded, retrying, dead } = totalRuns(series);
  return succeeded + retrying + dead;
}

export function totalRuns(series: Series | undefined): {
  succeeded: number;
  retrying: number;
  dead: number;
} {
  const total = series?.total;
  return {
    succeeded: total?.succeeded ?? 0,
    retrying: total?.retrying ?? 0,
    dead: total?.dead ?? 0,
  };
}
