// The small parts that every screen is made of.

import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";

import type { Problem } from "../api.ts";
import { copyText } from "../clipboard.ts";
import { away } from "../connection.ts";
import type { State } from "../filters.ts";
import { clock, coarse, type Counted, counted, exact, relative } from "../format.ts";
import { now } from "../live.ts";
import { to } from "../router.ts";
import { Icon, type IconName, STATE_ICONS } from "./icons.tsx";

export function StateBadge({ state, note }: { state: State; note?: string | undefined }) {
  return (
    <span class={`state state-${state}`}>
      <Icon name={STATE_ICONS[state]} size={12} />
      {state}
      {note ? <span class="state-note">{note}</span> : null}
    </span>
  );
}

/** The time, and how far it is: "14:03:07, 2 min ago". Where there is no room, one of them. */
export function Time({
  at,
  empty = "–",
  show = "both",
}: {
  at: string | null | undefined;
  empty?: string;
  show?: "both" | "clock" | "relative";
}) {
  const moment = at ? Date.parse(at) : 0;
  const text = useComputed(() => (moment ? clock(moment, now.value) : empty));
  const far = useComputed(() => (moment ? relative(moment, now.value) : ""));
  const title = useComputed(() =>
    moment ? `${exact(new Date(moment))}, ${relative(moment, now.value)}` : "",
  );
  if (!at) return <span class="soft">{empty}</span>;
  return (
    <time dateTime={at} title={title}>
      {show === "relative" ? null : <span class="time-clock">{text}</span>}
      {show === "both" ? <span class="time-gap">, </span> : null}
      {show === "clock" ? null : <span class="time-far">{far}</span>}
    </time>
  );
}

/** How long since then, without "ago"; it grows by itself. */
export function Age({ since }: { since: string }) {
  const moment = Date.parse(since);
  const text = useComputed(() => coarse(Math.max(0, (now.value - moment) / 1000)));
  return (
    <time dateTime={since} title={exact(new Date(moment))}>
      {text}
    </time>
  );
}

export function Count({ value }: { value: Counted }) {
  if (value.value === 0 && value.exact) return <span class="zero">0</span>;
  const title = value.exact ? undefined : "at least this many: not all were counted";
  return <span title={title}>{counted(value)}</span>;
}

interface ButtonProps {
  children?: ComponentChildren;
  icon?: IconName;
  onClick?: () => void;
  kind?: "plain" | "primary" | "danger" | "ghost";
  isDisabled?: boolean | undefined;
  title?: string;
  type?: "button" | "submit";
  label?: string;
  class?: string;
  isExpanded?: boolean;
}

export function Button(props: ButtonProps) {
  const { children, icon, onClick, kind = "plain", isDisabled, title, type = "button" } = props;
  return (
    <button
      type={type}
      class={`button ${kind} ${props.class ?? ""}`}
      onClick={onClick}
      disabled={isDisabled}
      title={title}
      aria-label={props.label}
      aria-expanded={props.isExpanded}
    >
      {icon ? <Icon name={icon} /> : null}
      {children ? <span>{children}</span> : null}
    </button>
  );
}

export function Head({
  title,
  sub,
  children,
}: {
  title: ComponentChildren;
  sub?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <header class="head">
      <div class="head-text">
        <h1 tabIndex={-1}>{title}</h1>
        {sub ? <p class="sub">{sub}</p> : null}
      </div>
      {children ? <div class="actions">{children}</div> : null}
    </header>
  );
}

/** Something went wrong: what, and a way to try again. What is shown beside it is as it was. */
export function Trouble({ problem, retry }: { problem: Problem; retry?: () => void }) {
  // The frame says so already, with a countdown.
  if (problem.code === "unreachable" && away.value) return null;
  return (
    <div class="trouble" role="alert">
      <Icon name="dead" />
      <p>
        {sentence(problem.message)}
        {problem.fields.map((each) => (
          <span class="trouble-field" key={each.field}>
            <code>{each.field}</code> {each.message}
          </span>
        ))}
      </p>
      {retry ? (
        <Button icon="retry" onClick={retry}>
          Try again
        </Button>
      ) : null}
    </div>
  );
}

export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/** Nothing is here: why, and what to do next. */
export function Empty({
  icon,
  title,
  children,
}: {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={icon} size={24} />
      </span>
      <h2>{title}</h2>
      <div class="empty-text">{children}</div>
    </div>
  );
}

export function Command({ children }: { children: string }) {
  return (
    <span class="command">
      <code>{children}</code>
      <CopyButton text={children} label="Copy the command" />
    </span>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  async function copy(event: MouseEvent): Promise<void> {
    event.stopPropagation();
    const button = event.currentTarget as HTMLElement;
    try {
      await copyText(text);
    } catch {
      // The text is there to be selected by hand; the button says that it did not work.
      button.title = "This browser does not let the page copy: select the text instead";
      return;
    }
    button.dataset["done"] = "";
    setTimeout(() => delete button.dataset["done"], 1200);
  }
  return (
    <button type="button" class="copy" title={label} aria-label={label} onClick={copy}>
      <Icon name="copy" size={14} />
      <Icon name="check" size={14} />
    </button>
  );
}

/** Grey bars where lines will be: nothing moves when they come. */
export function Skeleton({ rows = 8, kind = "rows" }: { rows?: number; kind?: string }) {
  return (
    <div class={`skeleton skeleton-${kind}`} role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, place) => (
        <span class="bone" key={place} />
      ))}
    </div>
  );
}

export function Meter({ value, label }: { value: number; label: string }) {
  const percent = Math.round(Math.min(1, Math.max(0, value)) * 100);
  return (
    <span
      class="meter"
      role="progressbar"
      aria-valuenow={percent}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-label={label}
    >
      <span style={{ width: `${percent}%` }} />
    </span>
  );
}

export function KindLink({ kind }: { kind: string }) {
  return (
    <a href={to(["kinds", kind])} class="name">
      {kind}
    </a>
  );
}

export function QueueLink({ queue }: { queue: string }) {
  return (
    <a href={to(["queues", queue])} class="name soft-link">
      {queue}
    </a>
  );
}

export function Panel({
  title,
  children,
  aside,
  class: name = "",
}: {
  title?: ComponentChildren;
  children: ComponentChildren;
  aside?: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`panel ${name}`}>
      {title ? (
        <div class="panel-head">
          <h2>{title}</h2>
          {aside}
        </div>
      ) : null}
      {children}
    </section>
  );
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
