// What a filter that is being typed may become: names of filters, and values that are known. Pure.

import { NAMES, STATES } from "./filters.ts";

export interface Completion {
  /** What is offered: "state:dead". */
  label: string;
  hint: string;
  /** The whole text once it is taken. */
  text: string;
}

export interface Known {
  kinds: string[];
  queues: string[];
}

const HINTS: Record<(typeof NAMES)[number], string> = {
  state: "dead, ready, …",
  kind: "of a kind",
  queue: "in a queue",
  tenant: "of a tenant",
  key: "with a key",
  tag: "with a tag",
  error: "text in an error",
  fingerprint: "died of the same",
  since: "created since 15m, 2h, 7d",
  until: "created before",
};
const SHOWN_MAX = 8;

/** The last word, and what is before it. A quote that is open keeps its spaces. */
function lastWord(text: string): [string, string] {
  let start = 0;
  let isQuoted = false;
  for (let place = 0; place < text.length; place += 1) {
    if (text[place] === '"') isQuoted = !isQuoted;
    else if (/\s/.test(text[place]!) && !isQuoted) start = place + 1;
  }
  return [text.slice(0, start), text.slice(start)];
}

export function completions(text: string, known: Known): Completion[] {
  const [before, word] = lastWord(text);
  const found = /^(-?)(\w*)(?::(.*))?$/s.exec(word);
  if (!found) return [];
  const [, minus = "", name = "", value] = found;
  if (value === undefined) {
    if (!name && !minus && text) return [];
    return NAMES.filter((each) => each.startsWith(name) && !(minus && !isListed(each)))
      .map((each) => ({
        label: `${minus}${each}:`,
        hint: HINTS[each],
        text: `${before}${minus}${each}:`,
      }))
      .slice(0, SHOWN_MAX + 2);
  }
  const comma = value.lastIndexOf(",");
  const kept = value.slice(0, comma + 1);
  const part = value
    .slice(comma + 1)
    .replace(/^"/, "")
    .toLowerCase();
  const taken = new Set(kept.split(","));
  return valuesOf(name, known)
    .filter((each) => each.toLowerCase().includes(part) && !taken.has(each))
    .filter((each) => each.toLowerCase() !== part)
    .sort((a, b) => rank(a, part) - rank(b, part))
    .slice(0, SHOWN_MAX)
    .map((each) => ({
      label: `${minus}${name}:${each}`,
      hint: "",
      text: `${before}${minus}${name}:${kept}${quoted(each)} `,
    }));
}

function isListed(name: string): boolean {
  return !["error", "fingerprint", "since", "until"].includes(name);
}

function valuesOf(name: string, known: Known): string[] {
  if (name === "state") return [...STATES];
  if (name === "kind") return known.kinds;
  if (name === "queue") return known.queues;
  if (name === "since" || name === "until") return ["15m", "1h", "1d", "7d"];
  return [];
}

function rank(value: string, part: string): number {
  return value.toLowerCase().startsWith(part) ? 0 : 1;
}

function quoted(value: string): string {
  return /[\s",\\]/.test(value) ? `"${value.replace(/[\\"]/g, "\\$&")}"` : value;
}
