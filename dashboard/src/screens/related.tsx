import type { Job } from "./job.tsx";

export function Related(_: { job: Job }) {
  return null;
}
