import { useState } from "preact/hooks";

import { get, type Problem } from "../api.ts";
import { asProblem } from "../live.ts";
import { forget, me, type Me, remember } from "../session.ts";
import { Button, Command, Trouble } from "../ui/basics.tsx";

export function SignIn() {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);

  async function enter(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    remember(text.trim());
    try {
      me.value = await get<Me>("v1/me");
    } catch (error) {
      forget();
      setProblem(asProblem(error));
      setBusy(false);
    }
  }

  return (
    <main class="lonely">
      <h1>Sign in to rowlock</h1>
      <form class="signin" onSubmit={enter}>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          autofocus
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Button type="submit" kind="primary" isDisabled={isBusy}>
          Sign in
        </Button>
      </form>
      {problem ? <Trouble problem={problem} /> : null}
      <p class="soft">
        Make one where rowlock is installed; <code>read</code> looks, <code>admin</code> changes:
      </p>
      <Command>rowlock tokens create me --scope admin --expires 30d</Command>
      <p class="soft small">
        It is kept for this tab only, and forgotten when the tab is closed: no cookie that the
        browser would send by itself, nothing left on a shared machine.
      </p>
    </main>
  );
}
