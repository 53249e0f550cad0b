import { getExact, part, post, type Schemas } from "../api.ts";
import { words } from "../cron.ts";
import { clock } from "../format.ts";
import { type JsonObject, stringify } from "../json.ts";
import { now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { may } from "../session.ts";
import {
  Button,
  Command,
  Empty,
  Head,
  KindLink,
  Skeleton,
  StateBadge,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { attempt, tell } from "../ui/toasts.tsx";

export type Schedule = Omit<Schemas["Schedule"], "payload"> & { payload: JsonObject };
interface Page {
  schedules: Schedule[];
  next: string | null;
}

const EVERY_MS = 6000;
const PAGES_MAX = 20;

async function loadAll(signal: AbortSignal): Promise<Schedule[]> {
  const all: Schedule[] = [];
  let cursor: string | undefined;
  for (let asked = 0; asked < PAGES_MAX; asked += 1) {
    const page: Page = await getExact("v1/schedules", { limit: 200, cursor }, signal);
    all.push(...page.schedules);
    if (!page.next) break;
    cursor = page.next;
  }
  return all;
}

export function Schedules() {
  const live = useLive(loadAll, EVERY_MS, []);
  const schedules = live.data;
  return (
    <>
      <Head
        title="Schedules"
        sub="Jobs that are enqueued at their times, once each, however many schedulers there are."
      />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {schedules === undefined && !live.problem ? <Skeleton /> : null}
      {schedules?.length === 0 ? (
        <Empty icon="schedules" title="Nothing is scheduled">
          <p>Give a task a time in your program, and run a worker:</p>
          <Command>{`@app.task(cron="30 9 * * 1-5", timezone="Europe/Berlin")`}</Command>
        </Empty>
      ) : null}
      {schedules?.length ? (
        <div class="table-wrap">
          <table class="table schedules">
            <thead>
              <tr>
                <th>Schedule</th>
                <th>When</th>
                <th>Next</th>
                <th>Last</th>
                <th class="wide-only">Enqueues</th>
                {may("admin") ? (
                  <th>
                    <span class="hidden">Actions</span>
                  </th>
                ) : null}
              </tr>
            </thead>
            <tbody>
              {schedules.map((each) => (
                <Row key={each.name} schedule={each} refresh={live.refresh} />
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </>
  );
}

function Row({ schedule, refresh }: { schedule: Schedule; refresh: () => void }) {
  const sentence = words(schedule.cron);
  const payload = stringify(schedule.payload, 0);
  const source = schedule.source === "code" ? "declared in code" : "made by hand";
  return (
    <tr class={schedule.is_paused ? "row-still" : ""}>
      <th scope="row">
        <span class="name" title={`${source}; ${MISSED[schedule.missed]}`}>
          {schedule.name}
        </span>{" "}
        {schedule.is_paused ? <span class="tag tag-warn">paused</span> : null}
      </th>
      <td data-label="when">
        <span>
          {sentence ?? <code>{schedule.cron}</code>}
          <span class="soft" title={schedule.cron}>
            {" "}
            {schedule.timezone}
          </span>
        </span>
      </td>
      <td data-label="next">
        <Next schedule={schedule} />
      </td>
      <td data-label="last">
        <Last schedule={schedule} />
      </td>
      <td class="wide-only" data-label="enqueues">
        <KindLink kind={schedule.kind} /> <span class="soft">in {schedule.queue}</span>
        {payload === "{}" ? null : (
          <code class="inline-json soft" title={payload}>
            {" "}
            {payload}
          </code>
        )}
      </td>
      {may("admin") ? (
        <td class="row-actions">
          <Actions schedule={schedule} refresh={refresh} />
        </td>
      ) : null}
    </tr>
  );
}

const MISSED: Record<string, string> = {
  skip: "missed times are skipped",
  once: "missed times are made up for once",
  all: "every missed time is made up for",
};

function Next({ schedule }: { schedule: Schedule }) {
  if (schedule.is_paused) return <span class="soft">not until it is resumed</span>;
  const later = schedule.upcoming
    .slice(1, 4)
    .map((each) => clock(Date.parse(each), now.value))
    .join(", ");
  return (
    <span title={later ? `then ${later}` : ""}>
      <Time at={schedule.next_at} />
    </span>
  );
}

function Last({ schedule }: { schedule: Schedule }) {
  if (!schedule.last_at) return <span class="soft">never yet</span>;
  const state = schedule.last_state;
  return (
    <>
      <Time at={schedule.last_at} />{" "}
      {schedule.last_job_id ? (
        <a href={to(["jobs", schedule.last_job_id])}>
          {state ? <StateBadge state={state} /> : "its job"}
        </a>
      ) : null}
    </>
  );
}

function Actions({ schedule, refresh }: { schedule: Schedule; refresh: () => void }) {
  const place = `v1/schedules/${part(schedule.name)}`;
  async function set(verb: "pause" | "resume"): Promise<void> {
    await post(`${place}/${verb}`);
    refresh();
  }
  function turn(verb: "pause" | "resume"): void {
    void attempt(async () => {
      await set(verb);
      const back = verb === "pause" ? "resume" : "pause";
      tell(verb === "pause" ? `${schedule.name} is paused` : `${schedule.name} is resumed`, {
        undo: () => void attempt(() => set(back)),
      });
    });
  }
  function runNow(): void {
    void attempt(async () => {
      const made = await post<Schemas["JobReceipt"]>(`${place}/run`);
      tell(made.created ? `${schedule.kind} is enqueued` : "Its job is in flight already", {
        href: to(["jobs", made.id]),
      });
      refresh();
    });
  }
  return (
    <>
      <Button kind="ghost" icon="again" onClick={runNow} label={`Run now: ${schedule.name}`}>
        Run now
      </Button>
      {schedule.is_paused ? (
        <Button
          kind="ghost"
          icon="play"
          title="Resume"
          onClick={() => turn("resume")}
          label={`Resume ${schedule.name}`}
        />
      ) : (
        <Button
          kind="ghost"
          icon="pause"
          title="Pause"
          onClick={() => turn("pause")}
          label={`Pause ${schedule.name}`}
        />
      )}
    </>
  );
}
