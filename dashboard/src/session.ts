// Who is signed in. The session is a cookie that scripts can't read: no token is kept here, and
// every tab of the browser shares it.

import { signal } from "@preact/signals";

import { replace } from "./router.ts";
import type { components } from "./schema.ts";

export type Me = components["schemas"]["Me"];

/** Undefined: not known yet; null: nobody is signed in. */
export const me = signal<Me | null | undefined>(undefined);
/** Whether the session has ended while a page is open. The page is kept until the next sign-in. */
export const isOver = signal(false);

/** The server does not accept the session any more. */
export function lose(): void {
  if (me.value) isOver.value = true;
  else me.value = null;
}

export function enter(who: Me): void {
  me.value = who;
  isOver.value = false;
}

/** The user has signed out: nothing of theirs stays on the page, nor in other tabs. */
export function leave(): void {
  clear();
  tabs.postMessage("left");
}

function clear(): void {
  me.value = null;
  isOver.value = false;
}

// Of this dashboard: another one may be mounted at the same host.
const tabs = new BroadcastChannel(`rowlock ${location.pathname}`);
tabs.onmessage = clear;

const LOGIN = /^#login=([\w-]+)$/;

/** The code of a login link. It works once, and is removed from the address bar at once. */
export function takeLoginCode(): string | undefined {
  const found = LOGIN.exec(location.hash);
  if (found) replace("#/");
  return found?.[1];
}

export function may(scope: "read" | "enqueue" | "admin"): boolean {
  return me.value?.scopes.includes(scope) ?? false;
}

/** Whether what concerns all tenants may be seen. */
export function seesAll(): boolean {
  return me.value?.tenant === null;
}
