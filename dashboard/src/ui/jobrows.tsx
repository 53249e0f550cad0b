// Rows of jobs. Only those near the window exist: ten thousand cost no more than fifty.

import { useEffect, useRef, useState } from "preact/hooks";

import { shortId } from "../format.ts";
import type { Summary } from "../jobs.ts";
import { go, to } from "../router.ts";
import { Meter, StateBadge, Time } from "./basics.tsx";

const SPARE = 20;

function rowHeight(): number {
  return matchMedia("(max-width: 720px)").matches ? 84 : 45;
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

  function turn(place: number, isRange: boolean): void {
    if (!chosen || !choose) return;
    const next = new Set(chosen);
    const id = jobs[place]!.id;
    const isOn = !next.has(id);
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
          <tr>
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
            <th class="c-queue">Queue</th>
            <th class="c-detail">Detail</th>
            <th class="number c-attempt">Attempt</th>
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
              isChosen={chosen?.has(job.id)}
              turn={chosen ? (isRange) => turn(from + offset, isRange) : undefined}
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

function Row({
  job,
  isChosen,
  turn,
}: {
  job: Summary;
  isChosen: boolean | undefined;
  turn: ((isRange: boolean) => void) | undefined;
}) {
  const address = to(["jobs", job.id]);
  return (
    <tr
      data-id={job.id}
      class={isChosen ? "chosen" : ""}
      onClick={(event) => {
        if (!(event.target as HTMLElement).closest("a, input, button")) go(address);
      }}
    >
      {turn ? (
        <td class="box">
          <input
            type="checkbox"
            aria-label={`Select ${job.kind} ${shortId(job.id)}`}
            checked={isChosen ?? false}
            onClick={(event) => {
              event.preventDefault();
              turn(event.shiftKey);
            }}
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
        <a class="job-link name" href={address}>
          {job.kind}
        </a>{" "}
        <span class="id">{shortId(job.id)}</span>
      </td>
      <td class="c-queue">
        <span class="name">{job.queue}</span>
      </td>
      <td class="c-detail">
        <Detail job={job} />
      </td>
      <td class="number c-attempt">
        {job.attempt}
        <span class="soft">/{job.max_attempts}</span>
      </td>
      <td class="number c-when">
        <When job={job} />
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
  if (job.last_error && job.state !== "succeeded") {
    return (
      <span class="error-line" title={job.last_error}>
        {job.last_error.split("\n")[0]}
      </span>
    );
  }
  return (
    <span class="marks">
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

function When({ job }: { job: Summary }) {
  switch (job.state) {
    case "scheduled":
    case "retrying":
      return <Time at={job.run_at} />;
    case "running":
      return <Time at={job.started_at} />;
    case "ready":
      return <Time at={job.run_at} />;
    default:
      return <Time at={job.finished_at} />;
  }
}
