import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { answers, asked, until } from "./dom.ts";

import { render } from "preact";

import { App } from "../src/app.tsx";
import { replace } from "../src/router.ts";
import { isDark } from "../src/theme.ts";
import { close } from "../src/ui/dialog.tsx";
import { setLetters, showShortcuts } from "../src/ui/keys.tsx";

const place = document.createElement("div");
document.body.append(place);

afterEach(() => {
  close();
  render(null, place);
});

async function begin(changes: object = {}): Promise<void> {
  answers.set("v1/workflows", { workflows: [], next: null });
  answers.set("v1/me", {
    name: "x",
    tenant: null,
    scopes: ["read", "admin"],
    token_id: null,
    is_open: true,
    can_create_tokens: true,
    version: "1",
    environment: null,
    ...changes,
  });
  replace("#/workflows");
  asked.length = 0;
  render(<App />, place);
  await until(() => asked.includes("v1/me") && place.querySelector("h1"));
}

function press(key: string): void {
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}

test("the frame names the environment, in its colour, and so does the tab", async () => {
  await begin({ environment: { name: "production", color: "red" } });
  await until(() => place.querySelector(".menu .place-red"));
  assert.equal(place.querySelector(".menu .place")!.textContent, "production");
  assert.ok(place.querySelector(".strip.place-red"));
  await until(() => document.title === "Workflows · production · rowlock");
});

test("a server without an environment shows none", async () => {
  await begin();
  await until(() => !place.querySelector(".place, .strip"));
});

test("single letters act, until they are turned off where they are listed", async () => {
  await begin();
  const before = isDark.value;
  press("t");
  assert.equal(isDark.value, !before);
  press("t");
  showShortcuts();
  await until(() => place.querySelector(".letters input"));
  place.querySelector<HTMLInputElement>(".letters input")!.click();
  close();
  await until(() => !place.querySelector("dialog"));
  press("t");
  assert.equal(isDark.value, before);
  assert.equal(localStorage.getItem("rowlock.keys"), "off");
  setLetters(true);
  assert.equal(localStorage.getItem("rowlock.keys"), null);
});
