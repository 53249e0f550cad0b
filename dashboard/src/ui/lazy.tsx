// A part of the page that is loaded when it is first shown.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Problem } from "../api.ts";
import { Skeleton, Trouble } from "./basics.tsx";

const NEW_VERSION = "this part of the page could not be loaded; reload the page if it was updated";

/** `load` is an `import()`: the browser keeps what it gave. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const [, redraw] = useState(0);
    const [problem, setProblem] = useState<Problem>();
    async function begin(): Promise<void> {
      setProblem(undefined);
      try {
        loaded = await load();
        redraw((count) => count + 1);
      } catch {
        setProblem(new Problem(0, "unexpected", NEW_VERSION));
      }
    }
    useEffect(() => {
      if (!loaded) void begin();
    }, []);
    if (problem) return <Trouble problem={problem} retry={() => void begin()} />;
    const Loaded = loaded;
    return Loaded ? <Loaded {...props} /> : <Skeleton rows={6} kind="page" />;
  };
}
