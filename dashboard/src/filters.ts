// Which jobs: the filter as the address has it, as it is typed, as the API takes it, and in words.
//
// 1. What is not understood is a fault, never left out: a list without a filter that somebody
//    typed would show, and act on, jobs that they did not mean.
// 2. The API takes one value a name. A list of values is several queries, whose pages are merged;
//    values that are ruled out are dropped from pages, but for states, which are few.

export const STATES = [
  "waiting",
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

/** Names that take a list of values, and `-` to rule values out. */
const LISTED = ["state", "kind", "queue", "tenant", "key", "tag"] as const;
const SINGLE = ["error", "fingerprint", "since", "until"] as const;
export const NAMES = [...LISTED, ...SINGLE] as const;
type Listed = (typeof LISTED)[number];
export type Name = (typeof NAMES)[number];

type Values = Partial<Record<Listed, string[]>>;

export interface Filter {
  /** Any of these values, of each name. */
  is: Values;
  not: Values;
  /** Text in the errors. */
  error?: string;
  /** Of dead jobs: what they died of. */
  fingerprint?: string;
  /** Created since: a time, or how long ago, as `15m`, `2h` or `7d`. */
  since?: string;
  until?: string;
}

/** What the API takes: one value a name. */
export interface ApiFilter {
  state?: State;
  kind?: string;
  queue?: string;
  tenant?: string;
  key?: string;
  tag?: string;
  error?: string;
  fingerprint?: string;
  since?: string;
  until?: string;
}

export interface Understood {
  filter: Filter;
  /** What is wrong with it, and what to write instead. Empty: nothing. */
  faults: string[];
}

/** How many queries one list may be. */
export const VARIANTS_MAX = 8;

const AGO = /^(\d+)([mhd])$/;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const CALENDAR =
  /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$/;

function isMoment(text: string): boolean {
  return AGO.test(text) || (CALENDAR.test(text) && !Number.isNaN(Date.parse(text)));
}

/** A filter of single values, as links have them. */
export function filterOf(values: ApiFilter): Filter {
  const filter: Filter = { is: {}, not: {} };
  for (const name of LISTED) if (values[name]) filter.is[name] = [values[name]];
  for (const name of SINGLE) if (values[name]) filter[name] = values[name];
  return filter;
}

/** The same filter with other values of one name; none if `values` is empty. */
export function withValues(filter: Filter, name: Listed, values: string[]): Filter {
  const is = { ...filter.is };
  const not = { ...filter.not };
  delete not[name];
  if (values.length) is[name] = values;
  else delete is[name];
  return { ...filter, is, not };
}

/** The value of a name that has exactly one, and rules none out. */
export function only(filter: Filter, name: Listed): string | undefined {
  const values = filter.is[name];
  return values?.length === 1 && !filter.not[name] ? values[0] : undefined;
}

/** Read the filter of an address. `search` is a typed one that was not understood. */
export function fromQuery(query: URLSearchParams): Understood {
  const typed = query.get("search");
  if (typed !== null) return fromSearch(typed);
  const terms: Term[] = [];
  for (const name of new Set(query.keys())) {
    const isNot = name.startsWith("-");
    const values = query.getAll(name);
    terms.push({ name: isNot ? name.slice(1) : name, isNot, values });
  }
  return understand(terms);
}

/** Write it into an address; always in the same order, so that the same filter is the same link. */
export function toQuery(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  for (const { name, isNot, values } of termsOf(filter)) {
    for (const value of values) query.append(isNot ? `-${name}` : name, value);
  }
  return query;
}

interface Term {
  name: string;
  isNot: boolean;
  values: string[];
}

function termsOf(filter: Filter): Term[] {
  const terms: Term[] = [];
  for (const name of LISTED) {
    if (filter.is[name]) terms.push({ name, isNot: false, values: filter.is[name] });
    if (filter.not[name]) terms.push({ name, isNot: true, values: filter.not[name] });
  }
  for (const name of SINGLE) {
    if (filter[name]) terms.push({ name, isNot: false, values: [filter[name]] });
  }
  return terms;
}

function understand(terms: Term[]): Understood {
  const filter: Filter = { is: {}, not: {} };
  const faults: string[] = [];
  for (const term of terms) {
    const fault = take(filter, term);
    if (fault) faults.push(fault);
  }
  if (!faults.length) {
    if (filter.fingerprint && only(filter, "state") !== "dead")
      faults.push("A fingerprint is of dead jobs: add state:dead.");
    const number = combinations(filter);
    if (number > VARIANTS_MAX)
      faults.push(`That is ${number} searches at once, and ${VARIANTS_MAX} are possible.`);
  }
  return { filter, faults };
}

/** Put a term into the filter, or say why it can't be. */
function take(filter: Filter, { name, isNot, values }: Term): string | undefined {
  const given = values.filter(Boolean);
  if ((SINGLE as readonly string[]).includes(name)) {
    const single = name as (typeof SINGLE)[number];
    if (isNot) return `${name} can't be ruled out: “-” works with ${LISTED.join(", ")}.`;
    if (filter[single] !== undefined) return `${name} is given twice.`;
    if (given.length > 1) return `${name} takes one value.`;
    const value = given[0];
    if (value === undefined) return `${name}: has no value.`;
    if ((single === "since" || single === "until") && !isMoment(value))
      return `${value} is not a time: write 15m, 2h, 7d or 2030-01-31.`;
    filter[single] = value;
    return undefined;
  }
  if (!(LISTED as readonly string[]).includes(name)) {
    const close = nearest(name, NAMES);
    const hint = close ? ` Did you mean ${close}?` : "";
    return `${name} is not a filter.${hint} To look for that text in errors, put it in quotes.`;
  }
  const listed = name as Listed;
  const kept = isNot ? filter.not : filter.is;
  if (kept[listed]) return `${name} is given twice: write ${name}:a,b for either.`;
  if (!given.length) return `${name}: has no value.`;
  if (listed === "state") {
    const unknown = given.find((each) => !isState(each));
    if (unknown !== undefined) {
      const close = nearest(unknown, STATES);
      const hint = close ? `Did you mean ${close}?` : `There are ${STATES.join(", ")}.`;
      return `${unknown} is not a state. ${hint}`;
    }
  }
  kept[listed] = given;
  return undefined;
}

function isState(text: string): text is State {
  return (STATES as readonly string[]).includes(text);
}

/** The name that a slip of the keyboard may have meant. */
function nearest(text: string, known: readonly string[]): string | undefined {
  const found = known
    .map((each) => ({ each, distance: distance(text.toLowerCase(), each) }))
    .sort((a, b) => a.distance - b.distance)[0]!;
  return found.distance <= Math.max(1, Math.floor(text.length / 3)) ? found.each : undefined;
}

function distance(a: string, b: string): number {
  if (a.length > 20) return a.length;
  let row = Array.from({ length: b.length + 1 }, (_, place) => place);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const swap = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, swap));
    }
    row = next;
  }
  return row[b.length]!;
}

