// Dark or light: the system's choice, unless the reader has made one here.

import { computed, effect, signal } from "@preact/signals";

export type Choice = "system" | "light" | "dark";

const PLACE = "rowlock.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", () => {
  systemIsDark.value = system.matches;
});

function stored(): Choice {
  const text = localStorage.getItem(PLACE);
  return text === "light" || text === "dark" ? text : "system";
}

export const choice = signal<Choice>(stored());
export const isDark = computed(() =>
  choice.value === "system" ? systemIsDark.value : choice.value === "dark",
);

effect(() => {
  document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
});

export function choose(next: Choice): void {
  choice.value = next;
  if (next === "system") localStorage.removeItem(PLACE);
  else localStorage.setItem(PLACE, next);
}

export function turn(): void {
  choose(isDark.value ? "light" : "dark");
}
