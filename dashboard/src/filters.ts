// Which jobs: the filter as the address has it, as the API takes it, and in words.

export const STATES = [
  "scheduled",
  "ready",
  "running",
  "retrying",
  "succeeded",
  "dead",
  "cancelled",
] as const;
export type State = (typeof STATES)[number];

export const TERMINAL: ReadonlySet<State> = new Set(["succeeded", "dead", "cancelled"]);

const NAMES = ["kind", "queue", "tenant", "key", "tag", "error", "fingerprint"] as const;

export interface Filter {
  state?: State;
  kind?: string;
  queue?: string;
  tenant?: string;
  key?: string;
  tag?: string;
  /** Text in the last error. */
  error?: string;
  /** Of dead jobs: what they died of. */
  fingerprint?: string;
  /** Created since: a time, or so long ago, as `15m`, `2h` or `7d`. */
  since?: string;
  until?: string;
}

const AGO = /^(\d+)([mhd])$/;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };

function isState(text: string): text is State {
  return (STATES as readonly string[]).includes(text);
}

function isMoment(text: string): boolean {
  return AGO.test(text) || !Number.isNaN(Date.parse(text));
}

/** Read the filter of an address; what is unknown or empty is left out. */
export function fromQuery(query: URLSearchParams): Filter {
  const filter: Filter = {};
  const state = query.get("state");
  if (state !== null && isState(state)) filter.state = state;
  for (const name of NAMES) {
    const value = query.get(name);
    if (value) filter[name] = value;
  }
  for (const name of ["since", "until"] as const) {
    const value = query.get(name);
    if (value && isMoment(value)) filter[name] = value;
  }
  return filter;
}

/** Write it into an address; always in the same order, so that the same filter is the same link. */
export function toQuery(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of ["state", ...NAMES, "since", "until"] as const) {
    const value = filter[name];
    if (value) query.set(name, value);
  }
  return query;
}

/** A moment of the filter as the API takes it: RFC 3339. */
export function moment(text: string, now: number): string {
  const ago = AGO.exec(text);
  if (!ago) return new Date(text).toISOString();
  const unit = UNIT_MS[ago[2] as keyof typeof UNIT_MS];
  return new Date(now - Number(ago[1]) * unit).toISOString();
}

/** The same filter with its times made absolute. */
export function resolved(filter: Filter, now: number): Filter {
  const made = { ...filter };
  if (made.since) made.since = moment(made.since, now);
  if (made.until) made.until = moment(made.until, now);
  return made;
}

export function isEmpty(filter: Filter): boolean {
  return toQuery(filter).size === 0;
}

/** "dead jobs of kind send_email in queue mail" */
export function inWords(filter: Filter): string {
  const parts = [filter.state ? `${filter.state} jobs` : "jobs"];
  if (filter.kind) parts.push(`of kind ${filter.kind}`);
  if (filter.queue) parts.push(`in queue ${filter.queue}`);
  if (filter.tenant) parts.push(`of tenant ${filter.tenant}`);
  if (filter.key) parts.push(`with key ${filter.key}`);
  if (filter.tag) parts.push(`tagged ${filter.tag}`);
  if (filter.error) parts.push(`whose error has “${filter.error}”`);
  if (filter.fingerprint) parts.push(`of the group ${filter.fingerprint}`);
  if (filter.since) parts.push(`created ${span(filter.since, "in the last", "since")}`);
  if (filter.until) parts.push(`created ${span(filter.until, "more than", "before")}`);
  return parts.join(" ");
}

function span(text: string, ago: string, since: string): string {
  const found = AGO.exec(text);
  if (!found) return `${since} ${text}`;
  const names = { m: "minute", h: "hour", d: "day" };
  const unit = names[found[2] as keyof typeof names];
  return `${ago} ${found[1] === "1" ? unit : `${found[1]} ${unit}s`}`;
}

// What is typed into the search box: `state:dead kind:"send email" word` and so on.
const TOKEN = /(\w+):(?:"([^"]*)"|(\S+))|"([^"]*)"|(\S+)/g;
export const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Read a typed search: words without a name are looked for in the error. */
export function fromSearch(text: string): Filter {
  const query = new URLSearchParams();
  const words: string[] = [];
  for (const [, name, quoted, value, phrase, word] of text.matchAll(TOKEN)) {
    if (name !== undefined && isName(name)) query.set(name, quoted ?? value ?? "");
    else words.push(phrase ?? word ?? `${name}:${quoted ?? value}`);
  }
  if (words.length) query.set("error", words.join(" "));
  return fromQuery(query);
}

function isName(name: string): boolean {
  return ["state", "since", "until", ...NAMES].includes(name);
}

/** The text that `fromSearch` reads as this filter. */
export function toSearch(filter: Filter): string {
  return [...toQuery(filter)]
    .map(([name, value]) => (/[\s"]/.test(value) ? `${name}:"${value}"` : `${name}:${value}`))
    .join(" ");
}
