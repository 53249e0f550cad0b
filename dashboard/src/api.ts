// Calls of the HTTP API, and what goes wrong with them. Nothing else talks to the server.

import { effect } from "@preact/signals";

import { type Json, parse, stringify } from "./json.ts";
import { enter, leave, lose, me, type Me } from "./session.ts";
import type { components } from "./schema.ts";

export type Schemas = components["schemas"];
export type Query = Record<string, string | number | string[] | undefined>;

/** A problem document, or a server that can't be reached (`code` is `unreachable`). */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly fields: { field: string; message: string }[];
  constructor(status: number, code: string, detail: string, fields: Problem["fields"] = []) {
    super(detail);
    this.status = status;
    this.code = code;
    this.fields = fields;
  }
}

/** Where the API is: beside the page, below whatever prefix that has. */
export const BASE = new URL(".", document.baseURI).href;

/** Milliseconds that the server's clock is ahead of ours; ages are told by its clock. */
let skew = 0;
const SKEW_MS_MIN = 2000;

export function serverNow(): number {
  return Date.now() + skew;
}

function noteClock(answer: Response): void {
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(date)) return;
  // The header has whole seconds: in the middle of one is the best guess.
  const ahead = date + 500 - Date.now();
  skew = Math.abs(ahead) < SKEW_MS_MIN ? 0 : ahead;
}

interface Options {
  query?: Query;
  body?: unknown;
  /** A body that is JSON text already, with its big integers. */
  text?: string;
  signal?: AbortSignal | undefined;
  /** The tag of the answer that is here already. */
  tag?: string | undefined;
}

let answered: () => void = () => undefined;
let fellSilent: () => void = () => undefined;
/** Called with every answer, whatever it says. */
export function onAnswer(hear: () => void): void {
  answered = hear;
}
/** Called when a request had no answer. */
export function onSilence(hear: () => void): void {
  fellSilent = hear;
}

/** A question that costs the server nothing: no database is asked. */
export async function ping(signal: AbortSignal): Promise<void> {
  const answer = await fetch(new URL("healthz", BASE), { signal, cache: "no-store" });
  // A proxy may answer for a server that is gone.
  if (answer.status >= 502 && answer.status <= 504) throw new Error(`status ${answer.status}`);
  answered();
}

const KEEPALIVE_MAX = 16_000;
let requests = 0;
/** How many requests this page has made; tests and curious people count them. */
export function requestCount(): number {
  return requests;
}

function addressOf(path: string, query: Query = {}): URL {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined) url.searchParams.append(name, String(each));
    }
  }
  return url;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const url = addressOf(path, options.query);
  const headers = new Headers();
  if (options.tag) headers.set("if-none-match", options.tag);
  // No form of another page can send it, so the server knows that a script of ours asks.
  if (method !== "GET") headers.set("x-rowlock-request", "1");
  const body =
    options.text ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  if (body !== undefined) headers.set("content-type", "application/json");
  requests += 1;
  let answer: Response;
  try {
    answer = await fetch(url, {
      method,
      headers,
      body: body ?? null,
      signal: options.signal ?? null,
      cache: "no-store",
      // What changes something is sent also when the page is left at that moment.
      keepalive: method !== "GET" && (body?.length ?? 0) < KEEPALIVE_MAX,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    fellSilent();
    throw new Problem(0, "unreachable", "the server can't be reached");
  }
  if (answer.status >= 502 && answer.status <= 504) fellSilent();
  else answered();
  noteClock(answer);
  if (!answer.ok && !(options.tag && answer.status === 304)) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer: Response): Promise<Problem> {
  let told: Partial<Schemas["Problem"]> = {};
  try {
    told = (await answer.json()) as Schemas["Problem"];
  } catch {
    // A proxy in between has its own words; its status is what is left.
  }
  if (answer.status === 401) lose();
  const detail = told.detail ?? `the server answered ${answer.status}`;
  return new Problem(answer.status, told.code ?? "unknown", detail, told.errors ?? []);
}

/** The last answers that had a tag: if one has not changed, the server doesn't send it again. */
const known = new Map<string, { tag: string; text: string }>();
const KNOWN_MAX = 20;
// Nothing stays of a user who has signed out.
effect(() => {
  if (me.value === null) known.clear();
});

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const address = addressOf(path, query).href;
  const before = known.get(address);
  const answer = await send("GET", path, { query: query ?? {}, signal, tag: before?.tag });
  if (before && answer.status === 304) return JSON.parse(before.text) as T;
  const text = await answer.text();
  known.delete(address);
  const tag = answer.headers.get("etag");
  if (tag) known.set(address, { tag, text });
  for (const oldest of known.keys()) {
    if (known.size <= KNOWN_MAX) break;
    known.delete(oldest);
  }
  return JSON.parse(text) as T;
}

const PAGE_ITEMS = 200;
const PAGES_MAX = 100;

/** A list with all of its pages, up to a bound: `items` names the field that holds them. */
export async function getWhole<T extends { next: string | null }>(
  path: string,
  items: keyof T & string,
  signal?: AbortSignal,
): Promise<T> {
  const whole = await get<T>(path, { limit: PAGE_ITEMS }, signal);
  for (let pages = 1; whole.next && pages < PAGES_MAX; pages += 1) {
    const page = await get<T>(path, { limit: PAGE_ITEMS, cursor: whole.next }, signal);
    (whole[items] as unknown[]).push(...(page[items] as unknown[]));
    whole.next = page.next;
  }
  return whole;
}

/** As `get`, without loss: for answers that hold payloads and results. */
export async function getExact<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const answer = await send("GET", path, { query: query ?? {}, signal });
  return parse(await answer.text()) as T;
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  const answer = await send("POST", path, body === undefined ? {} : { body });
  return (await answer.json()) as T;
}

/** As `post`, with a body that may hold numbers beyond JavaScript's. */
export async function postExact<T>(path: string, body: Json): Promise<T> {
  const answer = await send("POST", path, { text: stringify(body, 0) });
  return parse(await answer.text()) as T;
}

export async function remove(path: string): Promise<void> {
  await send("DELETE", path);
}

/**
 * A part of a path: a queue may be named `a/b` or `..`, which browsers and proxies would resolve.
 * Such names are written with a tilde in front, and with tildes instead of percent signs.
 */
export function part(name: string): string {
  if (/^\w[\w.-]*$/.test(name)) return name;
  const escaped = encodeURIComponent(name).replaceAll("~", "~7E").replaceAll("%", "~");
  return `~${escaped}`;
}

/** Exchange a token, or the code of a login link, for a session. */
export async function signIn(secret: string): Promise<void> {
  await send("POST", "v1/session", { body: { token: secret } });
  enter(await get<Me>("v1/me"));
}

/** End the session, in all tabs. */
export async function signOut(): Promise<void> {
  await send("DELETE", "v1/session");
  leave();
}
