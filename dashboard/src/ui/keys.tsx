// The keyboard: keys that work anywhere, and the list of them.

import { signal } from "@preact/signals";

import { isPaused } from "../live.ts";
import { visible } from "../places.ts";
import { go, to } from "../router.ts";
import { me } from "../session.ts";
import { turn } from "../theme.ts";
import { Dialog, isOpen, open } from "./dialog.tsx";
import { showPalette } from "./palette.tsx";

const PLACE = "rowlock.keys";
/** Whether single letters act. Who dictates, or hits keys by accident, turns them off. */
export const hasLetters = signal(localStorage.getItem(PLACE) !== "off");

export function setLetters(isOn: boolean): void {
  hasLetters.value = isOn;
  if (isOn) localStorage.removeItem(PLACE);
  else localStorage.setItem(PLACE, "off");
}

const SEQUENCE_MS = 1500;
let pending = 0;

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]")
  );
}

/** Hear the keys; the answer stops it. */
export function listenToKeys(): () => void {
  addEventListener("keydown", hear);
  return () => removeEventListener("keydown", hear);
}

function hear(event: KeyboardEvent): void {
  if (!me.value) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (!isOpen()) showPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isOpen()) return;
  if (!hasLetters.value) return;
  if (Date.now() - pending < SEQUENCE_MS) {
    pending = 0;
    const place = visible().find((each) => each.key === event.key);
    if (place) {
      event.preventDefault();
      go(to([place.path]));
      return;
    }
  }
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
}

const KEYS: Record<string, () => void> = {
  g: () => (pending = Date.now()),
  "?": showShortcuts,
  t: turn,
  p: () => (isPaused.value = !isPaused.value),
  "/": () => {
    const box = document.querySelector<HTMLInputElement>("[data-search]");
    if (box) box.focus();
    else showPalette();
  },
};

export function showShortcuts(): void {
  open(<Shortcuts />);
}

function Shortcuts() {
  const groups: [string, [string, string][]][] = [
    [
      "Anywhere",
      [
        ["Ctrl K", "Search, or jump to anything"],
        ["/", "Filter what is shown"],
        ["p", "Pause or resume live updates"],
        ["t", "Dark or light"],
        ["?", "This list"],
      ],
    ],
    ["Go to", visible().map((place) => [`g ${place.key}`, place.title])],
    [
      "In a graph",
      [
        ["← → ↑ ↓", "From stack to stack"],
        ["Enter", "Show the jobs of a stack"],
        ["+ - 0", "Closer, further, all of it"],
      ],
    ],
    [
      "In a list of jobs",
      [
        ["j k", "Next, previous"],
        ["Enter", "Open"],
        ["x", "Select"],
        ["Escape", "Select none"],
      ],
    ],
  ];
  return (
    <Dialog title="Keyboard shortcuts" class="shortcuts">
      <label class="letters">
        <input
          type="checkbox"
          checked={hasLetters.value}
          onChange={(event) => setLetters(event.currentTarget.checked)}
        />{" "}
        Keys of a single letter or sign work
      </label>
      <div class="shortcut-groups">
        {groups.map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([key, text]) => (
                <div key={key}>
                  <dt>
                    {key.split(" ").map((each) => (
                      <kbd key={each}>{each}</kbd>
                    ))}
                  </dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
