// A document for tests of components. To be imported before anything that needs one.

import { Window } from "happy-dom";

const window = new Window({ url: "http://dashboard.test/", width: 1280, height: 800 });

const NAMES = [
  "document",
  "location",
  "history",
  "localStorage",
  "navigator",
  "matchMedia",
  "getComputedStyle",
  "getSelection",
  "scrollTo",
  "innerHeight",
  "addEventListener",
  "removeEventListener",
  "requestAnimationFrame",
  "cancelAnimationFrame",
  "IntersectionObserver",
  "HTMLElement",
  "HTMLInputElement",
  "Node",
  "Event",
  "MouseEvent",
  "KeyboardEvent",
] as const;
for (const name of NAMES) {
  const value: unknown = window[name];
  const isMethod = typeof value === "function" && !/^[A-Z]/.test(name);
  Object.defineProperty(globalThis, name, {
    value: isMethod ? (value as () => void).bind(window) : value,
    configurable: true,
    writable: true,
  });
}

/** Requests of the components, answered by the test. */
export const answers = new Map<string, unknown>();
export const asked: string[] = [];
globalThis.fetch = async (input) => {
  const url = new URL(String(input));
  asked.push(url.pathname.slice(1) + url.search);
  const answer = answers.get(url.pathname.slice(1));
  if (answer === undefined) return new Response("{}", { status: 404 });
  return new Response(JSON.stringify(answer), { headers: { "content-type": "application/json" } });
};

/** Wait until it is so; a busy machine may take its time. */
export async function until(isSo: () => unknown): Promise<void> {
  for (let tries = 0; tries < 2000; tries += 1) {
    if (isSo()) return;
    await new Promise((wake) => setTimeout(wake, 5));
  }
  throw new Error(`it did not come about: ${isSo}\n${document.body.innerHTML.slice(0, 2000)}`);
}
