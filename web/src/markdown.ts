// Markdown of an answer as nodes. What a model says is not to be trusted: DOMPurify keeps a short
// list of tags, nothing is loaded from anywhere, and the page's policy forbids the rest again.
import DOMPurify from "dompurify";
import { marked } from "marked";
import { copyText, h } from "./dom";

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
// HTML in an answer is shown as it was said; pictures would be loaded from elsewhere.
marked.use({ gfm: true, breaks: true, renderer: {
  html: ({ text }) => escaped(text),
  image: ({ raw }) => escaped(raw),
} });

const allowed = {
  ALLOWED_TAGS: ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote",
    "pre", "code", "em", "strong", "del", "a", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "class", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
} as const;

export function renderMarkdown(text: string): DocumentFragment {
  const html = marked.parse(text, { async: false });
  const nodes = DOMPurify.sanitize(html, allowed as never) as unknown as DocumentFragment;
  for (const link of nodes.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const table of nodes.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame" });
    table.replaceWith(frame);
    frame.appendChild(table);
  }
  for (const pre of nodes.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const language = /language-([\w+-]{1,20})/.exec(code?.className ?? "")?.[1] ?? "text";
    const frame = h("div", { class: "code" },
      h("div", { class: "code-head" }, h("span", {}, language),
        h("button", { type: "button", class: "quiet", "aria-label": `Copy this ${language} code`,
          onclick: () => void copyText(pre.textContent ?? "") }, "Copy")));
    pre.replaceWith(frame);
    pre.tabIndex = 0; // its overflow scrolls by keyboard
    frame.appendChild(pre);
  }
  return nodes;
}
