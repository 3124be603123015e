// A ragged batch drawn as a strip: one block for each sequence, as wide as its rows.
import { h, s } from "./dom";
import { bytes, count, seconds } from "./format";
import type { Span, Step } from "./status";

const colours = 8;

// The same request has the same colour in every step, and so have all of its answers.
export function colourOf(span: Span): string {
  return `r${(span.request * 3) % colours}`;
}

function spanText(span: Span): string {
  const who = `request ${span.request}${span.choice > 0 ? `, choice ${span.choice + 1}` : ""}`;
  return span.answer && span.rows === 1 ? `${who}: token ${count(span.first)} of its answer`
    : `${who}: ${count(span.rows)} tokens of its prompt, from ${count(span.first)}`;
}

export function batchStrip(step: Step): HTMLElement {
  const answers = step.spans.filter((one) => one.answer).length;
  const prompts = step.spans.length - answers;
  return h("div", { class: "batch" },
    h("div", { class: "strip", role: "img", "aria-label": `Step ${step.step}: ${step.spans.map(spanText).join("; ")}` },
      step.spans.map((span) => h("i", {
        class: `${colourOf(span)} ${span.answer ? "answer" : "prompt"}`, title: spanText(span),
        // A long prompt must not hide the answers beside it.
        style: { flex: `${Math.max(1, Math.sqrt(span.rows) * 1.6)} 1 0` } },
      h("span", {}, span.rows > 1 ? `#${span.request}: ${count(span.rows)}` : `#${span.request}`)))),
    h("p", { class: "hint" }, `Step ${count(step.step)}: ${answers === 1 ? "1 answer with one token" : `${answers} answers with one token each`}` +
      (prompts > 0 ? ` and ${prompts} ${prompts === 1 ? "piece" : "pieces"} of prompts (striped)` : "") +
      `, ${count(step.rows)} ${step.rows === 1 ? "row" : "rows"} in ${seconds(step.seconds)}: ${bytes(step.weight_bytes)} of weights and ` +
      `${bytes(step.kv_bytes)} of KV read.`));
}

// The last steps, oldest left, each a column of its sequences. A prompt of 1000 rows is eleven
// answers high.
export function stepHistory(steps: Step[]): HTMLElement {
  const shown = steps.slice(-96);
  const width = 960;
  const height = 84;
  const tall = (rows: number): number => 1 + Math.log2(rows);
  const most = Math.max(4, ...shown.map((step) => step.spans.reduce((sum, one) => sum + tall(one.rows), 0)));
  const each = width / 96;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "history", preserveAspectRatio: "none",
    role: "img", "aria-label": `The last ${shown.length} steps, with ${shown.map((one) => one.spans.length).join(", ")} sequences` });
  shown.forEach((step, i) => {
    let y = height;
    for (const span of step.spans) {
      const tallness = tall(span.rows) / most * (height - 2);
      y -= tallness;
      svg.append(s("rect", { x: (96 - shown.length + i) * each + 0.75, y: y + 0.5, width: each - 1.5,
        height: Math.max(1, tallness - 1), class: `${colourOf(span)} ${span.answer ? "answer" : "prompt"}` },
      s("title", {}, `step ${step.step}, ${spanText(span)}`)));
    }
  });
  return h("div", {}, h("div", { class: "history-frame" }, svg),
    h("p", { class: "hint" }, "The last steps, newest on the right; one colour for each request."));
}
