// Markdown of an answer as nodes. What a model says is not to be trusted: DOMPurify keeps a short
// list of tags, nothing is loaded from anywhere, and the page's policy forbids the rest again.
import DOMPurify from "dompurify";
import { Lexer, marked, type Token } from "marked";
import { copyText, h } from "./dom";

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
// HTML in an answer is shown as it was said; pictures would be loaded from elsewhere.
marked.use({ gfm: true, breaks: true, renderer: {
  html: ({ text }) => escaped(text),
  image: ({ raw }) => escaped(raw),
} });

// Cutting text at its marks takes time with the cube of their number where none of them is closed.
// A paragraph with more of them than prose has is shown as it was said, and so is a text whose
// quotes or lists lie deeper in one another than anybody reads.
const mark = /[*_~`[\]<!\\]/g;
const mostMarks = 120;
const mostMarkedLength = 400_000; // marks times characters
const tooDeep = /^(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])){17}/m;

class BoundedLexer extends Lexer {
  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    const marks = text.match(mark)?.length ?? 0;
    if (marks <= mostMarks && marks * text.length <= mostMarkedLength) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text, escaped: false });
    return tokens;
  }
}

function htmlOf(text: string): string {
  if (!tooDeep.test(text)) {
    try {
      return marked.parser(new BoundedLexer(marked.defaults).lex(text));
    } catch { /* lists that go on and on: more of them in one another than the stack holds */ }
  }
  return `<pre>${escaped(text)}</pre>`;
}

const allowed = {
  ALLOWED_TAGS: ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote",
    "pre", "code", "em", "strong", "del", "a", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "class", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
} as const;

export function renderMarkdown(text: string): DocumentFragment {
  const nodes = DOMPurify.sanitize(htmlOf(text), allowed as never) as unknown as DocumentFragment;
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
