// What is written at an axis: few ticks, at steps that people count in, all in one unit. Pure.

import { count, type RateUnit } from "./format.ts";

/** 1, 2, 5, 10, 20, 50 … from a power of ten up. */
function decimal(from: number, to: number): number[] {
  const steps: number[] = [];
  for (let power = from; power <= to; power += 1) {
    for (const digit of [1, 2, 5]) steps.push(Number(`${digit}e${power}`));
  }
  return steps;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** Steps of an axis of durations in seconds: 1, 2, 5, 10, 15, 30 of seconds and of minutes. */
export const DURATION_STEPS: number[] = [
  ...decimal(-6, -1),
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE),
  ...[1, 2, 3, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((each) => each * DAY),
];

/** Steps of an axis of counts: no half jobs. */
export const COUNT_STEPS: number[] = decimal(0, 12);
export const RATE_STEPS: number[] = decimal(-3, 9);
/** As many a minute: 0.6, 1.2, 3 … a minute would be 0.01, 0.02, 0.05 a second. */
export const MINUTE_RATE_STEPS: number[] = decimal(-2, 3).map((each) => each / 60);

const UNITS: [number, string][] = [
  [DAY, "d"],
  [HOUR, "h"],
  [MINUTE, "min"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
];

function short(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3 });
}

/** Durations in the unit of the largest: "0", "5 min", "10 min", "15 min". */
export function durationLabels(ticks: number[]): string[] {
  const most = Math.max(...ticks.map(Math.abs), 0);
  const [size, name] = UNITS.find(([each]) => most >= each) ?? UNITS.at(-1)!;
  return ticks.map((each) => (each === 0 ? "0" : `${short(each / size)} ${name}`));
}

export function countLabels(ticks: number[]): string[] {
  return ticks.map((each) => (Number.isInteger(each) ? count(each) : ""));
}

export function rateLabels(ticks: number[], unit: RateUnit): string[] {
  const factor = unit === "s" ? 1 : 60;
  return ticks.map((each) => (each === 0 ? "0" : `${short(each * factor)}/${unit}`));
}
