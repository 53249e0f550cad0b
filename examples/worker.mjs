// A worker in Node, without dependencies: leases jobs over HTTP, runs them, settles them.
//
//   rowlock serve --open &
//   node examples/worker.mjs
//   rowlock enqueue greet '{"name": "Ada"}'
//
// A lease is a job's id and a token. It is extended every third of its length for as long as the
// job runs; a job that is another's by then, or was asked to cancel, hears of it by `signal`.

const server = process.env.ROWLOCK_URL ?? "http://127.0.0.1:8765";
const worker = process.env.ROWLOCK_WORKER ?? `node-${process.pid}`;
const slots = Number(process.env.ROWLOCK_CONCURRENCY ?? 4);
const leaseSeconds = Number(process.env.ROWLOCK_LEASE ?? 30);

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// What this worker can run: a kind, and a function of the payload. What it returns is the result;
// what it throws is a failed attempt.
const tasks = {
  async greet({ name }) {
    return `Hello, ${name}!`;
  },
  async count({ to, seconds = 0 }, { signal, job }) {
    for (let number = 1; number <= to && !signal.aborted; number += 1) {
      await pause(seconds);
      job.progress = { fraction: number / to, text: `${number} of ${to}` };
      job.log.push(`counted ${number}`);
    }
    return to;
  },
  async fail({ message }) {
    throw new Error(message);
  },
};

const running = new Map();
const ended = [];
let stopping = false;

async function call(path, body) {
  const headers = { "content-type": "application/json" };
  if (process.env.ROWLOCK_TOKEN) headers.authorization = `Bearer ${process.env.ROWLOCK_TOKEN}`;
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function run(lease) {
  const abort = new AbortController();
  const job = { ...lease, abort, progress: null, log: [] };
  running.set(lease.id, job);
  const outcome = await attempt(job, abort.signal);
  await tell([job]);
  running.delete(lease.id);
  if (abort.signal.reason !== "lost") ended.push({ id: lease.id, token: lease.token, ...outcome });
}

async function attempt(job, signal) {
  try {
    const result = await tasks[job.kind](job.payload, { signal, job });
    if (signal.reason === "cancel_requested") return { outcome: "cancelled" };
    return { outcome: "succeeded", result: result ?? null };
  } catch (error) {
    const { name: type, message, stack: traceback } = error;
    return { outcome: "failed", error: { type, message, traceback } };
  }
}

// Extend leases, and tell what their jobs say of themselves.
async function tell(jobs) {
  if (jobs.length === 0) return;
  const told = jobs.map(({ id, token, progress, log }) => ({ id, token, progress, log: log.splice(0) }));
  try {
    const { leases } = await call("/v1/leases/heartbeat", { leases: told, lease: leaseSeconds });
    for (const { id, status } of leases) {
      if (status !== "kept") running.get(id)?.abort.abort(status);
    }
  } catch (error) {
    console.error(`no heartbeat: ${error.message}`);
  }
}

async function beat() {
  while (!stopping || running.size > 0) {
    await pause(Math.min(leaseSeconds / 3, 1));
    await tell([...running.values()]);
  }
}

// Outcomes are written together; what could not be written is there for the next try. One that was
// written, and only its answer lost, is told as already settled.
async function settle() {
  while (!stopping || running.size > 0 || ended.length > 0) {
    const settlements = ended.splice(0, 100);
    if (settlements.length === 0) {
      await pause(0.01);
      continue;
    }
    try {
      const { leases } = await call("/v1/leases/settle", { settlements });
      for (const { id, status } of leases) console.log(`${status} ${id}`);
    } catch (error) {
      console.error(`not settled: ${error.message}`);
      ended.unshift(...settlements);
      await pause(1);
    }
  }
}

async function claim() {
  while (!stopping) {
    const limit = slots - running.size;
    if (limit <= 0) {
      await pause(0.01);
      continue;
    }
    try {
      // A short wait, so that a signal is heeded soon.
      const asked = { worker, kinds: Object.keys(tasks), limit, lease: leaseSeconds, wait: 2 };
      const { leases } = await call("/v1/leases", asked);
      leases.forEach(run);
    } catch (error) {
      console.error(`nothing leased: ${error.message}`);
      await pause(1);
    }
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => {
    // What runs is finished; what this process would not live to settle, others take over.
    stopping = true;
  });
}

await Promise.all([claim(), beat(), settle()]);