// As the API takes it.

function statesOf(filter: Filter): (string | undefined)[] {
  const ruledOut = new Set(filter.not.state);
  if (!filter.is.state && !ruledOut.size) return [undefined];
  return (filter.is.state ?? STATES).filter((each) => !ruledOut.has(each));
}

function combinations(filter: Filter): number {
  const counts = LISTED.filter((name) => name !== "state").map(
    (name) => filter.is[name]?.length ?? 1,
  );
  return counts.reduce((product, each) => product * each, statesOf(filter).length);
}

/** The queries whose answers together are those that fit, but for values that are ruled out. */
export function variants(filter: Filter): ApiFilter[] {
  let found: ApiFilter[] = statesOf(filter).map((state) =>
    state ? { state: state as State } : {},
  );
  for (const name of LISTED) {
    if (name === "state") continue;
    const values = filter.is[name];
    if (!values) continue;
    found = found.flatMap((each) => values.map((value) => ({ ...each, [name]: value })));
  }
  const single: ApiFilter = {};
  for (const name of SINGLE) if (filter[name]) single[name] = filter[name];
  return found.map((each) => ({ ...each, ...single }));
}

interface Fields {
  kind: string;
  queue: string;
  tenant: string | null;
  key: string | null;
  tags: string[];
}

/** Whether a job has none of the values that are ruled out. */
export function admits(filter: Filter, job: Fields): boolean {
  const isOut = (name: Listed, value: string | null) =>
    value !== null && (filter.not[name]?.includes(value) ?? false);
  return !(
    isOut("kind", job.kind) ||
    isOut("queue", job.queue) ||
    isOut("tenant", job.tenant) ||
    isOut("key", job.key) ||
    job.tags.some((tag) => isOut("tag", tag))
  );
}

