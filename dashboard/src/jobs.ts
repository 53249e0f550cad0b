// What is done to jobs, one by one or many, and what can be taken back.
//
// A cancelled job that is taken back is ready at once, with all its attempts. So only a job that
// was ready, and had no attempt yet, has an Undo. It is due from then on, behind its queue.

import { signal } from "@preact/signals";

import { get, part, post, remove, type Schemas, serverNow } from "./api.ts";
import { type ApiFilter, resolved, type State, TERMINAL } from "./filters.ts";
import { plural } from "./format.ts";
import type { Summary } from "./joblist.ts";
import { asProblem } from "./live.ts";
import type { IconName } from "./ui/icons.tsx";
import { attempt, complain, tell } from "./ui/toasts.tsx";

export type { Summary } from "./joblist.ts";
export type Action = Schemas["BulkAction"];
export type Bulk = Schemas["Bulk"];

/** What an action needs besides the jobs: the queue of a reroute, the time of a reschedule. */
export interface Details {
  queue?: string;
  runAt?: string;
}

interface Verb {
  name: string;
  icon: IconName;
  /** Of one job: "send_email is cancelled". */
  done: string;
  past: string;
  /** The states in which the API takes it. */
  states: ReadonlySet<State>;
  /** Why it can't be done to a job in another state. */
  reason: string;
  path: string;
}

const WAITING: ReadonlySet<State> = new Set(["scheduled", "ready", "retrying"]);

export const VERBS: Record<Action, Verb> = {
  retry: {
    name: "Retry",
    icon: "retry",
    done: "is ready again",
    past: "retried",
    states: new Set(["dead", "cancelled"]),
    reason: "Only dead and cancelled jobs can be retried",
    path: "retry",
  },
  run_now: {
    name: "Run now",
    icon: "play",
    done: "is due now",
    past: "made due now",
    states: new Set(["scheduled", "retrying"]),
    reason: "Only scheduled and retrying jobs can be made due now",
    path: "run-now",
  },
  run_again: {
    name: "Run again",
    icon: "again",
    done: "is enqueued again, as a new job",
    past: "enqueued again, as new jobs",
    states: TERMINAL,
    reason: "Only jobs that have ended can be run again",
    path: "run-again",
  },
  reschedule: {
    name: "Reschedule",
    icon: "clock",
    done: "is rescheduled",
    past: "rescheduled",
    states: WAITING,
    reason: "Only jobs that wait can be rescheduled",
    path: "reschedule",
  },
  reroute: {
    name: "Move to a queue",
    icon: "move",
    done: "is moved",
    past: "moved",
    states: WAITING,
    reason: "Only jobs that wait can be moved to another queue",
    path: "reroute",
  },
  cancel: {
    name: "Cancel",
    icon: "cancel",
    done: "is cancelled",
    past: "cancelled",
    states: new Set<State>([...WAITING, "running"]),
    reason: "Only jobs that have not ended can be cancelled",
    path: "cancel",
  },
  delete: {
    name: "Delete",
    icon: "trash",
    done: "is deleted",
    past: "deleted",
    states: new Set<State>([...WAITING, ...TERMINAL]),
    reason: "A running job can't be deleted: cancel it first",
    path: "",
  },
};

/** Actions that need a word from the user before they begin. */
export const NEEDS_DETAILS: ReadonlySet<Action> = new Set(["reschedule", "reroute"]);

/** How many requests of one action are under way at a time. */
const LANES = 4;
const PROGRESS_MS = 800;

/** Whether the API would take this action for a job in that state. */
export function allows(action: Action, state: State): boolean {
  return VERBS[action].states.has(state);
}

/** Whether a retry after the cancel of it leaves the job as it was. */
export function canTakeBack(job: { state: State; attempt: number }): boolean {
  return job.state === "ready" && job.attempt === 0;
}

interface Answer {
  outcome?: string;
  id?: string;
}

async function actOn(action: Action, id: string, details: Details = {}): Promise<Answer> {
  const place = `v1/jobs/${part(id)}`;
  if (action === "delete") {
    await remove(place);
    return {};
  }
  const body =
    action === "reroute"
      ? { queue: details.queue }
      : action === "reschedule"
        ? { run_at: details.runAt }
        : undefined;
  return post<Answer>(`${place}/${VERBS[action].path}`, body);
}

