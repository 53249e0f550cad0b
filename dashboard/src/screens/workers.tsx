import { useState } from "preact/hooks";

import { get, getWhole, type Schemas } from "../api.ts";
import { bytes, count, plural, shortId } from "../format.ts";
import { inSlots } from "../health.ts";
import { now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { Age, Command, Empty, Head, Meter, Skeleton, Time, Trouble } from "../ui/basics.tsx";
import { Icon } from "../ui/icons.tsx";

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
  const held = found?.workers.reduce((sum, each) => sum + each.running.length, 0) ?? 0;
  const { running, ahead, slots } = inSlots(held, found?.workers ?? []);
  const parts = [
    `${plural(found?.workers.length ?? 0, "worker")}, ${plural(running, "job")} running`,
    slots ? ` in ${plural(slots, "slot")}` : "",
    ahead ? `, ${count(ahead)} claimed ahead` : "",
  ];
  return (
    <>
      <Head title="Workers" sub={found?.workers.length ? `${parts.join("")}.` : undefined} />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!found && !live.problem ? <Skeleton /> : null}
      {found?.workers.length === 0 ? (
        <Empty icon="workers" title="No worker is running">
          <p>Nothing is done until there is one:</p>
          <Command>rowlock --app shop:app worker</Command>
        </Empty>
      ) : null}
      {found?.workers.length ? (
        <div class="table-wrap">
          <table class="table workers">
            <thead>
              <tr>
                <th>Worker</th>
                <th>Slots</th>
                <th class="number">Memory</th>
                <th class="number">Longest</th>
                <th class="wide-only">Serves</th>
                <th class="number">Beat</th>
                <th class="number">Since</th>
              </tr>
            </thead>
            <tbody>
              {byLongest(found).map((each) => (
                <Rows key={each.id} worker={each} running={found.running} />
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </>
  );
}

/** When its longest running job began. */
function longestOf(worker: Worker, running: Map<string, Summary>): number | undefined {
  const starts = worker.running
    .map((id) => Date.parse(running.get(id)?.started_at ?? ""))
    .filter((each) => !Number.isNaN(each));
  return starts.length ? Math.min(...starts) : undefined;
}

function byLongest({ workers, running }: Found): Worker[] {
  const start = (worker: Worker) => longestOf(worker, running) ?? Number.MAX_SAFE_INTEGER;
  return [...workers].sort((a, b) => start(a) - start(b) || a.id.localeCompare(b.id));
}

function Rows({ worker, running }: { worker: Worker; running: Map<string, Summary> }) {
  const isSilent = !worker.last_beat_at || now.value - Date.parse(worker.last_beat_at) > SILENT_MS;
  const [isOpen, setOpen] = useState(worker.running.length > 0 && worker.running.length <= 3);
  const longest = longestOf(worker, running);
  return (
    <>
      <tr>
        <th scope="row">
          <span class="worker-head">
            <button
              type="button"
              class="fold"
              aria-expanded={isOpen}
              aria-label={`Jobs of ${worker.id}`}
              disabled={!worker.running.length}
              onClick={() => setOpen(!isOpen)}
            >
              <Icon name={isOpen && worker.running.length ? "down" : "right"} size={12} />
            </button>
            <span class="worker-name">
              <span class="name">
                {worker.host || worker.id}
                {worker.pid ? <span class="soft"> process {worker.pid}</span> : null}{" "}
                {isSilent ? <span class="tag tag-bad">silent</span> : null}
                {worker.lost ? (
                  <span class="tag tag-bad">{plural(worker.lost, "lost lease")}</span>
                ) : null}
              </span>
              <code class="soft">{worker.id}</code>
            </span>
          </span>
        </th>
        <td data-label="slots">
          <Slots worker={worker} />
        </td>
        <td class="number" data-label="memory">
          {worker.memory_bytes == null ? <span class="zero">–</span> : bytes(worker.memory_bytes)}
        </td>
        <td class="number" data-label="longest">
          {longest === undefined ? (
            <span class="zero">idle</span>
          ) : (
            <Age since={new Date(longest).toISOString()} />
          )}
        </td>
        <td class="wide-only" data-label="serves">
          <span class="name">{worker.queues.length ? worker.queues.join(", ") : "all queues"}</span>
          {worker.kinds.length ? (
            <span class="soft"> · {plural(worker.kinds.length, "kind")}</span>
          ) : null}
        </td>
        <td class="number" data-label="beat">
          <Time at={worker.last_beat_at} empty="never" show="relative" />
        </td>
        <td class="number" data-label="since">
          <Time at={worker.started_at} empty="unknown" show="clock" />
        </td>
      </tr>
      {isOpen && worker.running.length ? (
        <tr class="unfolded">
          <td colSpan={7}>
            <Running worker={worker} running={running} />
          </td>
        </tr>
      ) : null}
    </>
  );
}

const SQUARES_MAX = 40;

function Slots({ worker }: { worker: Worker }) {
  if (worker.slots == null) return <span>{plural(worker.running.length, "job")} held</span>;
  const { running: busy, ahead, slots } = inSlots(worker.running.length, [worker]);
  return (
    <span class="slots">
      <span>
        {busy} <span class="soft">of {slots}</span>
        {ahead ? <span class="soft"> +{ahead} claimed ahead</span> : null}
      </span>
      {slots <= SQUARES_MAX ? (
        <span class="squares" aria-hidden="true">
          {Array.from({ length: slots }, (_, place) => (
            <span key={place} class={place < busy ? "square square-busy" : "square"} />
          ))}
        </span>
      ) : (
        <Meter value={busy / slots} label="Slots in use" />
      )}
    </span>
  );
}

const SHOWN_MAX = 20;

function Running({ worker, running }: { worker: Worker; running: Map<string, Summary> }) {
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
