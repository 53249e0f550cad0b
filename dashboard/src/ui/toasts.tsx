// Short news at the edge: what was done, and a way back where there is one.

import { signal } from "@preact/signals";

import { asProblem } from "../live.ts";
import { to } from "../router.ts";
import { Button, sentence } from "./basics.tsx";
import { Icon } from "./icons.tsx";

interface Toast {
  id: number;
  text: string;
  isTrouble: boolean;
  undo?: (() => void) | undefined;
  href?: string | undefined;
}

const TOAST_MS = 8000;
const toasts = signal<Toast[]>([]);
let last = 0;

function show(toast: Omit<Toast, "id">, forMs = TOAST_MS): number {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { ...toast, id }];
  if (forMs) setTimeout(() => dismiss(id), forMs);
  return id;
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** `job` is the id of a job that can be shown. */
export function tell(
  text: string,
  { job, ...options }: { undo?: () => void; href?: string; job?: string } = {},
): void {
  show({ text, isTrouble: false, ...(job ? { href: to(["jobs", job]) } : {}), ...options });
}

export function complain(error: unknown): void {
  show({ text: sentence(asProblem(error).message), isTrouble: true }, TOAST_MS * 2);
}

/** Run it; what fails is shown. */
export async function attempt(act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    complain(error);
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div class={`toast ${toast.isTrouble ? "toast-trouble" : ""}`} key={toast.id}>
          <Icon name={toast.isTrouble ? "dead" : "check"} />
          <p>{toast.text}</p>
          {toast.href ? (
            <a class="button" href={toast.href}>
              Show
            </a>
          ) : null}
          {toast.undo ? (
            <Button
              onClick={() => {
                dismiss(toast.id);
                toast.undo?.();
              }}
            >
              Undo
            </Button>
          ) : null}
          <Button kind="ghost" icon="close" label="Dismiss" onClick={() => dismiss(toast.id)} />
        </div>
      ))}
    </div>
  );
}
