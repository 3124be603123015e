// The shell: five views behind one bar, told apart by the address behind #.
import { fill, h, icon, iconButton } from "./dom";
import { chatView } from "./chat/view";
import { liveView } from "./live";
import { learnView } from "./learn/view";
import { plannerView } from "./planner";
import { qualityView } from "./quality";
import { watchStatus } from "./status";

// A view puts itself into an element and gives what takes it down again.
export type View = (root: HTMLElement) => () => void;

const views: { id: string; name: string; icon: string; view: View }[] = [
  { id: "chat", name: "Chat", icon: "chat", view: chatView },
  { id: "live", name: "Live", icon: "live", view: liveView },
  { id: "planner", name: "Planner", icon: "plan", view: plannerView },
  { id: "quality", name: "Quality", icon: "cards", view: qualityView },
  { id: "learn", name: "Learn", icon: "learn", view: learnView },
];

const themes = ["auto", "light", "dark"] as const;
type Theme = (typeof themes)[number];

function theme(): Theme {
  const held = localStorage.getItem("nibble.theme");
  return themes.find((one) => one === held) ?? "auto";
}

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme(): void {
  const now = theme();
  const system = systemIsDark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = now === "auto" ? system : now;
}

function nextTheme(button: HTMLElement): void {
  const next = themes[(themes.indexOf(theme()) + 1) % themes.length]!;
  localStorage.setItem("nibble.theme", next);
  applyTheme();
  labelTheme(button);
}

function labelTheme(button: HTMLElement): void {
  const label = `Colours: ${theme() === "auto" ? "as the system" : theme()}`;
  button.setAttribute("aria-label", label);
  button.title = label;
}

function start(): void {
  applyTheme();
  systemIsDark.addEventListener("change", applyTheme);
  const links = views.map((one) => h("a", { href: `#/${one.id}`, class: "tab" }, icon(one.icon),
    h("span", {}, one.name)));
  const dot = h("span", { class: "dot" });
  const model = h("span", { class: "model-name" }, "…");
  const themeButton = iconButton("theme", "", () => nextTheme(themeButton));
  labelTheme(themeButton);
  const main = h("main", { id: "main", tabindex: "-1" });
  fill(document.getElementById("app")!,
    h("a", { class: "skip", href: "#main", onclick: (event: Event) => {
      event.preventDefault();
      main.focus();
    } }, "Skip to the content"),
    h("header", { class: "bar" },
      h("a", { class: "brand", href: "#/chat" }, h("img", { src: "/icon.svg", alt: "", width: 26, height: 26 }),
        "nibble"),
      h("nav", { class: "tabs", "aria-label": "Views" }, links),
      h("div", { class: "bar-end" },
        h("span", { class: "model", role: "status" }, dot, model), themeButton)),
    main);

  let leave: (() => void) | null = null;
  const show = (): void => {
    const id = /^#\/([a-z]+)/.exec(location.hash)?.[1];
    const index = Math.max(0, views.findIndex((one) => one.id === id));
    const chosen = views[index]!;
    leave?.();
    main.className = `view-${chosen.id}`;
    main.replaceChildren();
    links.forEach((link, i) => {
      if (i === index) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    document.title = `${chosen.name} – nibble`;
    leave = chosen.view(main);
    window.scrollTo(0, 0);
  };
  window.addEventListener("hashchange", show);
  show();

  watchStatus(5000, (heard) => {
    const state = "error" in heard ? "away" : heard.status.status;
    dot.className = `dot ${state}`;
    const name = "error" in heard ? "no connection" : heard.status.model;
    model.textContent = state === "loading" ? `${name} is loading` : name;
    model.title = name;
  });
}

start();
