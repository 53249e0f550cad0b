// Copying, also where the page came over plain HTTP: browsers have no clipboard API there.

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "hidden";
  // Inside an open dialog nothing outside of it can have the focus.
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  const before = document.activeElement;
  box.select();
  const isDone = document.execCommand("copy");
  box.remove();
  if (before instanceof HTMLElement) before.focus();
  if (!isDone) throw new Error("this browser does not let the page copy: select the text instead");
}
