// The address: everything behind `#`, so that it works below any prefix without a server's help.

import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
addEventListener("hashchange", () => {
  hash.value = location.hash;
});

export interface Route {
  /** Decoded segments: ["jobs", "018f…"]. */
  path: string[];
  query: URLSearchParams;
}

export const route = computed<Route>(() => parse(hash.value));

export function parse(text: string): Route {
  const [path = "", query = ""] = text.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const segments = path.split("/").filter(Boolean).map(decoded);
  return { path: segments, query: new URLSearchParams(query) };
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** The address of a place: `to(["jobs", id])`. */
export function to(path: string[], query?: URLSearchParams | Record<string, string>): string {
  const search = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(address: string): void {
  location.hash = address;
}

/** Change the address without a step in the history: while a filter is being typed. */
export function replace(address: string): void {
  history.replaceState(null, "", address);
  hash.value = location.hash;
}
