// Server-sent events, read by fetch, which says why it fails. An EventSource does not.

import { useEffect, useRef } from "preact/hooks";

import { type Query, type Schemas, send } from "./api.ts";
import { isPaused, returns } from "./live.ts";
import { isOver as isSignedOut, me } from "./session.ts";

export type Event = Schemas["Event"];

const AGAIN_MS = 2000;
const AGAIN_MS_MAX = 60_000;

/** The events in what has come, and the part of the last one that is still on its way. */
export function split(text: string): { events: Event[]; rest: string } {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events: Event[] = [];
  for (const block of blocks) {
    const data = block
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5).trimStart())
      .join("\n");
    if (data) events.push(JSON.parse(data) as Event);
  }
  return { events, rest };
}

async function read(
  query: Query,
  hear: (event: Event) => void,
  signal: AbortSignal,
): Promise<void> {
  const answer = await send("GET", "v1/events", { query, signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const found = split(rest + value);
    rest = found.rest;
    found.events.forEach(hear);
  }
}

/** Hear events while the page is seen; again after a break. An undefined query hears nothing. */
export function useEvents(query: Query | undefined, hear: (event: Event) => void): void {
  const listener = useRef(hear);
  listener.current = hear;
  const key = query && JSON.stringify(query);
  useEffect(() => {
    if (!key) return undefined;
    let flight: AbortController | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let wait = AGAIN_MS;
    let isOver = false;

    async function connect(): Promise<void> {
      clearTimeout(timer);
      const isAway = !me.value || isSignedOut.value;
      if (isOver || document.hidden || isPaused.value || isAway) return again();
      const mine = new AbortController();
      flight = mine;
      try {
        await read(
          JSON.parse(key!) as Query,
          (event) => {
            wait = AGAIN_MS;
            listener.current(event);
          },
          mine.signal,
        );
      } catch {
        // The screen still asks by itself, and tells of trouble: this is only a shortcut.
      }
      wait = Math.min(wait * 2, AGAIN_MS_MAX);
      if (flight === mine) again();
    }

    function again(): void {
      if (!isOver) timer = setTimeout(() => void connect(), wait);
    }

    function turn(): void {
      flight?.abort();
      flight = undefined;
      wait = AGAIN_MS;
      if (!document.hidden) void connect();
    }

    void connect();
    document.addEventListener("visibilitychange", turn);
    let isBegun = false;
    const unsubscribe = returns.subscribe(() => {
      if (isBegun) turn();
      isBegun = true;
    });
    return () => {
      isOver = true;
      unsubscribe();
      clearTimeout(timer);
      flight?.abort();
      document.removeEventListener("visibilitychange", turn);
    };
  }, [key]);
}
