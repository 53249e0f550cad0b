// The life of a job as steps, from what its row still knows.

import { duration } from "./format.ts";

export interface Lived {
  state: string;
  attempt: number;
  max_attempts: number;
  created_at: string;
  run_at: string;
  started_at: string | null;
  finished_at: string | null;
  lease_expires_at: string | null;
  worker: string | null;
  errors: { attempt: number; time: string; type: string; message: string }[];
}

export interface Step {
  at: string;
  title: string;
  note: string;
  tone: "plain" | "good" | "bad" | "warn" | "active";
}

const SOON_MS = 500;

/** Oldest first. What lies ahead comes last. */
export function steps(job: Lived): Step[] {
  const made: Step[] = [{ at: job.created_at, title: "Enqueued", note: "", tone: "plain" }];
  for (const error of job.errors) {
    const isLost = error.type === "LeaseExpired" || /lease expired/i.test(error.message);
    made.push({
      at: error.time,
      title: `Attempt ${error.attempt} ${isLost ? "was lost" : "failed"}`,
      note: `${error.type}: ${error.message}`.split("\n")[0]!.slice(0, 200),
      tone: "bad",
    });
  }
  if (job.started_at && !isOver(job.errors, job.started_at)) {
    made.push({
      at: job.started_at,
      title: `Attempt ${job.attempt} began`,
      note: [waited(job), job.worker ? `on ${job.worker}` : ""].filter(Boolean).join(", "),
      tone: job.state === "running" ? "active" : "plain",
    });
  }
  const end = ending(job);
  if (end) made.push(end);
  return made.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/** Whether the last run began before the last failure: then its beginning says nothing new. */
function isOver(errors: Lived["errors"], started: string): boolean {
  const last = errors.at(-1);
  return last !== undefined && Date.parse(last.time) >= Date.parse(started);
}

function waited(job: Lived): string {
  const since = Math.max(Date.parse(job.created_at), job.attempt > 1 ? 0 : Date.parse(job.run_at));
  const gap = Date.parse(job.started_at!) - since;
  return job.attempt <= 1 && gap >= 1 ? `after waiting ${duration(gap / 1000)}` : "";
}

function ending(job: Lived): Step | undefined {
  const ran =
    job.started_at && job.finished_at
      ? Date.parse(job.finished_at) - Date.parse(job.started_at)
      : undefined;
  const note = ran === undefined || ran < 0 ? "" : `after running ${duration(ran / 1000)}`;
  switch (job.state) {
    case "succeeded":
      return { at: job.finished_at!, title: "Succeeded", note, tone: "good" };
    case "dead":
      return {
        at: job.finished_at!,
        title: "Given up",
        note: `after ${job.attempt} of ${job.max_attempts} attempts`,
        tone: "bad",
      };
    case "cancelled":
      return { at: job.finished_at!, title: "Cancelled", note: "", tone: "warn" };
    case "retrying":
      return {
        at: job.run_at,
        title: `Attempt ${job.attempt + 1} is due`,
        note: "",
        tone: "active",
      };
    case "scheduled":
      return { at: job.run_at, title: "It is due", note: "", tone: "active" };
    case "ready":
      return Date.parse(job.run_at) - Date.parse(job.created_at) > SOON_MS
        ? { at: job.run_at, title: "Ready", note: "", tone: "active" }
        : undefined;
    default:
      return undefined;
  }
}
