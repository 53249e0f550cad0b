import { getWhole, part, post, type Schemas } from "../api.ts";
import type { State } from "../filters.ts";
import { duration, rate, type RateUnit, rateUnit, share } from "../format.ts";
import { everyMs, type History, loadHistory, runsOf, type Series, totalRuns } from "../history.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import { Button, Command, Count, Empty, Head, Skeleton, Trouble } from "../ui/basics.tsx";
import { Sparkline } from "../ui/sparkline.tsx";
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
  // One unit for the column.
  const unit = rateUnit([...series.values()].map((each) => runsOf(each) / SPAN_SECONDS));
  return (
    <div class="table-wrap">
      <table class="table queues">
        <thead>
          <tr>
            <th>Queue</th>
            {seesAll() ? (
              <>
                <th class="wide-only">Last 5 min</th>
                <th class="number">Rate</th>
                <th class="number">Failed</th>
              </>
            ) : null}
            <th class="number">Oldest ready</th>
            {SHOWN.map((state) => (
              <th class={`number ${MINOR.has(state) ? "wide-only" : ""}`} key={state}>
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
                <a class="name" href={to(["queues", queue.queue])}>
                  {queue.queue}
                </a>{" "}
                {queue.is_paused ? <span class="tag tag-warn">paused</span> : null}
              </th>
              {seesAll() ? <Rates series={series.get(queue.queue)} unit={unit} /> : null}
              <td class="number" data-label="oldest ready">
                <Oldest queue={queue} />
              </td>
              {SHOWN.map((state) => (
                <td
                  class={`number ${MINOR.has(state) ? "wide-only" : ""}`}
                  key={state}
                  data-label={state}
                >
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

const SHOWN: State[] = [
  "ready",
  "running",
  "retrying",
  "dead",
  "scheduled",
  "succeeded",
  "cancelled",
];
/** Left out where there is little room. */
const MINOR: ReadonlySet<State> = new Set(["scheduled", "succeeded", "cancelled"]);
const SPAN_SECONDS = 300;

function Rates({ series, unit }: { series: Series | undefined; unit: RateUnit }) {
  const { retrying, dead } = totalRuns(series);
  const runs = series ? runsOf(series) : 0;
  const failed = retrying + dead;
  return (
    <>
      <td class="wide-only">
        <Sparkline values={series?.succeeded.slice(0, -1) ?? []} tone="good" />
      </td>
      <td class="number" data-label="rate">
        {runs ? rate(runs / SPAN_SECONDS, unit) : <span class="zero">–</span>}
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

export function StateCount({ queue, state }: { queue: Queue; state: State }) {
  const value = queue.counts[state];
  if (value.value === 0) return <Count value={value} />;
  const address = to(["jobs"], { state, queue: queue.queue });
  const isBad = state === "dead" || state === "retrying";
  return (
    <a class={isBad ? `count-${state}` : "plain-link"} href={address}>
      <Count value={value} />
    </a>
  );
}

const OLD_SECONDS = 60;
const TOO_OLD_SECONDS = 600;

function Oldest({ queue }: { queue: Queue }) {
  const age = queue.oldest_ready_seconds;
  if (age === null) return <span class="zero">–</span>;
  const tone = age >= TOO_OLD_SECONDS ? "count-dead" : age >= OLD_SECONDS ? "count-retrying" : "";
  return <span class={tone}>{duration(age)}</span>;
}

export function PauseButton({
  queue,
  refresh,
  isWide = false,
}: {
  queue: Queue;
  refresh: () => void;
  /** There is room for words. */
  isWide?: boolean;
}) {
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
  const verb = queue.is_paused ? "resume" : "pause";
  const word = queue.is_paused ? "Resume" : "Pause";
  return (
    <Button
      kind={isWide ? "plain" : "ghost"}
      icon={queue.is_paused ? "play" : "pause"}
      title={word}
      onClick={() => turn(verb)}
      label={`${word} ${name}`}
    >
      {isWide ? word : null}
    </Button>
  );
}
