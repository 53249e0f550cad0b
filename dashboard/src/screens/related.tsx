import { get, part, type Schemas } from "../api.ts";
import { shortId } from "../format.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { Panel, StateBadge } from "../ui/basics.tsx";
import type { Job } from "./job.tsx";

/** The job that this one follows, and those that follow it. */
export function Related({ job }: { job: Job }) {
  const live = useLive(
    (signal) => get<Schemas["RelatedJobs"]>(`v1/jobs/${part(job.id)}/related`, {}, signal),
    0,
    [job.id, job.state],
  );
  const found = live.data;
  if (!found || (!found.parent && !found.follow_ups.length)) return null;
  return (
    <Panel title="Related jobs">
      <ul class="lines">
        {found.parent ? <Line job={found.parent} text="follows" /> : null}
        {found.follow_ups.map((each) => (
          <Line key={each.id} job={each} text="followed by" />
        ))}
      </ul>
    </Panel>
  );
}

function Line({ job, text }: { job: Schemas["JobSummary"]; text: string }) {
  return (
    <li>
      <span class="soft small">{text}</span>
      <a class="grow" href={to(["jobs", job.id])} title={job.id}>
        {job.kind} <span class="id">{shortId(job.id)}</span>
      </a>
      <StateBadge state={job.state} />
    </li>
  );
}
