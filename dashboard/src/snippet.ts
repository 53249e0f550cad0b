// A job as a command or a program that enqueues it again.

import { duration } from "./format.ts";
import { Digits, type Json, type JsonObject, stringify } from "./json.ts";

export interface Enqueued {
  kind: string;
  payload: JsonObject;
  queue: string;
  priority: number;
  tenant: string | null;
  tags: string[];
}

/** A curl command for any POSIX shell. The token is a variable: a secret is not for clipboards. */
export function asCurl(job: Enqueued, address: string, needsToken: boolean): string {
  const body: JsonObject = { kind: job.kind, payload: job.payload, queue: job.queue };
  if (job.priority) body["priority"] = job.priority;
  if (job.tenant !== null) body["tenant"] = job.tenant;
  if (job.tags.length) body["tags"] = job.tags;
  const lines = [`curl ${shell(`${address}v1/jobs`)}`];
  if (needsToken) lines.push(`  -H "Authorization: Bearer $ROWLOCK_TOKEN"`);
  lines.push(`  --json ${shell(stringify(body, 0))}`);
  return lines.join(" \\\n");
}

export function shell(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A few lines of Python, with the payload as Python writes it. */
export function asPython(job: Enqueued): string {
  const options = [`queue=${python(job.queue)}`];
  if (job.priority) options.push(`priority=${job.priority}`);
  if (job.tenant !== null) options.push(`tenant=${python(job.tenant)}`);
  if (job.tags.length) options.push(`tags=${python(job.tags)}`);
  return [
    "import rowlock",
    "",
    "app = rowlock.App()",
    "app.enqueue(",
    `    ${python(job.kind)},`,
    `    ${python(job.payload)},`,
    `    ${options.join(", ")},`,
    ")",
  ].join("\n");
}

function python(value: Json): string {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (value instanceof Digits) return value.text;
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([name, each]) => `${quoted(name)}: ${python(each)}`)
    .join(", ")}}`;
}

/** JSON's escapes are Python's too, but for characters that JSON leaves as they are. */
function quoted(text: string): string {
  return JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029]/g, (each) => {
    return `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** The stored retry policy in words: its name, and its numbers as durations. */
export function retryWords(retry: (string | number)[]): string {
  const [name, ...numbers] = retry;
  if (name === "exponential" && typeof numbers[0] === "number") {
    const most = numbers[1];
    const end = typeof most === "number" ? `, up to ${duration(most)}` : "";
    return `exponential, from ${duration(numbers[0])}${end}`;
  }
  if (name === "fixed" && typeof numbers[0] === "number") return `every ${duration(numbers[0])}`;
  return retry.map(String).join(" ");
}
