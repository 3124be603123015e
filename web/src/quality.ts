// What the models on disk say about themselves: size, speed and what quantisation cost.
import { getJson } from "./api";
import { command, emptyView, fill, h, s } from "./dom";
import { bytes, count, precise } from "./format";
import { niceTop } from "./chart";

interface Quality { text: string; tokens: number; ppl: number; ppl_se: number; ppl_source: number; kld: number; kld_se: number;
  top1: number; top1_se: number; verdict: string }
interface Card {
  tool?: string; source?: { name: string }; recipe?: { to: string; method: string; parameters: string };
  quality?: Quality | string; speed?: { prefill_tok_s: number; decode_tok_s: number }; machine?: string;
}
interface Model {
  name: string; path: string; problem?: string; architecture?: string; parameters?: number; file_bytes?: number;
  weight_bytes?: number; bits_per_weight?: number; card?: Card | null;
}

const measured = (model: Model): Quality | null =>
  typeof model.card?.quality === "object" ? model.card.quality : null;

function fact(label: string, value: string): HTMLElement {
  return h("div", { class: "fact" }, h("dt", {}, label), h("dd", {}, value));
}

function modelCard(model: Model): HTMLElement {
  if (model.problem) {
    return h("article", { class: "card model-card" }, h("h3", {}, model.name), h("p", { class: "error" }, model.problem));
  }
  const { card } = model;
  const quality = measured(model);
  const facts = [
    fact("Weights", bytes(model.weight_bytes!)),
    fact("Bits per weight", precise(model.bits_per_weight!, 3)),
    fact("Parameters", `${precise(model.parameters! / 1e6, 3)} M`),
  ];
  if (card?.speed) facts.push(fact("Decode", `${precise(card.speed.decode_tok_s)} tokens/s`));
  if (quality) {
    facts.push(fact("Divergence, nats", `${precise(quality.kld, 3)} ± ${precise(quality.kld_se, 1)}`),
      fact("Same top token", `${precise(100 * quality.top1, 3)}% ± ${precise(100 * quality.top1_se, 2)}`),
      fact("Perplexity (source)", `${precise(quality.ppl, 4)} (${precise(quality.ppl_source, 4)})`));
  }
  return h("article", { class: "card model-card" }, h("h3", {}, model.name),
    h("p", { class: "hint" }, card?.recipe ? `${card.recipe.to} by ${card.recipe.method}, from ${card.source?.name ?? "?"}`
      : `${model.architecture}; not made by nibble quantize, so it carries no card`),
    h("dl", { class: "facts" }, facts),
    quality ? h("p", { class: "verdict" }, quality.verdict)
      : card ? h("p", { class: "verdict warn" }, "Quality: not measured") : null,
    quality && h("p", { class: "hint" }, `Against its source on ${quality.text}, ${count(quality.tokens)} tokens.`));
}

// Those that no other beats in both.
export function paretoFront(points: { x: number; y: number }[]): number[] {
  return points.map((_, i) => i).filter((i) => !points.some((other, j) => j !== i &&
    other.x >= points[i]!.x && other.y <= points[i]!.y && (other.x > points[i]!.x || other.y < points[i]!.y)));
}

function scatter(models: Model[]): HTMLElement {
  const shown = models.filter((one) => measured(one) && one.card?.speed);
  const points = shown.map((one) => ({ x: one.card!.speed!.decode_tok_s, y: measured(one)!.kld, se: measured(one)!.kld_se }));
  const front = paretoFront(points).sort((a, b) => points[a]!.x - points[b]!.x);
  const width = window.innerWidth < 800 ? 340 : 1040, height = 300, left = 56, bottom = 40, top = 16, right = 24;
  const topX = niceTop(Math.max(...points.map((one) => one.x)) * 1.1);
  const topY = niceTop(Math.max(...points.map((one) => one.y + one.se)) * 1.1);
  const x = (value: number): number => left + value / topX * (width - left - right);
  const y = (value: number): number => height - bottom - value / topY * (height - top - bottom);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img",
    "aria-label": `Speed against divergence: ${shown.map((one, i) => `${one.name} ${precise(points[i]!.x)} tokens a second, ${precise(points[i]!.y)} nats`).join("; ")}` });
  for (const share of [0, 0.5, 1]) {
    svg.append(s("line", { x1: left, x2: width - right, y1: y(topY * share), y2: y(topY * share), class: "grid" }),
      s("text", { x: left - 8, y: y(topY * share) + 4, class: "axis", "text-anchor": "end" }, precise(topY * share, 2)),
      s("text", { x: x(topX * share), y: height - bottom + 18, class: "axis", "text-anchor": share === 1 ? "end" : "middle" }, precise(topX * share, 3)));
  }
  svg.append(s("text", { x: width - right, y: height - 4, class: "axis", "text-anchor": "end" }, "decode, tokens per second →"),
    s("text", { x: left, y: 10, class: "axis" }, "↑ divergence from the source, nats per token"));
  svg.append(s("path", { class: "front", d: front.map((i, n) => `${n ? "L" : "M"}${x(points[i]!.x)} ${y(points[i]!.y)}`).join("") }));
  shown.forEach((one, i) => {
    const point = points[i]!;
    svg.append(s("line", { class: "bar-se", x1: x(point.x), x2: x(point.x), y1: y(point.y - point.se), y2: y(point.y + point.se) }),
      s("circle", { class: front.includes(i) ? "point best" : "point", cx: x(point.x), cy: y(point.y), r: 5.5 }, s("title", {}, one.name)),
      s("text", { class: "axis name", x: x(point.x) + (point.x > topX * 0.7 ? -10 : 10), y: y(point.y) - 8,
        "text-anchor": point.x > topX * 0.7 ? "end" : "start" }, one.name));
  });
  return h("section", { class: "card" }, h("h3", {}, "Speed against quality"), svg,
    h("p", { class: "hint" }, "Filled: nothing on this disk is both faster and nearer to its source. Bars: one standard error. " +
      "Figures are those of the cards: the machine and the text that made them."));
}

export function qualityView(root: HTMLElement): () => void {
  const abort = new AbortController();
  const body = h("div", { class: "stack" }, h("p", { class: "hint" }, "Reading the models…"));
  root.append(h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, "Quality"),
    h("p", {}, "What each saved byte cost. A model that nibble quantised carries a card: how it was made, and how far it moved from its source.")), body));
  void (async () => {
    try {
      const { folder, models } = await getJson<{ folder: string; models: Model[] }>("/cards", abort.signal);
      const quantise = `nibble quantize smollm2-135m-f16 ${folder}/smollm2-q4_k_m.gguf --to q4_k_m`;
      const rated = models.filter((one) => measured(one) && one.card?.speed);
      const none = emptyView(models.length === 0 ? "No models here" : "No cards yet",
        `A card is written when a model is quantised, into the file itself. ${models.length === 0 ? `Looked in ${folder}.` : ""}`,
        "nibble pull smollm2-135m-f16", quantise);
      fill(body, rated.length > 0 ? scatter(models) : h("section", { class: "card" }, none),
        h("div", { class: "model-cards" }, [...models].sort((a, b) => Number(!!b.card) - Number(!!a.card)).map(modelCard)),
        models.length > 0 && h("div", {}, h("p", { class: "hint above" }, `From ${folder}. Another folder:`),
          command("nibble serve MODEL --model-dir FOLDER")));
    } catch (error) {
      if ((error as Error).name !== "AbortError") fill(body, h("p", { class: "error", role: "alert" }, (error as Error).message));
    }
  })();
  return () => abort.abort();
}
