// Whether the server answers. Every answer says so; after a silence we ask it, so that "Live" is
// true to a few seconds, and what was shown is asked for again as soon as the server is back.
//
// Only this question decides: one request that fails, in a page whose server answers, is the
// trouble of its own screen.

import { effect, signal } from "@preact/signals";

import { onAnswer, onSilence, ping } from "./api.ts";
import { isHidden, isPaused, returns } from "./live.ts";
import { me } from "./session.ts";

/** Undefined: it answers. Otherwise since when it does not, and when it is asked again. */
export const away = signal<{ since: number; againAt: number } | undefined>(undefined);

/** So long a silence is asked about. A server that is gone is seen a second later. */
const SILENCE_MS = 3000;
const AGAIN_MS = 1500;
const LOOK_MS = 500;
/** A server may be slow without being gone. */
const PATIENCE_MS = 10_000;

let heardAt = Date.now();
let isAsking = false;

function heard(): void {
  heardAt = Date.now();
  if (!away.value) return;
  away.value = undefined;
  returns.value += 1;
}

/** Ask now. */
export async function askNow(): Promise<void> {
  if (isAsking) return;
  isAsking = true;
  try {
    await ping(AbortSignal.timeout(PATIENCE_MS));
  } catch {
    const since = away.value?.since ?? heardAt;
    away.value = { since, againAt: Date.now() + AGAIN_MS };
  } finally {
    isAsking = false;
  }
}

function look(): void {
  if (isHidden.value || isPaused.value || !me.value) return;
  const dueAt = away.value ? away.value.againAt : heardAt + SILENCE_MS;
  if (Date.now() >= dueAt) void askNow();
}

/** Begin to watch; the answer stops it. */
export function watchConnection(): () => void {
  onAnswer(heard);
  onSilence(() => void askNow());
  const timer = setInterval(look, LOOK_MS);
  // A page that was hidden or still has not asked for a while: that is no silence of the server.
  const stop = effect(() => {
    if (!isHidden.value && !isPaused.value) heardAt = Math.max(heardAt, Date.now() - SILENCE_MS);
  });
  return () => {
    clearInterval(timer);
    stop();
  };
}
