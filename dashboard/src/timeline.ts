// The life of a job as its attempts, from what its row still knows.

export interface Failure {
  attempt: number;
  time: string;
  type: string;
  message: string;
  traceback: string;
}

export interface Lived {
  state: string;
  attempt: number;
  max_attempts: number;
  created_at: string;
  run_at: string;
  started_at: string | null;
  finished_at: string | null;
  worker: string | null;
  errors: Failure[];
}

export interface Attempt {
  /** "Attempt 2", or "Attempts 1 to 3" if they failed alike. */
  title: string;
  outcome: "failed" | "lost" | "running" | "succeeded" | "dead" | "cancelled";
  /** When it began; only of the last run that is known. */
  from: string | null;
  /** When it ended; null while it runs. */
  to: string | null;
  worker: string | null;
  error: Failure | undefined;
  times: number;
}

/** The newest first. The same error several times in a row is told once. */
export function attemptsOf(job: Lived): Attempt[] {
  const found: Attempt[] = [];
  for (const error of job.errors) {
    const last = found[0];
    if (last?.error && isAlike(last.error, error)) {
      const first = last.error.attempt - last.times + 1;
      found[0] = {
        ...last,
        title: `Attempts ${first} to ${error.attempt}`,
        to: error.time,
        error,
        times: last.times + 1,
      };
      continue;
    }
    found.unshift({
      title: `Attempt ${error.attempt}`,
      outcome: isLost(error) ? "lost" : "failed",
      from: null,
      to: error.time,
      worker: null,
      error,
      times: 1,
    });
  }
  const last = found[0];
  if (last && job.state === "dead") found[0] = { ...last, outcome: "dead" };
  // A run that has begun, and of which no error tells: it goes on, or has ended well.
  const run = lastRun(job);
  if (run) found.unshift(run);
  else if (last?.times === 1 && isOfRun(job, last.to)) {
    found[0] = { ...found[0]!, from: job.started_at, worker: job.worker };
  }
  return found;
}

function isAlike(a: Failure, b: Failure): boolean {
  return a.type === b.type && a.message === b.message && b.attempt === a.attempt + 1;
}

function isLost(error: Failure): boolean {
  return error.type === "LeaseExpired" || /lease expired/i.test(error.message);
}

/** Whether the last run began before this end, which is then its own. */
function isOfRun(job: Lived, end: string | null): boolean {
  return job.started_at !== null && end !== null && Date.parse(job.started_at) <= Date.parse(end);
}

function lastRun(job: Lived): Attempt | undefined {
  const isRunning = job.state === "running";
  const isOver = job.state === "succeeded" || job.state === "cancelled";
  if (!job.started_at || !(isRunning || isOver)) return undefined;
  // A job that was claimed and given back has a start, and no attempt.
  if (job.attempt === 0) return undefined;
  const lastError = job.errors.at(-1);
  if (lastError && Date.parse(lastError.time) >= Date.parse(job.started_at)) return undefined;
  return {
    title: `Attempt ${job.attempt}`,
    outcome: isRunning ? "running" : (job.state as "succeeded" | "cancelled"),
    from: job.started_at,
    to: isRunning ? null : job.finished_at,
    worker: job.worker,
    error: undefined,
    times: 1,
  };
}

export interface Step {
  at: string;
  title: string;
  tone: "plain" | "good" | "bad" | "warn" | "active";
}

/** Its turning points, oldest first; what lies ahead comes last. Attempts are told apart. */
export function steps(job: Lived): Step[] {
  const found: Step[] = [{ at: job.created_at, title: "Enqueued", tone: "plain" }];
  const isDelayed = Date.parse(job.run_at) - Date.parse(job.created_at) > SOON_MS;
  if (job.state === "scheduled") found.push({ at: job.run_at, title: "Due", tone: "active" });
  else if (job.state === "retrying")
    found.push({ at: job.run_at, title: `Attempt ${job.attempt + 1} is due`, tone: "active" });
  else if (job.state === "ready" && isDelayed)
    found.push({ at: job.run_at, title: "Ready", tone: "active" });
  else if (job.state === "running" && job.started_at)
    found.push({ at: job.started_at, title: `Attempt ${job.attempt} claimed`, tone: "active" });
  const end = ENDS[job.state];
  if (end && job.finished_at) found.push({ at: job.finished_at, ...end });
  return found;
}

const SOON_MS = 500;
const ENDS: Record<string, Omit<Step, "at">> = {
  succeeded: { title: "Succeeded", tone: "good" },
  dead: { title: "Given up", tone: "bad" },
  cancelled: { title: "Cancelled", tone: "warn" },
};
