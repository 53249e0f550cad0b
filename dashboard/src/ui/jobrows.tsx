// Rows of jobs. Only those near the window exist: ten thousand cost no more than fifty.

import { useEffect, useRef, useState } from "preact/hooks";

import { duration, shortId } from "../format.ts";
import type { Summary } from "../jobs.ts";
import { preview } from "../preview.ts";
import { go, to } from "../router.ts";
import { Age, Meter, StateBadge, Time } from "./basics.tsx";

const SPARE = 20;
const ROW = 36;
const ROW_NARROW = 84;

function rowHeight(): number {
  return matchMedia("(max-width: 720px)").matches ? ROW_NARROW : ROW;
}

interface Span {
  from: number;
  to: number;
}

function useSpan(total: number) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [span, setSpan] = useState<Span>({ from: 0, to: 60 });
  useEffect(() => {
    function look(): void {
      if (!body.current) return;
      const height = rowHeight();
      const above = Math.max(0, -body.current.getBoundingClientRect().top);
      const from = Math.max(0, Math.floor(above / height) - SPARE);
      const to = Math.min(total, Math.ceil((above + innerHeight) / height) + SPARE);
      setSpan((before) => (before.from === from && before.to === to ? before : { from, to }));
    }
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [total]);
  return { body, span };
}

export function JobRows({
  jobs,
  chosen,
  choose,
}: {
  jobs: Summary[];
  /** Undefined: nothing can be selected. */
  chosen?: ReadonlySet<string> | undefined;
  choose?: (next: ReadonlySet<string>) => void;
}) {
  const { body, span } = useSpan(jobs.length);
  const height = rowHeight();
  const last = useRef(-1);
  const from = Math.min(span.from, Math.max(0, jobs.length - 1));
  const isAll = chosen !== undefined && chosen.size > 0 && jobs.every((job) => chosen.has(job.id));

  function turn(place: number, isOn: boolean, isRange: boolean): void {
    if (!chosen || !choose) return;
    const next = new Set(chosen);
    const start = isRange && last.current >= 0 ? last.current : place;
    for (let each = Math.min(start, place); each <= Math.max(start, place); each += 1) {
      if (isOn) next.add(jobs[each]!.id);
      else next.delete(jobs[each]!.id);
    }
    last.current = place;
    choose(next);
  }

  return (
    <div class="table-wrap">
      <table class={`table jobs ${chosen ? "with-box" : ""}`} aria-rowcount={jobs.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {chosen ? (
              <th class="box">
                <input
                  type="checkbox"
                  aria-label="Select all that are loaded"
                  checked={isAll}
                  onChange={() => choose?.(isAll ? new Set() : new Set(jobs.map((job) => job.id)))}
                />
              </th>
            ) : null}
            <th class="c-state">State</th>
            <th class="c-kind">Kind</th>
            <th class="c-detail">Payload, error</th>
            <th class="c-queue">Queue</th>
            <th class="number c-attempt">Attempt</th>
            <th class="number c-took">Took</th>
            <th class="number c-when">When</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {from > 0 ? (
            <tr aria-hidden="true" class="spacer">
              <td style={{ height: `${from * height}px` }} />
            </tr>
          ) : null}
          {jobs.slice(from, span.to).map((job, offset) => (
            <Row
              key={job.id}
              job={job}
              place={from + offset}
              isChosen={chosen?.has(job.id)}
              turn={chosen ? (isOn, isRange) => turn(from + offset, isOn, isRange) : undefined}
            />
          ))}
          {span.to < jobs.length ? (
            <tr aria-hidden="true" class="spacer">
              <td style={{ height: `${(jobs.length - span.to) * height}px` }} />
            </tr>
          ) : null}
        </tbody>
      </table>
    </div>
  );
}

/** A click on a row opens it, unless it is meant for something else: a link, a tab, a selection. */
function isForRow(event: MouseEvent): boolean {
  if ((event.target as HTMLElement).closest("a, input, button, label")) return false;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return false;
  return getSelection()?.isCollapsed ?? true;
}

function Row({
  job,
  place,
  isChosen,
  turn,
}: {
  job: Summary;
  place: number;
  isChosen: boolean | undefined;
  turn: ((isOn: boolean, isRange: boolean) => void) | undefined;
}) {
  const address = to(["jobs", job.id]);
  // The event of the change does not say which keys were held.
  const isRange = useRef(false);
  return (
    <tr
      data-id={job.id}
      aria-rowindex={place + 2}
      class={isChosen ? "chosen" : ""}
      onClick={(event) => {
        if (isForRow(event)) go(address);
      }}
    >
      {turn ? (
        <td class="box">
          <input
            type="checkbox"
            aria-label={`Select ${job.kind} ${shortId(job.id)}`}
            checked={isChosen ?? false}
            onClick={(event) => {
              isRange.current = event.shiftKey;
            }}
            onChange={(event) => turn(event.currentTarget.checked, isRange.current)}
          />
        </td>
      ) : null}
      <td class="c-state">
        <StateBadge
          state={job.state}
          note={job.cancel_requested && job.state === "running" ? "stopping" : undefined}
        />
      </td>
      <td class="c-kind">
        <a class="job-link name" href={address} title={job.id}>
          {job.kind}
        </a>{" "}
        <span class="id">{shortId(job.id)}</span>
      </td>
      <td class="c-detail">
        <Detail job={job} />
      </td>
      <td class="c-queue">
        <span class="name">{job.queue}</span>
      </td>
      <td class="number c-attempt">
        {job.attempt}
        <span class="soft">/{job.max_attempts}</span>
      </td>
      <td class="number c-took">
        <Took job={job} />
      </td>
      <td class="number c-when">
        <Time at={whenOf(job)} />
      </td>
    </tr>
  );
}

function Detail({ job }: { job: Summary }) {
  if (job.state === "running" && job.progress) {
    return (
      <span class="detail-progress">
        <Meter value={job.progress.fraction} label={`Progress of ${job.kind}`} />
        <span>{job.progress.text || `${Math.round(job.progress.fraction * 100)} %`}</span>
      </span>
    );
  }
  return (
    <span class="detail">
      {job.last_error && job.state !== "succeeded" ? (
        <span class="error-line" title={job.last_error}>
          {job.last_error.split("\n")[0]}
        </span>
      ) : null}
      <Payload text={job.payload_preview} />
      {job.key ? (
        <span class="mark" title="key">
          {job.key}
        </span>
      ) : null}
      {job.tenant ? (
        <span class="mark" title="tenant">
          {job.tenant}
        </span>
      ) : null}
      {job.tags.map((tag) => (
        <span class="tag" key={tag}>
          {tag}
        </span>
      ))}
    </span>
  );
}

function Payload({ text }: { text: string }) {
  const found = preview(text);
  if (!found.length) return null;
  return (
    <code class="preview">
      {found.map(({ name, value }, place) => (
        <span key={place}>
          {place ? " " : ""}
          <span class="preview-name">{name}=</span>
          {value}
        </span>
      ))}
    </code>
  );
}

/** How long it ran, or has run so far. */
function Took({ job }: { job: Summary }) {
  if (!job.started_at) return <span class="zero">–</span>;
  if (job.state === "running") return <Age since={job.started_at} />;
  if (!job.finished_at) return <span class="zero">–</span>;
  const took = (Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000;
  return took < 0 ? <span class="zero">–</span> : <span>{duration(took)}</span>;
}

/** The time that matters in its state: due, begun, ended. */
function whenOf(job: Summary): string | null {
  if (job.state === "running") return job.started_at;
  return job.finished_at ?? job.run_at;
}
