// Who is signed in. The token is kept in sessionStorage: it ends with the tab, is seen by no other
// site and no other tab, and is never sent by the browser on its own, as a cookie would be.

import { signal } from "@preact/signals";

const PLACE = "rowlock.token";

export const token = signal<string>(sessionStorage.getItem(PLACE) ?? "");

export interface Me {
  name: string;
  token_id: string | null;
  tenant: string | null;
  scopes: string[];
  is_open: boolean;
  version: string;
}

/** Undefined: not known yet; null: a token is needed. */
export const me = signal<Me | null | undefined>(undefined);

export function remember(text: string): void {
  sessionStorage.setItem(PLACE, text);
  token.value = text;
}

/** The token does not hold any more, or its owner leaves. */
export function forget(): void {
  sessionStorage.removeItem(PLACE);
  token.value = "";
  me.value = null;
}

export function may(scope: "read" | "enqueue" | "admin"): boolean {
  return me.value?.scopes.includes(scope) ?? false;
}

/** Whether what concerns all tenants may be seen. */
export function seesAll(): boolean {
  return me.value?.tenant === null;
}
