import { get, getWhole, type Schemas } from "../api.ts";
import { bytes, plural, shortId } from "../format.ts";
import { now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { Age, Command, Empty, Head, Meter, Skeleton, Time, Trouble } from "../ui/basics.tsx";

type Worker = Schemas["Worker"];
type Summary = Schemas["JobSummary"];

const EVERY_MS = 4000;
const SILENT_MS = 45_000;

interface Found {
  workers: Worker[];
  running: Map<string, Summary>;
}

async function load(signal: AbortSignal): Promise<Found> {
  const [workers, jobs] = await Promise.all([
    getWhole<Schemas["Workers"]>("v1/workers", "workers", signal),
    get<Schemas["JobPage"]>("v1/jobs", { state: "running", limit: 200 }, signal),
  ]);
  return { workers: workers.workers, running: new Map(jobs.jobs.map((job) => [job.id, job])) };
}

export function Workers() {
  const live = useLive(load, EVERY_MS, []);
  const found = live.data;
  const running =
    found?.workers.reduce((sum, each) => sum + (each.busy ?? each.running.length), 0) ?? 0;
  return (
    <>
      <Head
        title="Workers"
        sub={
          found?.workers.length
            ? `${plural(found.workers.length, "worker")}, ${plural(running, "job")} running.`
            : undefined
        }
      />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!found && !live.problem ? <Skeleton /> : null}
      {found?.workers.length === 0 ? (
        <Empty icon="workers" title="No worker is running">
          <p>Nothing is done until there is one:</p>
          <Command>rowlock --app shop:app worker</Command>
        </Empty>
      ) : null}
      {found?.workers.length
        ? families(found.workers).map(([name, workers]) => (
            <section class="family" key={name}>
              {workers.length > 1 ? (
                <h2>
                  {name} <span class="soft">{plural(workers.length, "child", "children")}</span>
                </h2>
              ) : null}
              <ul class="cards">
                {workers.map((each) => (
                  <Card key={each.id} worker={each} running={found.running} />
                ))}
              </ul>
            </section>
          ))
        : null}
    </>
  );
}

/** The children of a supervisor, by what their names share: host and process, then a number. */
function families(workers: Worker[]): [string, Worker[]][] {
  const found = new Map<string, Worker[]>();
  for (const worker of workers) {
    const name = /^(.+-\d+)-\d+-[0-9a-f]+$/.exec(worker.id)?.[1] ?? worker.id;
    found.set(name, [...(found.get(name) ?? []), worker]);
  }
  return [...found];
}

function Card({ worker, running }: { worker: Worker; running: Map<string, Summary> }) {
  const isSilent = !worker.last_beat_at || now.value - Date.parse(worker.last_beat_at) > SILENT_MS;
  return (
    <li class="card worker">
      <div class="card-main">
        <h2>
          {worker.host || worker.id}{" "}
          {worker.pid ? <span class="soft">process {worker.pid}</span> : null}
          {isSilent ? <span class="tag tag-bad">silent</span> : null}
        </h2>
        <p class="soft">
          <code>{worker.id}</code>
        </p>
        <p class="soft">
          Serves {worker.queues.length ? worker.queues.join(", ") : "all queues"}
          {worker.kinds.length ? ` · ${plural(worker.kinds.length, "kind")}` : ""}
        </p>
      </div>
      <dl class="card-facts">
        <div>
          <dt>Slots</dt>
          <dd>
            <Slots worker={worker} />
          </dd>
        </div>
        {worker.memory_bytes == null ? null : (
          <div>
            <dt>Memory</dt>
            <dd>{bytes(worker.memory_bytes)}</dd>
          </div>
        )}
        {worker.lost ? (
          <div>
            <dt>Lost</dt>
            <dd class="count-dead">{plural(worker.lost, "lease")}</dd>
          </div>
        ) : null}
        <div>
          <dt>Beat</dt>
          <dd>
            <Time at={worker.last_beat_at} empty="never" />
          </dd>
        </div>
        <div>
          <dt>Since</dt>
          <dd>
            <Time at={worker.started_at} empty="unknown" />
          </dd>
        </div>
      </dl>
      <Running worker={worker} running={running} />
    </li>
  );
}

function Slots({ worker }: { worker: Worker }) {
  if (worker.slots == null || worker.busy == null) {
    return <span>{plural(worker.running.length, "job")} held</span>;
  }
  return (
    <span class="slots">
      {worker.busy} of {worker.slots}
      {worker.ahead ? <span class="soft"> +{worker.ahead} claimed ahead</span> : null}
      <Meter value={worker.busy / worker.slots} label="Slots in use" />
    </span>
  );
}

const SHOWN_MAX = 20;

function Running({ worker, running }: { worker: Worker; running: Map<string, Summary> }) {
  if (!worker.running.length) return <p class="worker-jobs soft">Idle.</p>;
  return (
    <ul class="worker-jobs lines">
      {worker.running.slice(0, SHOWN_MAX).map((id) => {
        const job = running.get(id);
        return (
          <li key={id}>
            <a class="name" href={to(["jobs", id])}>
              {job?.kind ?? "job"}
            </a>
            <span class="id soft">{shortId(id)}</span>
            <span class="grow soft">
              {job?.progress
                ? `${Math.round(job.progress.fraction * 100)} % ${job.progress.text}`
                : ""}
            </span>
            {job?.started_at ? (
              <span class="soft">
                for <Age since={job.started_at} />
              </span>
            ) : null}
          </li>
        );
      })}
      {worker.running.length > SHOWN_MAX ? (
        <li class="soft">and {worker.running.length - SHOWN_MAX} more</li>
      ) : null}
    </ul>
  );
}
