// How numbers, durations and times are told to people. Pure: `now` is always given.

const GROUPS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12,345; beyond a million 1.2 M, so that columns keep their width. */
export function count(value: number): string {
  if (value >= 1e9) return `${trimmed(value / 1e9)} B`;
  if (value >= 1e6) return `${trimmed(value / 1e6)} M`;
  return GROUPS.format(value);
}

export interface Counted {
  value: number;
  exact: boolean;
}

/** A count; one that is not exact is a lower bound: 10,000+. */
export function counted(value: Counted): string {
  return value.exact ? count(value.value) : `${count(value.value)}+`;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A rate is read beside others: they all have the unit of the largest. */
export type RateUnit = "s" | "min";

export function rateUnit(perSecond: Iterable<number | null | undefined>): RateUnit {
  let most = 0;
  for (const each of perSecond) most = Math.max(most, each ?? 0);
  return most >= 1 || most === 0 ? "s" : "min";
}

export function rate(perSecond: number, unit: RateUnit = rateUnit([perSecond])): string {
  const value = unit === "s" ? perSecond : perSecond * 60;
  if (value > 0 && value < 0.01) return `<0.01/${unit}`;
  return `${value >= 100 ? count(Math.round(value)) : trimmed(value)}/${unit}`;
}

export function share(part: number, whole: number): string {
  if (whole === 0) return "–";
  const percent = (part / whole) * 100;
  if (percent === 0) return "0%";
  return percent < 0.1 ? "<0.1%" : `${trimmed(percent)}%`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place ? trimmed(value) : value} ${units[place]}`;
}

function trimmed(value: number): string {
  const text = value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** 340 ms, 2.1 s, 4 min 5 s, 3 h 12 min, 6 d 2 h: two parts at most. */
export function duration(seconds: number): string {
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 0.9995) return `${trimmed(Math.round(seconds * 1e4) / 10)} ms`;
  if (seconds < 59.95) return `${trimmed(Math.round(seconds * 10) / 10)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return parts(whole, 60, "min", 1, "s");
  if (whole < 86400) return parts(whole, 3600, "h", 60, "min");
  return parts(whole, 86400, "d", 3600, "h");
}

function parts(whole: number, big: number, bigName: string, small: number, name: string): string {
  const rest = Math.floor((whole % big) / small);
  const first = `${Math.floor(whole / big)} ${bigName}`;
  return rest ? `${first} ${rest} ${name}` : first;
}

/** "12 s ago", "in 3 min": one part, since it is read at a glance. */
export function relative(at: number, now: number): string {
  const seconds = (at - now) / 1000;
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const text = coarse(size);
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}

export function coarse(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const DAY_MS = 86_400_000;

/** The parts of a time in a zone; the reader's, if none is given. */
function partsOf(at: Date, options: Intl.DateTimeFormatOptions, timeZone?: string) {
  const zone = timeZone === undefined ? {} : { timeZone };
  const format = new Intl.DateTimeFormat("en-CA", { ...options, ...zone, hourCycle: "h23" });
  const found = format.formatToParts(at);
  return (type: string) => found.find((each) => each.type === type)?.value ?? "";
}

const FULL: Intl.DateTimeFormatOptions = {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  timeZoneName: "short",
};

/** The exact time in the reader's zone, with the zone and to the millisecond. */
export function exact(at: Date, timeZone?: string): string {
  const part = partsOf(at, FULL, timeZone);
  const day = `${part("year")}-${part("month")}-${part("day")}`;
  const time = `${part("hour")}:${part("minute")}:${part("second")}`;
  return `${day} ${time}.${part("fractionalSecond")} ${part("timeZoneName")}`;
}

/**
 * The time itself, as short as it can be told apart: 14:03:07 today, "Tue 02:30" within six days,
 * "Mar 3, 02:30" within the year, with the year otherwise.
 */
export function clock(at: number, now: number, timeZone?: string): string {
  const date = new Date(at);
  const part = partsOf(
    date,
    { ...FULL, month: "short", day: "numeric", weekday: "short" },
    timeZone,
  );
  const today = partsOf(new Date(now), { ...FULL, month: "short", day: "numeric" }, timeZone);
  const isSame = (type: string) => part(type) === today(type);
  const minute = `${part("hour")}:${part("minute")}`;
  if (isSame("year") && isSame("month") && isSame("day")) return `${minute}:${part("second")}`;
  const weekday = part("weekday").replace(".", "");
  if (Math.abs(at - now) < 6 * DAY_MS) return `${weekday} ${minute}`;
  const day = `${part("month").replace(".", "")} ${part("day")}`;
  return isSame("year") ? `${day}, ${minute}` : `${day} ${part("year")}, ${minute}`;
}

/** The zone of all times of the page: "Europe/Berlin, UTC+1". */
export function zone(at: Date, timeZone?: string): string {
  const name = timeZone ?? new Intl.DateTimeFormat().resolvedOptions().timeZone;
  const offset = new Intl.DateTimeFormat("en", { timeZone: name, timeZoneName: "shortOffset" })
    .formatToParts(at)
    .find((each) => each.type === "timeZoneName")!
    .value.replace("GMT", "UTC");
  return name === "UTC" || name === offset ? "UTC" : `${name}, ${offset}`;
}

const IN_UTC = /(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}) UTC/g;

/** The server writes times in UTC; a page has one zone. */
export function inZone(text: string, now: number, timeZone?: string): string {
  return text.replace(IN_UTC, (_, day: string, time: string) =>
    clock(Date.parse(`${day}T${time}Z`), now, timeZone),
  );
}

/** What is left of an id when there is little room: its random end tells jobs apart. */
export function shortId(id: string): string {
  return id.length > 12 ? `…${id.slice(-8)}` : id;
}

/** "12", "12s", "5 min", "1.5h", "2d" as seconds; undefined if it is none of these. */
export function seconds(text: string): number | undefined {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?\s*$/.exec(text);
  if (!found) return undefined;
  const unit = { s: 1, sec: 1, m: 60, min: 60, h: 3600, d: 86400 }[found[2] ?? "s"] ?? 1;
  return Number(found[1]) * unit;
}
