// One message with what can be done to it.
import { bytes, count, precise, seconds } from "../format";
import { copyText, h, iconButton } from "../dom";
import { renderMarkdown } from "../markdown";
import type { Figures, Message } from "./store";

export interface MessageActions {
  edit(text: string): void;
  again(): void;
  last: boolean;
  markdown: boolean;
}

const reasons: Record<string, string> = {
  length: "ended at the limit of tokens or context", stopped: "stopped by you",
};

export function figuresLine(figures: Figures): HTMLElement {
  const parts: (HTMLElement | string)[] = [];
  const item = (text: string, title: string): void => {
    parts.push(h("span", { title }, text));
  };
  item(`${count(figures.tokens)} tokens`, `${count(figures.prompt)} tokens of prompt, of them ` +
    `${count(figures.cached)} from the prefix cache${figures.seed ? `; seed ${figures.seed}` : ""}`);
  if (figures.tok_s !== null) item(`${precise(figures.tok_s)} tokens/s`, "behind the first token, as the engine counted");
  item(`first after ${seconds(figures.first_s)}`, "from asking to the first text");
  const line = h("div", { class: "figures" }, parts);
  const behind_first = figures.tokens - 1;
  if (behind_first > 0 && figures.weight_bytes > 0) {
    const weights = figures.weight_bytes / behind_first;
    const kv = figures.kv_bytes / behind_first;
    const share = weights / (weights + kv);
    line.append(
      h("span", { class: "split", title: "Bytes read for each token, as if this request had been alone" },
        h("span", { class: "mini", "aria-hidden": "true" },
          h("i", { class: "weights", style: { flex: String(share) } }),
          h("i", { class: "kv", style: { flex: String(1 - share) } })),
        `${bytes(weights)} weights + ${bytes(kv)} KV per token`));
  }
  if (figures.dropped) {
    line.append(h("span", { class: "warn" }, `without the ${figures.dropped === 1 ? "oldest message" :
      `${count(figures.dropped)} oldest messages`}: the context is full`));
  }
  if (reasons[figures.reason]) line.append(h("span", { class: "warn" }, reasons[figures.reason]!));
  return line;
}

function editor(message: Message, actions: MessageActions, close: () => void): HTMLElement {
  const area = h("textarea", { "aria-label": "Edit your message", rows: 3, value: message.text });
  const send = (): void => {
    if (area.value.trim()) actions.edit(area.value);
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  window.setTimeout(() => area.focus());
  return h("div", { class: "editor" }, area, h("div", { class: "row end" },
    h("button", { type: "button", class: "button", onclick: close }, "Cancel"),
    h("button", { type: "button", class: "button primary", onclick: send }, "Ask again")));
}

function reasoningBlock(text: string, open: boolean): HTMLElement {
  return h("details", { class: "reasoning", open }, h("summary", {}, "Reasoning"),
    h("div", { class: "prose" }, renderMarkdown(text)));
}

export function messageBody(message: Message, markdown: boolean, running = false): Node[] {
  const nodes: Node[] = [];
  if (message.reasoning) nodes.push(reasoningBlock(message.reasoning, running && !message.text));
  if (message.role === "assistant" && markdown) {
    nodes.push(h("div", { class: "prose" }, renderMarkdown(message.text)));
  } else {
    nodes.push(h("div", { class: "plain" }, message.text));
  }
  return nodes;
}

export function messageElement(message: Message, actions: MessageActions): HTMLElement {
  const mine = message.role === "user";
  const element = h("article", { class: `message ${message.role}`,
    "aria-label": mine ? "You" : "Answer" });
  const show = (): void => {
    const tools = h("div", { class: "tools" },
      iconButton("copy", "Copy", () => void copyText(message.text)),
      mine && iconButton("edit", "Edit and ask again", () =>
        element.replaceChildren(editor(message, actions, show))),
      !mine && actions.last && iconButton("again", "Another answer", actions.again));
    element.replaceChildren(
      h("div", { class: "body" }, messageBody(message, actions.markdown)),
      ...(message.error ? [h("p", { class: "error", role: "alert" }, message.error)] : []),
      ...(message.figures ? [figuresLine(message.figures)] : []), tools);
  };
  show();
  return element;
}
