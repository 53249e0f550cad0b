// Dialogs: the browser's own, so that focus stays inside and Escape closes them.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import type { Problem } from "../api.ts";
import { asProblem } from "../live.ts";
import { Button, Trouble } from "./basics.tsx";

const current = signal<ComponentChildren>(null);

export function open(content: ComponentChildren): void {
  current.value = content;
}

/** What is open now: whoever closes a dialog later looks whether it is still their own. */
export function shown(): ComponentChildren {
  return current.value;
}

export function close(): void {
  current.value = null;
}

export function isOpen(): boolean {
  return current.value !== null;
}

/** Where dialogs appear; once, at the end of the page. */
export function Dialogs() {
  return <>{current.value}</>;
}

export function Dialog({
  title,
  children,
  class: name = "",
  footer,
}: {
  title: string;
  children: ComponentChildren;
  class?: string;
  footer?: ComponentChildren;
}) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    element.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={`dialog ${name}`}
      aria-label={title}
      onClose={close}
      onMouseDown={(event) => {
        if (event.target === element.current) close();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2>{title}</h2>
          <Button kind="ghost" icon="close" label="Close" onClick={close} />
        </div>
        {children}
        {footer ? <div class="dialog-foot">{footer}</div> : null}
      </div>
    </dialog>
  );
}

/** Ask before something is done; it stays open, and says why, if that fails. */
export function Confirm({
  title,
  children,
  verb,
  isDanger = false,
  act,
}: {
  title: string;
  children: ComponentChildren;
  verb: string;
  isDanger?: boolean;
  act: () => Promise<void>;
}) {
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  async function run(): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      await act();
      close();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  return (
    <Dialog
      title={title}
      footer={
        <>
          <Button onClick={close}>Not now</Button>
          <Button
            kind={isDanger ? "danger" : "primary"}
            isDisabled={isBusy}
            onClick={() => void run()}
          >
            {verb}
          </Button>
        </>
      }
    >
      <div class="dialog-text">{children}</div>
      {problem ? <Trouble problem={problem} /> : null}
    </Dialog>
  );
}
