// One tenant: what it has, by state, and its newest jobs and workflows. No history is kept of it.

import { get, type Schemas } from "../api.ts";
import { STATES, type State } from "../filters.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { Count, Head, Skeleton, StateBadge, Time, Trouble } from "../ui/basics.tsx";
import { CountBar } from "../ui/countbar.tsx";
import { Icon } from "../ui/icons.tsx";
import { JobRows } from "../ui/jobrows.tsx";

const EVERY_MS = 6000;
const SHOWN = 20;
const FLOWS_SHOWN = 5;

interface Found {
  counts: Map<State, Schemas["Count"]>;
  jobs: Schemas["JobSummary"][];
  workflows: Schemas["Workflow"][];
}

async function load(tenant: string, signal: AbortSignal): Promise<Found> {
  const [counts, jobs, workflows] = await Promise.all([
    Promise.all(
      STATES.map(
        async (state): Promise<[State, Schemas["Count"]]> => [
          state,
          await get<Schemas["Count"]>("v1/jobs/count", { tenant, state }, signal),
        ],
      ),
    ),
    get<Schemas["JobPage"]>("v1/jobs", { tenant, limit: SHOWN }, signal),
    get<Schemas["Workflows"]>("v1/workflows", { tenant, limit: FLOWS_SHOWN }, signal),
  ]);
  return { counts: new Map(counts), jobs: jobs.jobs, workflows: workflows.workflows };
}

export function TenantScreen({ tenant }: { tenant: string }) {
  const live = useLive((signal) => load(tenant, signal), EVERY_MS, []);
  const found = live.data;
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href={to(["jobs"])}>Jobs</a> <Icon name="right" size={12} />
      </nav>
      <Head title={tenant} sub="A tenant: its jobs by state, its newest workflows and jobs.">
        <a class="button" href={to(["jobs"], { tenant })}>
          <Icon name="jobs" /> <span>Its jobs</span>
        </a>
        <a class="button" href={to(["workflows"], { tenant })}>
          <Icon name="workflows" /> <span>Its workflows</span>
        </a>
      </Head>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!found && !live.problem ? <Skeleton rows={10} /> : null}
      {found ? (
        <>
          <ul class="tiles">
            {[...found.counts].map(([state, value]) => (
              <li class="tile" key={state}>
                <a class="tile-label plain-link" href={to(["jobs"], { tenant, state })}>
                  <StateBadge state={state} />
                </a>
                <span class={`tile-value ${value.value ? `count-${state}` : ""}`}>
                  <Count value={value} />
                </span>
              </li>
            ))}
          </ul>
          {found.workflows.length ? <Flows workflows={found.workflows} /> : null}
          {found.jobs.length ? <JobRows jobs={found.jobs} /> : <p class="soft">It has no jobs.</p>}
        </>
      ) : null}
    </>
  );
}

function Flows({ workflows }: { workflows: Schemas["Workflow"][] }) {
  return (
    <section class="panel tenant-flows">
      <div class="panel-head">
        <h2>Newest workflows</h2>
      </div>
      <ul class="lines">
        {workflows.map((each) => (
          <li key={each.id}>
            <a class="name" href={to(["workflows", each.id])}>
              {each.name}
            </a>
            <StateBadge state={each.state} />
            <span class="grow">
              <CountBar counts={each.counts} />
            </span>
            <Time at={each.created_at} show="clock" />
          </li>
        ))}
      </ul>
    </section>
  );
}
