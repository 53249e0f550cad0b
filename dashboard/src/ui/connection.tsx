// What the frame says of the connection: live, still, or away with a countdown.

import { signal, useComputed } from "@preact/signals";

import { askNow, away } from "../connection.ts";
import { clock } from "../format.ts";
import { isHidden, isPaused, now } from "../live.ts";
import { Button } from "./basics.tsx";
import { Icon } from "./icons.tsx";

const ticks = signal(Date.now());
setInterval(() => {
  if (away.value) ticks.value = Date.now();
}, 250);

function secondsLeft(): number {
  return Math.max(0, Math.ceil(((away.value?.againAt ?? 0) - ticks.value) / 1000));
}

/** Above every screen while the server does not answer: how old what is shown is. */
export function AwayBanner() {
  const left = useComputed(secondsLeft);
  if (!away.value) return null;
  return (
    <div class="away" role="alert">
      <Icon name="dead" />
      <p>
        <b>The server does not answer.</b> What you see is as it was at{" "}
        {clock(away.value.since, now.value)}.
      </p>
      <span class="away-count" aria-hidden="true">
        {left.value ? `again in ${left.value} s` : "asking…"}
      </span>
      <Button onClick={() => void askNow()}>Ask now</Button>
    </div>
  );
}

/** Says whether the page is live, and lets it rest. */
export function Pulse() {
  const isStill = isPaused.value || isHidden.value;
  const kind = isStill ? "pulse-still" : away.value ? "pulse-away" : "";
  return (
    <button
      type="button"
      class={`pulse ${kind}`}
      aria-pressed={isPaused.value}
      onClick={() => (isPaused.value = !isPaused.value)}
      title="Pause or resume live updates (p)"
    >
      <span class="pulse-dot" />{" "}
      <span>{isPaused.value ? "Paused" : away.value ? "No answer" : "Live"}</span>
    </button>
  );
}
