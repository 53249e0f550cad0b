// The lines that a handler logged: they follow their end while it runs, unless one reads above.

import { useEffect, useRef, useState } from "preact/hooks";

import type { Schemas } from "../api.ts";
import { exact } from "../format.ts";
import { Button, Panel } from "../ui/basics.tsx";

type LogLine = Schemas["LogLine"];

const NEAR_PX = 40;

export function Log({ id, lines, isLive }: { id: string; lines: LogLine[]; isLive: boolean }) {
  const [wanted, setWanted] = useState("");
  const [isWrapped, setWrapped] = useState(true);
  const box = useRef<HTMLOListElement>(null);
  const isFollowing = useRef(true);
  useEffect(() => {
    if (isLive && isFollowing.current && box.current)
      box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, isLive]);
  if (!lines.length) {
    return isLive ? (
      <Panel title="Log">
        <p class="soft">
          Nothing is logged yet: <code>ctx.log("…")</code> in its handler does.
        </p>
      </Panel>
    ) : null;
  }
  const text = wanted.trim().toLowerCase();
  const shown = text ? lines.filter((line) => line.text.toLowerCase().includes(text)) : lines;
  return (
    <Panel
      title="Log"
      aside={
        <span class="log-tools">
          {isLive ? <span class="soft small">live</span> : null}
          <input
            type="search"
            class="small-input"
            aria-label="Search the log"
            placeholder="Search"
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
          <Button
            kind="ghost"
            icon="wrap"
            label={isWrapped ? "Don't wrap lines" : "Wrap lines"}
            title={isWrapped ? "Don't wrap lines" : "Wrap lines"}
            onClick={() => setWrapped(!isWrapped)}
          />
          <Button
            kind="ghost"
            icon="download"
            label="Download the log"
            title="Download the log"
            onClick={() => download(id, lines)}
          />
        </span>
      }
    >
      <ol
        class={`log ${isWrapped ? "" : "log-long"}`}
        tabIndex={0}
        aria-label="Log lines"
        ref={box}
        onScroll={() => {
          const { scrollHeight, scrollTop, clientHeight } = box.current!;
          isFollowing.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
        }}
      >
        {shown.map((line, place) => (
          <li key={place}>
            <time dateTime={line.time} title={exact(new Date(line.time))}>
              {exact(new Date(line.time)).slice(11, 23)}
            </time>
            <span>{line.text}</span>
          </li>
        ))}
      </ol>
      {shown.length === lines.length ? null : (
        <p class="soft small">
          {shown.length} of {lines.length} lines
        </p>
      )}
    </Panel>
  );
}

function download(id: string, lines: LogLine[]): void {
  const text = lines.map((line) => `${line.time} ${line.text}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = `${id}.log`;
  link.click();
  URL.revokeObjectURL(link.href);
}
