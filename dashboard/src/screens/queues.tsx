import { getWhole, part, post, type Schemas } from "../api.ts";
import { STATES, type State } from "../filters.ts";
import { duration, rate, share } from "../format.ts";
import { everyMs, type History, loadHistory, type Series, totalRuns } from "../history.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import { Button, Command, Count, Empty, Head, Skeleton, Trouble } from "../ui/basics.tsx";
import { attempt, tell } from "../ui/toasts.tsx";

type Queue = Schemas["Queue"];

const EVERY_MS = 4000;

export function Queues() {
  const live = useLive(
    (signal) => getWhole<Schemas["Queues"]>("v1/queues", "queues", signal),
    EVERY_MS,
    [],
  );
  const queues = live.data?.queues;
  const history = useLive(
    (signal) =>
      seesAll() ? loadHistory("5m", { by: "queue" }, signal) : Promise.resolve(undefined),
    everyMs("5m"),
    [],
  );
  return (
    <>
      <Head title="Queues" sub="What waits, what runs, and whether it may be claimed." />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {queues === undefined ? <Skeleton /> : null}
      {queues?.length === 0 ? (
        <Empty icon="queues" title="No queue has jobs yet">
          <p>A queue is there as soon as a job is put into it.</p>
          <Command>{`rowlock enqueue hello '{}' --queue mail`}</Command>
        </Empty>
      ) : null}
      {queues?.length ? (
        <QueueTable queues={queues} refresh={live.refresh} history={history.data} />
      ) : null}
    </>
  );
}

function QueueTable({
  queues,
  refresh,
  history,
}: {
  queues: Queue[];
  refresh: () => void;
  history: History | undefined;
}) {
  const series = new Map(history?.series.map((each) => [each.queue, each]));
  const mayPause = may("admin") && seesAll();
  return (
    <div class="table-wrap">
      <table class="table queues">
        <thead>
          <tr>
            <th>Queue</th>
            {seesAll() ? (
              <>
                <th class="number">Rate, 5 min</th>
                <th class="number">Failed</th>
              </>
            ) : null}
            <th class="number">Oldest ready</th>
            {STATES.map((state) => (
              <th class="number" key={state}>
                {state}
              </th>
            ))}
            {mayPause ? (
              <th>
                <span class="hidden">Actions</span>
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {queues.map((queue) => (
            <tr key={queue.queue}>
              <th scope="row">
                <a class="name" href={to(["jobs"], { queue: queue.queue })}>
                  {queue.queue}
                </a>
                {queue.is_paused ? <span class="tag tag-warn">paused</span> : null}
              </th>
              {seesAll() ? <Rates series={series.get(queue.queue)} /> : null}
              <td class="number" data-label="oldest ready">
                <Oldest queue={queue} />
              </td>
              {STATES.map((state) => (
                <td class="number" key={state} data-label={state}>
                  <StateCount queue={queue} state={state} />
                </td>
              ))}
              {mayPause ? (
                <td class="row-actions">
                  <PauseButton queue={queue} refresh={refresh} />
                </td>
              ) : null}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Rates({ series }: { series: Series | undefined }) {
  const { succeeded, retrying, dead } = totalRuns(series);
  const runs = succeeded + retrying + dead;
  const failed = retrying + dead;
  return (
    <>
      <td class="number" data-label="rate">
        {runs ? rate(runs / 300) : <span class="zero">–</span>}
      </td>
      <td class="number" data-label="failed">
        {runs ? (
          <span class={failed ? "count-dead" : "zero"}>{share(failed, runs)}</span>
        ) : (
          <span class="zero">–</span>
        )}
      </td>
    </>
  );
}

function StateCount({ queue, state }: { queue: Queue; state: State }) {
  const value = queue.counts[state];
  if (value.value === 0) return <span class="zero">0</span>;
  const address = to(["jobs"], { state, queue: queue.queue });
  const isBad = state === "dead" || state === "retrying";
  return (
    <a class={isBad ? `count-${state}` : "plain-link"} href={address}>
      <Count value={value} />
    </a>
  );
}

function Oldest({ queue }: { queue: Queue }) {
  if (queue.oldest_ready_seconds === null) return <span class="zero">–</span>;
  return <span>{duration(queue.oldest_ready_seconds)}</span>;
}

export function PauseButton({ queue, refresh }: { queue: Queue; refresh: () => void }) {
  const name = queue.queue;
  async function set(verb: "pause" | "resume"): Promise<void> {
    await post(`v1/queues/${part(name)}/${verb}`);
    refresh();
  }
  function turn(verb: "pause" | "resume"): void {
    const back = verb === "pause" ? "resume" : "pause";
    void attempt(async () => {
      await set(verb);
      const text =
        verb === "pause" ? `${name} is paused: no job of it is claimed` : `${name} is resumed`;
      tell(text, { undo: () => void attempt(() => set(back)) });
    });
  }
  return queue.is_paused ? (
    <Button icon="play" onClick={() => turn("resume")} label={`Resume ${name}`}>
      Resume
    </Button>
  ) : (
    <Button icon="pause" onClick={() => turn("pause")} label={`Pause ${name}`}>
      Pause
    </Button>
  );
}
