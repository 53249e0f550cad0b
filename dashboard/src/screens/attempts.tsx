// A job as its attempts: one card each, the newest first.

import { useEffect, useRef, useState } from "preact/hooks";

import { duration } from "../format.ts";
import { now } from "../live.ts";
import { type Attempt, attemptsOf } from "../timeline.ts";
import { type Frame, type Part, partsOf } from "../traceback.ts";
import { Button, CopyButton, Panel, Time } from "../ui/basics.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import type { Job } from "./job.tsx";

export function Attempts({ job }: { job: Job }) {
  const attempts = attemptsOf(job);
  if (!attempts.length) return null;
  const longest = Math.max(...attempts.map((each) => lengthOf(each) ?? 0), 0.001);
  return (
    <Panel title="Attempts" aside={<span class="soft small">{of(job)}</span>}>
      <ol class="attempts">
        {attempts.map((each, place) => (
          <Card key={each.title} attempt={each} longest={longest} isFirst={place === 0} />
        ))}
      </ol>
    </Panel>
  );
}

function of(job: Job): string {
  return `${job.attempt} of ${job.max_attempts}`;
}

/** Seconds that it ran, if its beginning is known. */
function lengthOf(attempt: Attempt): number | undefined {
  if (!attempt.from) return undefined;
  const end = attempt.to ? Date.parse(attempt.to) : now.value;
  return Math.max(0, (end - Date.parse(attempt.from)) / 1000);
}

const ICONS: Record<Attempt["outcome"], IconName> = {
  failed: "close",
  dead: "close",
  lost: "help",
  running: "play",
  succeeded: "check",
  cancelled: "cancel",
};
const WORDS: Record<Attempt["outcome"], string> = {
  failed: "failed",
  dead: "failed",
  lost: "was lost: its worker stopped without an answer",
  running: "is held by its worker",
  succeeded: "succeeded",
  cancelled: "was cancelled",
};

function Card({
  attempt,
  longest,
  isFirst,
}: {
  attempt: Attempt;
  longest: number;
  isFirst: boolean;
}) {
  const length = lengthOf(attempt);
  const { error } = attempt;
  return (
    <li class={`attempt attempt-${attempt.outcome}`}>
      <div class="attempt-head">
        <span class="attempt-icon">
          <Icon name={ICONS[attempt.outcome]} size={12} />
        </span>
        <b>{attempt.title}</b>
        <span class="soft">
          {WORDS[attempt.outcome]}
          {attempt.times > 1 ? ` alike, ${attempt.times} times` : ""}
          {attempt.outcome === "dead" ? "; the job was given up" : ""}
        </span>
        <span class="gap" />
        {length === undefined ? null : (
          <span class="attempt-length" title="How long it ran">
            <span class="attempt-bar">
              <span style={{ width: `${Math.max(2, (length / longest) * 100)}%` }} />
            </span>
            {duration(length)}
          </span>
        )}
        <span class="soft">
          <Time at={attempt.to ?? attempt.from} />
        </span>
      </div>
      {attempt.worker ? <p class="attempt-worker soft">on {attempt.worker}</p> : null}
      {error ? (
        <>
          <p class="error-title">
            <b>{error.type}</b> {error.message}
          </p>
          {error.traceback ? <Traceback text={error.traceback} isOpen={isFirst} /> : null}
        </>
      ) : null}
    </li>
  );
}

/** Opened at its end, where the error is; libraries are folded until one asks for them. */
function Traceback({ text, isOpen }: { text: string; isOpen: boolean }) {
  const [isShown, setShown] = useState(isOpen);
  const [isWrapped, setWrapped] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [isShown]);
  if (!isShown) {
    return (
      <Button kind="ghost" icon="right" onClick={() => setShown(true)}>
        Traceback
      </Button>
    );
  }
  return (
    <div class="code-box">
      <div class="code-tools">
        <Button
          kind="ghost"
          icon="wrap"
          label={isWrapped ? "Don't wrap lines" : "Wrap lines"}
          title={isWrapped ? "Don't wrap lines" : "Wrap lines"}
          onClick={() => setWrapped(!isWrapped)}
        />
        <CopyButton text={text} label="Copy the traceback" />
      </div>
      <div
        class={`traceback ${isWrapped ? "wrapped" : ""}`}
        role="group"
        aria-label="Traceback"
        tabIndex={0}
        ref={box}
      >
        {partsOf(text).map((part, place) => (
          <PartLines key={place} part={part} />
        ))}
      </div>
    </div>
  );
}

function PartLines({ part }: { part: Part }) {
  const [isOpen, setOpen] = useState(false);
  if ("text" in part) return <pre class="traceback-text">{part.text}</pre>;
  if (part.isLibrary && !isOpen) {
    const number = part.frames.reduce((sum, each) => sum + each.times, 0);
    return (
      <button type="button" class="fold-frames" onClick={() => setOpen(true)}>
        <Icon name="right" size={12} /> {number} {number === 1 ? "frame" : "frames"} of libraries
      </button>
    );
  }
  return (
    <>
      {part.frames.map((frame, place) => (
        <FrameLines key={place} frame={frame} />
      ))}
    </>
  );
}

function FrameLines({ frame }: { frame: Frame }) {
  return (
    <pre class={frame.isLibrary ? "frame-library" : "frame-own"}>
      {frame.lines.join("\n")}
      {frame.times > 1 ? <span class="tag">× {frame.times}</span> : null}
    </pre>
  );
}
