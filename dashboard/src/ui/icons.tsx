// Drawn here, so that nothing is loaded: strokes of one width on a grid of 16.

import type { State } from "../filters.ts";

const PATHS = {
  overview: "M2 13h12M4 13V8M8 13V3M12 13V6",
  jobs: "M5.5 4H14M5.5 8H14M5.5 12H14M2 4h.5M2 8h.5M2 12h.5",
  dead: "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.6v.1",
  queues: "M2 4.5h12M2 8h8M2 11.5h5M12 9.5v4M10.5 12l1.5 1.6L13.5 12",
  workers:
    "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  schedules: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 5v3.2l2.2 1.4",
  kinds: "M2.5 2.5h5l6 6-5 5-6-6zM5.3 5.3h.1",
  system: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.1M5.5 11h.1",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.6 10.6 14 14",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  again: "M3 8a5 5 0 0 1 8.6-3.5L13 6M13 2.5V6H9.5M13 8a5 5 0 0 1-8.6 3.5L3 10M3 13.5V10h3.5",
  move: "M2.5 8h10M9 4.5 12.5 8 9 11.5M14 3v10",
  limits: "M2.5 11.5a5.5 5.5 0 0 1 11 0M8 11.5 10.6 7M1.5 13.5h13",
  download: "M8 2.5v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  filter: "M2 3.5h12L9.5 9v4.5l-3-1.5V9z",
  up: "M4 10l4-4 4 4",
  wrap: "M2.5 4h11M2.5 8h8.5a2 2 0 0 1 0 4H8.5M10 10.5 8.5 12l1.5 1.5M2.5 12h3",
  cancel: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM3.8 3.8l8.4 8.4",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3l8 5-8 5z",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  workflows: "M2 6h4v4H2zM10 2.5h4v4h-4zM10 9.5h4v4h-4zM6 8h2M8 4.5h2M8 11.5h2M8 4.5v7",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  moon: "M13.5 9.5A5.8 5.8 0 0 1 6.5 2.5a5.8 5.8 0 1 0 7 7Z",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.4 6.3A1.7 1.7 0 1 1 8 8.6v.6M8 11.4v.1",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  exit: "M6 3H3v10h3M7 8h7M11.5 5.5 14 8l-2.5 2.5",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  dots: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  edit: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3z",
  key: "M10 6.5a3 3 0 1 0-3.4 3L2.5 13.5M5 11l1.5 1.5",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 5v3.2l2.2 1.4",
  dot: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  link: "M6.5 9.5l3-3M7 4.5 8.6 3a3 3 0 0 1 4.3 4.3L11.4 9M9 11.5 7.4 13A3 3 0 0 1 3.1 8.7L4.6 7",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  const isFilled = name === "play" || name === "dot";
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      aria-hidden="true"
      fill={isFilled ? "currentColor" : "none"}
      stroke="currentColor"
      stroke-width={name === "dots" ? 2.6 : 1.5}
      stroke-linecap="round"
      stroke-linejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Each state has its own shape beside its colour: neither has to be told apart alone. */
export const STATE_ICONS: Record<State, IconName> = {
  waiting: "clock",
  scheduled: "clock",
  ready: "dot",
  running: "play",
  retrying: "retry",
  succeeded: "check",
  dead: "close",
  cancelled: "cancel",
};
