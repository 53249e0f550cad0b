import { useEffect, useRef, useState } from "preact/hooks";

import { BASE, get, getExact, part, postExact, type Problem, type Schemas } from "../api.ts";
import { copyText } from "../clipboard.ts";
import { TERMINAL } from "../filters.ts";
import { duration, inZone } from "../format.ts";
import { type Action, actOnOne, allows, VERBS } from "../jobs.ts";
import { isObject, type Json, type JsonObject, parse, stringify } from "../json.ts";
import { asProblem, now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { may, me } from "../session.ts";
import { asCurl, asPython, retryWords } from "../snippet.ts";
import { useEvents } from "../stream.ts";
import { steps } from "../timeline.ts";
import { begin } from "../ui/actions.tsx";
import {
  Button,
  CopyButton,
  Empty,
  Facts,
  Head,
  KindLink,
  Meter,
  Panel,
  QueueLink,
  sentence,
  Skeleton,
  StateBadge,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { close, Dialog, open } from "../ui/dialog.tsx";
import { Icon } from "../ui/icons.tsx";
import { Menu } from "../ui/menu.tsx";
import { attempt, tell } from "../ui/toasts.tsx";
import { Tree } from "../ui/tree.tsx";
import { Attempts } from "./attempts.tsx";
import { Log } from "./joblog.tsx";
import { Related } from "./related.tsx";

export type Job = Omit<Schemas["Job"], "payload" | "result" | "meta"> & {
  payload: JsonObject;
  result: Json;
  meta: JsonObject;
};

interface Found {
  job: Job;
  why: Schemas["Reason"] | undefined;
  log: Schemas["LogLine"][];
}

const WAITING_MS = 4000;
// What a running job says of itself comes as events.
const RUNNING_MS = 10_000;
const ENDED_MS = 20_000;
const LOG_MS = 700;

async function load(id: string, signal: AbortSignal): Promise<Found> {
  const place = `v1/jobs/${part(id)}`;
  const [job, log] = await Promise.all([
    getExact<Job>(place, {}, signal),
    get<Schemas["JobLog"]>(`${place}/log`, {}, signal),
  ]);
  const why = TERMINAL.has(job.state)
    ? undefined
    : await get<Schemas["Reason"]>(`${place}/why`, {}, signal);
  return { job, why, log: log.lines };
}

export function JobScreen({ id }: { id: string }) {
  const [pace, setPace] = useState(WAITING_MS);
  const live = useLive((signal) => load(id, signal), pace, [pace]);
  const shown = useRef<Found | undefined>(undefined);
  const [, redraw] = useState(0);
  const logTimer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  if (live.data && live.data.job.id !== shown.current?.job.id) shown.current = live.data;
  useEffect(() => {
    if (live.data) shown.current = live.data;
    redraw((count) => count + 1);
  }, [live.data]);
  const found = shown.current;
  const state = found?.job.state;
  useEffect(() => {
    if (state)
      setPace(TERMINAL.has(state) ? ENDED_MS : state === "running" ? RUNNING_MS : WAITING_MS);
  }, [state]);
  useEvents(state && !TERMINAL.has(state) ? { job: id } : undefined, (event) => {
    const now = shown.current;
    if (!now) return;
    if (event.type === "progress") {
      shown.current = { ...now, job: { ...now.job, progress: event.progress ?? null } };
    } else if (event.type === "log") {
      // Lines may be alike: they are read anew, once for all that came together.
      logTimer.current ??= setTimeout(() => {
        logTimer.current = undefined;
        live.refresh();
      }, LOG_MS);
    } else if (event.type !== state) {
      live.refresh();
    }
    redraw((count) => count + 1);
  });
  if (live.problem?.status === 404) {
    return (
      <Empty icon="search" title="There is no such job">
        <p>It was deleted, its retention is over, or the address is wrong.</p>
        <p>
          <a class="button" href="#/jobs">
            Show all jobs
          </a>
        </p>
      </Empty>
    );
  }
  return (
    <>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {found ? (
        <Whole found={found} refresh={live.refresh} />
      ) : live.problem ? null : (
        <Skeleton rows={12} kind="page" />
      )}
    </>
  );
}

function Whole({ found, refresh }: { found: Found; refresh: () => void }) {
  const { job, why, log } = found;
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/jobs">Jobs</a> <Icon name="right" size={12} />
        {job.workflow ? (
          <>
            <a href={to(["workflows", job.workflow], job.stack ? { stack: job.stack } : {})}>
              Workflow
            </a>{" "}
            <Icon name="right" size={12} />
          </>
        ) : null}
      </nav>
      <Head
        title={
          <>
            {job.kind}{" "}
            <StateBadge
              state={job.state}
              note={job.cancel_requested && job.state === "running" ? "stopping" : undefined}
            />
          </>
        }
        sub={
          <span class="id-line">
            <code>{job.id}</code>
            <CopyButton text={job.id} label="Copy the id" />
          </span>
        }
      >
        <Actions job={job} refresh={refresh} />
      </Head>
      {why ? <Why why={why} /> : null}
      {job.state === "running" ? <Progress job={job} /> : null}
      <div class="columns">
        <div class="main-column">
          <Attempts job={job} />
          <Panel title="Payload">
            <Tree value={job.payload} label="Payload" />
          </Panel>
          {job.state === "succeeded" || job.result !== null ? (
            <Panel title="Result">
              <Tree value={job.result} label="Result" />
            </Panel>
          ) : null}
          <Log id={job.id} lines={log} isLive={job.state === "running"} />
        </div>
        <div class="side-column">
          <Panel title="Timeline">
            <Timeline job={job} />
          </Panel>
          <Panel title="Details">
            <Details job={job} />
          </Panel>
          <Related job={job} />
          {Object.keys(job.meta).length ? (
            <Panel title="Meta">
              <Tree value={job.meta} label="Meta" />
            </Panel>
          ) : null}
        </div>
      </div>
    </>
  );
}

/** What keeps it; of a job that a worker holds, whether it has begun. */
function Why({ why }: { why: Schemas["Reason"] }) {
  const isHeld = why.code === "running";
  return (
    <p class={`why why-${why.code}`}>
      <Icon name={isHeld ? "workers" : "help"} />{" "}
      <span>
        <b>{isHeld ? "Where it is:" : "Why it is not running:"}</b>{" "}
        {sentence(inZone(why.text, now.value))}
      </span>
    </p>
  );
}

const SECOND_ACTIONS: Action[] = ["reschedule", "reroute"];

function Actions({ job, refresh }: { job: Job; refresh: () => void }) {
  const isAdmin = may("admin");
  const act = (action: Action) => () =>
    begin(action, job.kind, (details) => actOnOne(action, job, refresh, details));
  const button = (action: Action, kind: "plain" | "primary" | "danger" = "plain") =>
    isAdmin && allows(action, job.state) ? (
      <Button kind={kind} icon={VERBS[action].icon} onClick={act(action)}>
        {VERBS[action].name}
      </Button>
    ) : null;
  const others = SECOND_ACTIONS.filter((action) => isAdmin && allows(action, job.state));
  return (
    <>
      {button("retry", "primary")}
      {isAdmin && allows("retry", job.state) ? (
        <Button icon="edit" onClick={() => open(<EditPayload job={job} refresh={refresh} />)}>
          Edit and retry
        </Button>
      ) : null}
      {button("run_now", "primary")}
      {button("run_again")}
      {isAdmin && allows("cancel", job.state) ? (
        <Button icon="cancel" isDisabled={job.cancel_requested} onClick={act("cancel")}>
          {job.cancel_requested ? "Stopping" : "Cancel"}
        </Button>
      ) : null}
      {button("delete", "danger")}
      {others.length ? (
        <Menu
          label="Move"
          icon="move"
          items={others.map((action) => ({
            text: VERBS[action].name,
            icon: VERBS[action].icon,
            act: act(action),
          }))}
        />
      ) : null}
      <CopyMenu job={job} />
    </>
  );
}

function CopyMenu({ job }: { job: Job }) {
  const copy = (what: string, text: () => string) => () =>
    void attempt(async () => {
      await copyText(text());
      tell(`Copied: ${what}`);
    });
  const curl = () => asCurl(job, BASE, !me.value?.is_open);
  return (
    <Menu
      label="Copy"
      icon="copy"
      items={[
        { text: "as curl", act: copy("a curl command", curl) },
        { text: "as Python", act: copy("Python", () => asPython(job)) },
        { text: "the payload", act: copy("the payload", () => stringify(job.payload)) },
        { text: "the address of this page", act: copy("the address", () => location.href) },
      ]}
    />
  );
}

function Progress({ job }: { job: Job }) {
  if (!job.progress) return null;
  const percent = Math.round(job.progress.fraction * 100);
  return (
    <div class="progress-card">
      <Meter value={job.progress.fraction} label="Progress" />
      <span>
        <b>{percent} %</b> {job.progress.text}
      </span>
    </div>
  );
}

function Timeline({ job }: { job: Job }) {
  return (
    <ol class="timeline">
      {steps(job).map((step, place) => (
        <li class={`step step-${step.tone}`} key={place}>
          <span class="step-title">{step.title}</span>
          <Time at={step.at} />
        </li>
      ))}
    </ol>
  );
}

function Details({ job }: { job: Job }) {
  return (
    <Facts
      facts={[
        ["Kind", <KindLink kind={job.kind} />],
        ["Queue", <QueueLink queue={job.queue} />],
        ...(job.workflow
          ? [
              [
                "Workflow",
                <a href={to(["workflows", job.workflow], job.stack ? { stack: job.stack } : {})}>
                  graph and state
                </a>,
              ] as [string, preact.JSX.Element],
            ]
          : []),
        ["Priority", job.priority],
        ["Attempt", `${job.attempt} of ${job.max_attempts}`],
        ...(job.tenant
          ? [
              ["Tenant", <a href={to(["tenants", job.tenant])}>{job.tenant}</a>] as [
                string,
                preact.JSX.Element,
              ],
            ]
          : []),
        ...(job.key
          ? [
              ["Key", <a href={to(["jobs"], { key: job.key })}>{job.key}</a>] as [
                string,
                preact.JSX.Element,
              ],
            ]
          : []),
        ...(job.tags.length
          ? [
              [
                "Tags",
                <span>
                  {job.tags.map((tag) => (
                    <a class="tag" key={tag} href={to(["jobs"], { tag })}>
                      {tag}
                    </a>
                  ))}
                </span>,
              ] as [string, preact.JSX.Element],
            ]
          : []),
        ...(job.worker
          ? [["Worker", <span class="name">{job.worker}</span>] as [string, preact.JSX.Element]]
          : []),
        ...(job.lease_expires_at
          ? [["Lease ends", <Time at={job.lease_expires_at} />] as [string, preact.JSX.Element]]
          : []),
        ["Due", <Time at={job.run_at} />],
        ["Time limit", job.timeout === null ? "none" : duration(job.timeout)],
        ["Retries", job.retry ? retryWords(job.retry) : "as its task says"],
        ["Kept once ended", kept(job.keep)],
        ["Kept if dead", kept(job.keep_dead)],
        ["Claims, crashes", `${job.token}, ${job.crashes} of ${job.max_crashes}`],
      ]}
    />
  );
}

function kept(seconds: number | null): string {
  return seconds === null ? "forever" : seconds === 0 ? "not at all" : duration(seconds);
}

function EditPayload({ job, refresh }: { job: Job; refresh: () => void }) {
  const [text, setText] = useState(stringify(job.payload));
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  let fault = "";
  let payload: JsonObject | undefined;
  try {
    const value = parse(text);
    if (isObject(value)) payload = value;
    else fault = "the payload must be a JSON object";
  } catch (error) {
    fault = asProblem(error).message;
  }
  async function run(): Promise<void> {
    setBusy(true);
    try {
      await postExact(`v1/jobs/${part(job.id)}/retry`, { payload: payload! });
      close();
      refresh();
      tell(`${job.kind} is ready again, with another payload`);
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  return (
    <Dialog
      title="Edit the payload and retry"
      class="wide"
      footer={
        <>
          <Button onClick={close}>Not now</Button>
          <Button
            kind="primary"
            icon="retry"
            isDisabled={!payload || isBusy}
            onClick={() => void run()}
          >
            Retry with this
          </Button>
        </>
      }
    >
      <textarea
        class="editor"
        aria-label="Payload"
        spellcheck={false}
        value={text}
        rows={Math.min(24, Math.max(6, text.split("\n").length + 1))}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setProblem(undefined);
        }}
      />
      <p class="fault" role="status">
        {fault ? sentence(fault) : ""}
      </p>
      {problem ? <Trouble problem={problem} /> : null}
    </Dialog>
  );
}