/** Act on one job, and say what became of it. Throws what the API refuses. */
export async function actOnOne(
  action: Action,
  job: Pick<Summary, "id" | "kind" | "state" | "attempt">,
  changed: () => void,
  details: Details = {},
): Promise<void> {
  const answer = await actOn(action, job.id, details);
  changed();
  if (answer.outcome === "pending_on_worker") return tell(`${job.kind} was asked to stop`);
  const text = `${job.kind} ${VERBS[action].done}`;
  if (action === "cancel" && canTakeBack(job))
    return tell(text, { undo: () => takeBack([job.id], changed) });
  tell(text, action === "run_again" && answer.id ? { job: answer.id } : {});
}

function takeBack(ids: string[], changed: () => void): void {
  void attempt(async () => {
    await inLanes(ids, (id) => actOn("retry", id));
    const what = ids.length === 1 ? "It is" : `${plural(ids.length, "job")} are`;
    tell(`${what} ready again, at the end of the queue`);
    changed();
  });
}

/** Act on those that were selected, a few at a time, and tell what became of them. */
export async function actOnSome(
  action: Action,
  jobs: Summary[],
  changed: () => void,
  details: Details = {},
): Promise<void> {
  const fit = jobs.filter((job) => allows(action, job.state));
  const done: Summary[] = [];
  let refused: unknown;
  await inLanes(fit, async (job) => {
    try {
      await actOn(action, job.id, details);
      done.push(job);
    } catch (error) {
      refused = error;
    }
  });
  changed();
  if (refused) complain(withCount(refused, fit.length - done.length));
  if (!done.length) return;
  const text = `${plural(done.length, "job")} ${VERBS[action].past}`;
  const canUndo = action === "cancel" && done.every(canTakeBack);
  const ids = done.map((job) => job.id);
  tell(text, canUndo ? { undo: () => takeBack(ids, changed) } : {});
}

function withCount(error: unknown, count: number): Error {
  const { message } = asProblem(error);
  return count === 1 ? new Error(message) : new Error(`${plural(count, "job")} failed: ${message}`);
}

async function inLanes<T>(items: T[], act: (item: T) => Promise<unknown>): Promise<void> {
  const waiting = [...items];
  const lane = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await act(item);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

// Work on all that match goes on at the server; here it is watched.

export type BulkFilter = Partial<Schemas["BulkFilter"]>;

export function bulkFilter(filter: ApiFilter): BulkFilter {
  return resolved(filter, serverNow()) as BulkFilter;
}

/** The options of the request that an action needs. */
export function bulkDetails(action: Action, details: Details): Partial<Schemas["NewBulk"]> {
  if (action === "reroute") return { to: details.queue ?? null };
  if (action === "reschedule") return { run_at: details.runAt ?? null };
  return {};
}

export async function preview(
  action: Action,
  filter: BulkFilter,
  extra: Partial<Schemas["NewBulk"]>,
): Promise<Schemas["Count"]> {
  const body = { ...extra, action, filter, preview: true };
  return (await post<Schemas["BulkPreview"]>("v1/bulk", body)).count;
}

export const bulks = signal<Bulk[]>([]);

/** Begin it, and watch it until it has ended. */
export async function startBulk(body: Schemas["NewBulk"], changed: () => void): Promise<void> {
  const begun = await post<Bulk>("v1/bulk", body);
  put(begun);
  void watch(begun, changed);
}

function put(bulk: Bulk): void {
  const others = bulks.value.filter((each) => each.id !== bulk.id);
  bulks.value = [...others, bulk];
}

export function dropBulk(id: string): void {
  bulks.value = bulks.value.filter((each) => each.id !== id);
}

async function watch(bulk: Bulk, changed: () => void): Promise<void> {
  let trouble = 0;
  while (bulk.state === "running" && trouble < 10) {
    await new Promise((wake) => setTimeout(wake, PROGRESS_MS * 2 ** Math.min(trouble, 4)));
    try {
      bulk = await get<Bulk>(`v1/bulk/${bulk.id}`);
      trouble = 0;
      put(bulk);
    } catch {
      // The work goes on without us; we look again.
      trouble += 1;
    }
  }
  changed();
}
