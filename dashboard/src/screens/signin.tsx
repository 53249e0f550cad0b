import { useEffect, useRef, useState } from "preact/hooks";

import { type Problem, signIn } from "../api.ts";
import { asProblem } from "../live.ts";
import { isOver } from "../session.ts";
import { Button, Command, Trouble } from "../ui/basics.tsx";

export function SignIn({ before }: { before?: Problem | undefined }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(before);
  const [isBusy, setBusy] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  // Not by `autofocus`: browsers ignore it where something on the page has had the focus.
  useEffect(() => box.current?.focus(), []);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await signIn(text.trim());
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }

  return (
    <main class="lonely">
      <h1>Sign in to rowlock</h1>
      {isOver.value ? (
        <p role="status">Your session is over. Sign in again to continue where you were.</p>
      ) : null}
      <form class="signin" onSubmit={submit}>
        {/* Password managers keep a name with a secret. */}
        <input type="text" autocomplete="username" value="rowlock" readOnly hidden />
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="current-password"
          spellcheck={false}
          required
          ref={box}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Button type="submit" kind="primary" isDisabled={isBusy}>
          Sign in
        </Button>
      </form>
      {problem ? <Trouble problem={problem} /> : null}
      <p class="soft">
        Create one where rowlock is installed. <code>read</code> can look, <code>admin</code> can
        also change:
      </p>
      <Command>rowlock tokens create me --scope admin --expires 30d</Command>
      <p class="soft small">
        You stay signed in for 12 hours, in all tabs of this browser, or until you sign out. The
        token itself is not kept.
      </p>
    </main>
  );
}