/** The one query that is this filter, if there is one: for counts, and for work on all that fit. */
export function asOne(filter: Filter): ApiFilter | undefined {
  const isDropping = LISTED.some((name) => name !== "state" && filter.not[name]);
  const found = variants(filter);
  return found.length === 1 && !isDropping ? found[0] : undefined;
}

/** A moment of the filter as the API takes it: RFC 3339. */
export function moment(text: string, now: number): string {
  const ago = AGO.exec(text);
  if (!ago) return new Date(text).toISOString();
  const unit = UNIT_MS[ago[2] as keyof typeof UNIT_MS];
  return new Date(now - Number(ago[1]) * unit).toISOString();
}

/** The same query with its times made absolute. */
export function resolved(filter: ApiFilter, now: number): ApiFilter {
  const found = { ...filter };
  if (found.since) found.since = moment(found.since, now);
  if (found.until) found.until = moment(found.until, now);
  return found;
}

export function isEmpty(filter: Filter): boolean {
  return toQuery(filter).size === 0;
}

// In words.

/** "dead jobs of kind send_email in queue mail" */
export function inWords(filter: Filter): string {
  const either = (values: string[]) => values.join(" or ");
  const { is, not } = filter;
  const parts = [is.state ? `${either(is.state)} jobs` : "jobs"];
  if (is.kind) parts.push(`of kind ${either(is.kind)}`);
  if (is.queue) parts.push(`in queue ${either(is.queue)}`);
  if (is.tenant) parts.push(`of tenant ${either(is.tenant)}`);
  if (is.key) parts.push(`with key ${either(is.key)}`);
  if (is.tag) parts.push(`tagged ${either(is.tag)}`);
  if (filter.error) parts.push(`whose error has “${filter.error}”`);
  if (filter.fingerprint) parts.push(`of the group ${filter.fingerprint}`);
  if (filter.since) parts.push(`created ${span(filter.since, "in the last", "", "since")}`);
  if (filter.until) parts.push(`created ${span(filter.until, "more than", " ago", "before")}`);
  for (const name of LISTED) {
    if (not[name]) parts.push(`but not ${name} ${either(not[name])}`);
  }
  return parts.join(" ");
}

function span(text: string, before: string, after: string, since: string): string {
  const found = AGO.exec(text);
  if (!found) return `${since} ${text}`;
  const names = { m: "minute", h: "hour", d: "day" };
  const unit = names[found[2] as keyof typeof names];
  const number =
    found[1] === "1" && !after ? unit : `${found[1]} ${unit}${found[1] === "1" ? "" : "s"}`;
  return `${before} ${number}${after}`;
}

// As it is typed: `state:dead,cancelled kind:"send email" -queue:bulk word` and so on.

const QUOTED = String.raw`"(?:[^"\\]|\\.)*"?`;
const TOKEN = new RegExp(String.raw`(-?)(\w+):((?:${QUOTED}|[^\s"])*)|(${QUOTED})|(\S+)`, "g");
const VALUE = new RegExp(`((?:${QUOTED}|[^,"])+)`, "g");
export const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

function unquoted(text: string): string {
  return text.replace(new RegExp(QUOTED, "g"), (found) =>
    found
      .slice(1, found.length > 1 && found.endsWith('"') ? -1 : undefined)
      .replace(/\\(.)/g, "$1"),
  );
}

/** Read a typed search: words without a name are looked for in the errors. */
export function fromSearch(text: string): Understood {
  const terms: Term[] = [];
  const words: string[] = [];
  for (const [whole, minus, name, value = "", phrase, word] of text.matchAll(TOKEN)) {
    if (phrase !== undefined) words.push(unquoted(phrase));
    else if (name === undefined) words.push(word ?? whole);
    else if (value.startsWith("//")) words.push(whole);
    else {
      const values = [...value.matchAll(VALUE)].map((each) => unquoted(each[0]));
      const isListed = (LISTED as readonly string[]).includes(name);
      terms.push({ name, isNot: minus === "-", values: isListed ? values : [unquoted(value)] });
    }
  }
  if (words.length) terms.push({ name: "error", isNot: false, values: [words.join(" ")] });
  return understand(terms);
}

/** The text that `fromSearch` reads as this filter. */
export function toSearch(filter: Filter): string {
  const quote = (value: string) =>
    /[\s",\\]/.test(value) ? `"${value.replace(/[\\"]/g, "\\$&")}"` : value;
  return termsOf(filter)
    .map(({ name, isNot, values }) => `${isNot ? "-" : ""}${name}:${values.map(quote).join(",")}`)
    .join(" ");
}
