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

/** Jobs a second or a minute, whichever can be read. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond >= 100) return `${count(Math.round(perSecond))}/s`;
  if (perSecond >= 1) return `${trimmed(perSecond)}/s`;
  return `${trimmed(perSecond * 60)}/min`;
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

/** The exact time in the reader's zone, with the zone and to the millisecond. */
export function exact(at: Date, timeZone?: string): string {
  const options: Intl.DateTimeFormatOptions = {
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
    timeZoneName: "short",
  };
  if (timeZone !== undefined) options.timeZone = timeZone;
  const found = new Intl.DateTimeFormat("en-CA", options).formatToParts(at);
  const part = (type: string) => found.find((each) => each.type === type)?.value ?? "";
  const day = `${part("year")}-${part("month")}-${part("day")}`;
  const time = `${part("hour")}:${part("minute")}:${part("second")}`;
  return `${day} ${time}.${part("fractionalSecond")} ${part("timeZoneName")}`;
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
