import { get, part, type Schemas } from "../api.ts";
import { shortId } from "../format.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { Panel, StateBadge } from "../ui/basics.tsx";
import type { Job } from "./job.tsx";

/** The job that this one follows or waits for, and those that follow it or wait for it. */
export function Related({ job }: { job: Job }) {
  const live = useLive(
    (signal) => get<Schemas["RelatedJobs"]>(`v1/jobs/${part(job.id)}/related`, {}, signal),
    job.waits_for ? WAITING_MS : 0,
    [job.id, job.state],
  );
  const found = live.data;
  if (!found) return null;
  const flow = job.workflow;
  return (
    <>
      {found.parent || found.follow_ups.length ? (
        <Panel title="Related jobs">
          <ul class="lines">
            {found.parent ? <Line job={found.parent} text="follows" /> : null}
            {found.follow_ups.map((each) => (
              <Line key={each.id} job={each} text="followed by" />
            ))}
          </ul>
        </Panel>
      ) : null}
      <Lines title={job.waits_for ? "Waits for" : "Waited for"} jobs={found.waits_for} />
      <Lines title="Waited for by" jobs={found.waited_for_by} />
      {found.is_cut && flow ? (
        <p class="soft small">
          There are more: <a href={to(["workflows", flow])}>see the whole workflow</a>.
        </p>
      ) : null}
    </>
  );
}

const WAITING_MS = 10_000;

function Lines({ title, jobs }: { title: string; jobs: Schemas["JobSummary"][] }) {
  if (!jobs.length) return null;
  return (
    <Panel title={title}>
      <ul class="lines">
        {jobs.map((each) => (
          <Line key={each.id} job={each} />
        ))}
      </ul>
    </Panel>
  );
}

function Line({ job, text }: { job: Schemas["JobSummary"]; text?: string }) {
  return (
    <li>
      {text ? <span class="soft small">{text}</span> : null}
      <a class="grow" href={to(["jobs", job.id])} title={job.id}>
        {job.kind} <span class="id">{shortId(job.id)}</span>
      </a>
      <StateBadge state={job.state} />
    </li>
  );
}
