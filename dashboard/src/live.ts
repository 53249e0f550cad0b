// What is shown stays true: it is asked for again while somebody looks, and not a moment longer.

import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { Problem, serverNow } from "./api.ts";
import { isOver as isSignedOut } from "./session.ts";

/** Grows when the server is back after it was away: what is in trouble is asked for at once. */
export const returns = signal(0);

/** The server's time, every second; it stands still while the page is hidden. */
export const now = signal(serverNow());
/** Whether somebody has asked for quiet. */
export const isPaused = signal(false);
export const isHidden = signal(document.hidden);

document.addEventListener("visibilitychange", () => {
  isHidden.value = document.hidden;
  if (!document.hidden) now.value = serverNow();
});
setInterval(() => {
  if (!document.hidden) now.value = serverNow();
}, 1000);

const BACKOFF_MS_MAX = 60_000;
/** What takes long is asked for less often: at most a fiftieth of the time is spent on it. */
const SHARE = 50;

export interface Live<T> {
  data: T | undefined;
  problem: Problem | undefined;
  /** When the data came, by the server's clock. */
  at: number;
  refresh: () => void;
}

type Load<T> = (signal: AbortSignal) => Promise<T>;

/**
 * Load now, again every so many milliseconds, and at once when `dependencies` change. After
 * trouble it waits longer each time, and what was there is still shown.
 */
export function useLive<T>(load: Load<T>, every: number, dependencies: unknown[]): Live<T> {
  const [state, setState] = useState<{ data?: T; problem?: Problem; at: number }>({ at: 0 });
  const loader = useRef(load);
  loader.current = load;
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let flight: AbortController | undefined;
    let trouble = 0;
    let took = 0;
    let isOver = false;
    let isBegun = false;

    async function run(): Promise<void> {
      clearTimeout(timer);
      flight?.abort();
      const mine = new AbortController();
      flight = mine;
      const began = performance.now();
      try {
        const data = await loader.current(mine.signal);
        took = performance.now() - began;
        if (isOver || mine.signal.aborted) return;
        trouble = 0;
        setState({ data, at: serverNow() });
      } catch (error) {
        if (isOver || mine.signal.aborted) return;
        trouble += 1;
        const problem = asProblem(error);
        setState((before) => ({ ...before, problem }));
      }
      plan();
    }

    function plan(): void {
      if (every <= 0) return;
      const wait = Math.max(every * 2 ** trouble, took * SHARE);
      timer = setTimeout(tick, Math.min(wait, Math.max(every, BACKOFF_MS_MAX)));
    }

    function tick(): void {
      if (document.hidden || isPaused.value || isSignedOut.value) plan();
      else void run();
    }

    function appear(): void {
      if (!document.hidden && !isPaused.value) void run();
    }

    // Whoever signs in again, or finds the server back, sees what is true now.
    const unsubscribe = [
      isSignedOut.subscribe((isOut) => {
        if (!isOut && trouble) void run();
      }),
      returns.subscribe(() => {
        if (isBegun && (trouble || every > 0)) void run();
      }),
    ];
    isBegun = true;
    again.current = () => void run();
    setState((before) => (before.data === undefined ? before : { at: 0 }));
    void run();
    document.addEventListener("visibilitychange", appear);
    return () => {
      isOver = true;
      clearTimeout(timer);
      flight?.abort();
      for (const each of unsubscribe) each();
      document.removeEventListener("visibilitychange", appear);
    };
  }, dependencies);

  const refresh = useCallback(() => again.current(), []);
  return { data: state.data, problem: state.problem, at: state.at, refresh };
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "unexpected", error instanceof Error ? error.message : String(error));
}
