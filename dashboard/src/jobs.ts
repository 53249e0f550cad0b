// What is done to jobs, one by one or many, and what can be taken back.

import { signal } from "@preact/signals";

import { get, part, post, remove, type Schemas } from "./api.ts";
import { type Filter, resolved, type State } from "./filters.ts";
import { plural } from "./format.ts";
import { asProblem } from "./live.ts";
import { serverNow } from "./api.ts";
import { afterGrace, attempt, complain, tell } from "./ui/toasts.tsx";

export type Summary = Schemas["JobSummary"];
export type Action = "retry" | "cancel" | "delete";
export type Bulk = Schemas["Bulk"];

const DONE = { retry: "is ready again", cancel: "is cancelled", delete: "is deleted" };
export const VERBS: Record<Schemas["BulkAction"], string> = {
  retry: "Retry",
  cancel: "Cancel",
  delete: "Delete",
  run_now: "Run now",
  reschedule: "Reschedule",
  reroute: "Move to another queue",
  run_again: "Run again",
};
const PAST = { retry: "retried", cancel: "cancelled", delete: "deleted" };
/** How many requests of one action are under way at a time. */
const LANES = 4;
const PROGRESS_MS = 800;

/** Whether the API would take this action for a job in that state. */
export function allows(action: Action, state: State): boolean {
  if (action === "retry") return state === "dead" || state === "cancelled";
  if (action === "delete") return state !== "running";
  return state !== "succeeded" && state !== "dead" && state !== "cancelled";
}

async function actOn(action: Action, id: string): Promise<string | undefined> {
  if (action === "delete") {
    await remove(`v1/jobs/${part(id)}`);
    return undefined;
  }
  const answer = await post<{ outcome?: string }>(`v1/jobs/${part(id)}/${action}`);
  return answer.outcome;
}

/** Act on one job; `changed` is called when it has another state, or is back. */
export function actOnOne(
  action: Action,
  job: Summary,
  changed: () => void,
  gone?: () => void,
): void {
  if (action === "delete") {
    afterGrace(
      `${job.kind} is deleted`,
      async () => {
        await actOn("delete", job.id);
        (gone ?? changed)();
      },
      changed,
    );
    return;
  }
  void attempt(async () => {
    const outcome = await actOn(action, job.id);
    changed();
    const isPending = outcome === "pending_on_worker";
    const text = isPending ? `${job.kind} was asked to stop` : `${job.kind} ${DONE[action]}`;
    tell(text, action === "cancel" && !isPending ? { undo: () => back([job.id], changed) } : {});
  });
}

function back(ids: string[], changed: () => void): void {
  void attempt(async () => {
    await inLanes(ids, (id) => actOn("retry", id));
    tell(ids.length === 1 ? "It is ready again" : `${plural(ids.length, "job")} are ready again`);
    changed();
  });
}

/** Act on those that were selected, a few at a time, and tell what became of them. */
export function actOnSome(action: Action, jobs: Summary[], changed: () => void): void {
  const fit = jobs.filter((job) => allows(action, job.state));
  if (action === "delete") {
    afterGrace(
      `${plural(fit.length, "job")} deleted`,
      () => runSome(action, fit, changed),
      changed,
    );
    return;
  }
  void attempt(() => runSome(action, fit, changed));
}

async function runSome(action: Action, jobs: Summary[], changed: () => void): Promise<void> {
  const done: string[] = [];
  let refused: unknown;
  await inLanes(
    jobs.map((job) => job.id),
    async (id) => {
      try {
        await actOn(action, id);
        done.push(id);
      } catch (error) {
        refused = error;
      }
    },
  );
  changed();
  if (refused) complain(withCount(refused, jobs.length - done.length));
  if (!done.length || action === "delete") return;
  const text = `${plural(done.length, "job")} ${PAST[action]}`;
  tell(text, action === "cancel" ? { undo: () => back(done, changed) } : {});
}

function withCount(error: unknown, count: number): Error {
  const told = asProblem(error).message;
  return count === 1 ? new Error(told) : new Error(`${plural(count, "job")} failed: ${told}`);
}

async function inLanes(ids: string[], act: (id: string) => Promise<unknown>): Promise<void> {
  const waiting = [...ids];
  const lane = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) await act(id);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

// Work on all that match goes on at the server; here it is watched.

export type BulkFilter = Partial<Schemas["BulkFilter"]>;

export function bulkFilter(filter: Filter): BulkFilter {
  return resolved(filter, serverNow()) as BulkFilter;
}

export async function preview(action: Action, filter: BulkFilter): Promise<Schemas["Count"]> {
  const answer = await post<Schemas["BulkPreview"]>("v1/bulk", { action, filter, preview: true });
  return answer.count;
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
