// Elements without markup in strings: nothing here can become script.

export type Child = Node | string | number | null | undefined | false | Child[];
type Attributes = Record<string, unknown>;

function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== null && child !== undefined && child !== false)
      parent.appendChild(document.createTextNode(String(child)));
  }
}

function assign(element: HTMLElement | SVGElement, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (name === "style") {
      for (const [key, one] of Object.entries(value as Record<string, string>))
        element.style.setProperty(key, one); // the policy lets no style attribute through
    } else if (name === "value" || name === "checked" || name === "disabled") {
      (element as unknown as Attributes)[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  append(element, children); // before `value` of a select
  assign(element, attributes);
  return element;
}

export function s(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

const paths: Record<string, string> = {
  chat: "M4 5.5h16v10.5H10.5L6 19.5V16H4z",
  live: "M3 12h4l2.5-6.5 4.5 13 2.5-6.5H21",
  plan: "M4 20V10M10 20V4M16 20v-8M21 20H3",
  cards: "M4 6.5h16v11H4zM4 10.5h16M8 14h4",
  learn: "M3 8.5 12 4l9 4.5-9 4.5zM7 11v4.5c3 2.2 7 2.2 10 0V11",
  plus: "M12 5v14M5 12h14",
  copy: "M8.5 8.5h11v11h-11zM5 15.5V4.5h10.5",
  edit: "M5 19l.8-4L16 4.8l3.2 3.2L9 18.2z",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4.5v4h-4",
  trash: "M5 7h14M9.5 7V4.5h5V7M7 7l.8 12.5h8.4L17 7",
  stop: "M7 7h10v10H7z",
  send: "M12 19V5.5M6 11l6-6 6 6",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.8v4.4M9 14.8v4.4",
  list: "M4 6.5h16M4 12h16M4 17.5h10",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  play: "M8 5.5v13l10-6.5z",
  pause: "M8.5 6v12M15.5 6v12",
  next: "M6 5.5v13l8-6.5zM17.5 6v12",
  back: "M18 5.5v13L10 12zM6.5 6v12",
  close: "M6 6l12 12M18 6 6 18",
};

export function icon(name: keyof typeof paths): SVGElement {
  return s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" },
    s("path", { d: paths[name] }));
}

export function iconButton(name: string, label: string, onclick: () => void,
  attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label,
    onclick, ...attributes }, icon(name));
}

// A command to type, with a button that copies it.
export function command(text: string): HTMLElement {
  return h("div", { class: "command" }, h("code", {}, text),
    iconButton("copy", "Copy the command", () => void copyText(text)));
}

export function emptyView(title: string, text: Child, ...commands: string[]): HTMLElement {
  return h("div", { class: "empty" }, h("h3", {}, title), h("p", {}, text),
    commands.map(command));
}

let announcer: HTMLElement | null = null;
// Told to screen readers, and shown for a moment.
export function announce(text: string): void {
  if (!announcer) {
    announcer = h("div", { class: "toast", role: "status", "aria-live": "polite" });
    document.body.appendChild(announcer);
  }
  announcer.textContent = text;
  announcer.classList.add("shown");
  window.setTimeout(() => announcer?.classList.remove("shown"), 1800);
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard without a secure context
    const area = h("textarea", { class: "offscreen", value: text });
    document.body.appendChild(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce("Copied");
}
