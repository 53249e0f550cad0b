// A button with a list below it. It closes with Escape, a choice, or a look elsewhere.

import { useEffect, useRef, useState } from "preact/hooks";

import { Icon, type IconName } from "./icons.tsx";

export interface MenuItem {
  text: string;
  icon?: IconName;
  act: () => void;
  isDisabled?: boolean;
  title?: string;
}

export function Menu({
  label,
  icon,
  items,
  isUp = false,
}: {
  label: string;
  icon: IconName;
  items: MenuItem[];
  isUp?: boolean;
}) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    function leave(event: Event): void {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    }
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("focusin", leave);
    };
  }, [isOpen]);
  function hear(event: KeyboardEvent): void {
    if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      setOpen(false);
      place.current?.querySelector("button")?.focus();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !isOpen) return;
    event.preventDefault();
    const buttons = [...place.current!.querySelectorAll<HTMLElement>(".drop-list button:enabled")];
    const here = buttons.indexOf(document.activeElement as HTMLElement);
    buttons[(here + step + buttons.length) % buttons.length]?.focus();
  }
  return (
    <div class="drop" ref={place} onKeyDown={hear}>
      <button type="button" class="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name={icon} /> <span>{label}</span>
      </button>
      {isOpen ? (
        <div class={`drop-list ${isUp ? "drop-up" : ""}`}>
          {items.map((item) => (
            <button
              type="button"
              key={item.text}
              disabled={item.isDisabled}
              title={item.title}
              onClick={() => {
                setOpen(false);
                item.act();
              }}
            >
              {item.icon ? <Icon name={item.icon} /> : null}
              {item.text}
            </button>
          ))}
        </div>
      ) : null}
    </div>
  );
}
