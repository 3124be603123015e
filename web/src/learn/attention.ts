// Attention a tile at a time: a running maximum and a running sum give softmax without ever holding
// all scores.
import { fill, h, s } from "../dom";
import { precise } from "../format";
import { makeStepper, narrow } from "./stepper";

export interface AttentionTile {
  layer: number; head: number; heads: number; tile: number; tokens: string[]; scores: number[];
  channel: number; values: number[]; output: number;
}

export interface Running { max: number; sum: number; out: number; rescale: number }

// Milakov and Gimelshein 2018: when the maximum rises, what was summed so far is scaled down.
export function runTiles(scores: number[], values: number[], tile: number): Running[] {
  const out: Running[] = [];
  let now: Running = { max: -Infinity, sum: 0, out: 0, rescale: 1 };
  for (let begin = 0; begin < scores.length; begin += tile) {
    const part = scores.slice(begin, begin + tile);
    const max = Math.max(now.max, ...part);
    const rescale = Math.exp(now.max - max);
    let sum = now.sum * rescale;
    let weighted = now.out * rescale;
    part.forEach((score, i) => {
      const weight = Math.exp(score - max);
      sum += weight;
      weighted += weight * values[begin + i]!;
    });
    now = { max, sum, out: weighted, rescale };
    out.push(now);
  }
  return out;
}

export function attentionPanel(tile: AttentionTile): { element: HTMLElement; leave: () => void } {
  const { scores, values } = tile;
  const running = runTiles(scores, values, tile.tile);
  const tiles = running.length;
  const picture = h("div", {});
  const state = h("div", { class: "stats inner four" });
  const story = h("p", { class: "story", "aria-live": "polite" });
  const width = narrow() ? 360 : 720, height = 220, bottom = 30;
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  const show = (at: number): void => {
    const now = running[at]!;
    const x = (i: number): number => 4 + (i / scores.length) * (width - 8);
    const y = (score: number): number => 12 + (high - score) / (high - low || 1) * (height - bottom - 18);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "attention-picture", role: "img",
      "aria-label": `Scores of ${scores.length} keys in ${tiles} tiles; ${at + 1} tiles are done, the running maximum is ${precise(now.max, 3)}` });
    for (let t = 0; t < tiles; ++t) {
      const end = Math.min(scores.length, (t + 1) * tile.tile);
      svg.append(s("rect", { class: `tile${t === at ? " now" : t < at ? " done" : ""}`, x: x(t * tile.tile), y: 4, width: x(end) - x(t * tile.tile) - 3, height: height - bottom, rx: 6 }),
        s("text", { class: "axis", x: (x(t * tile.tile) + x(end)) / 2, y: height - 10, "text-anchor": "middle" }, `tile ${t + 1}`));
    }
    scores.forEach((score, i) => {
      const state = Math.floor(i / tile.tile) === at ? "now" : Math.floor(i / tile.tile) < at ? "done" : "later";
      svg.append(s("rect", { class: `score ${state}`, x: x(i) + 1, width: Math.max(1.5, (width - 8) / scores.length - 2), y: y(score), height: Math.max(1, height - bottom - y(score)) },
        s("title", {}, `“${tile.tokens[i] ?? ""}”: ${precise(score, 3)}`)));
    });
    svg.append(s("line", { class: "maximum", x1: 4, x2: x(Math.min(scores.length, (at + 1) * tile.tile)) - 3, y1: y(now.max), y2: y(now.max) }));
    fill(picture, svg);
    const figure = (label: string, value: string, more: string): HTMLElement => h("div", { class: "stat" },
      h("span", { class: "label" }, label), h("strong", {}, value), h("span", { class: "more" }, more));
    fill(state, figure("Running maximum", precise(now.max, 4), at > 0 && now.max > running[at - 1]!.max ? "it rose" : at > 0 ? "as before" : "of this tile"),
      figure("Rescaled by", at === 0 ? "–" : precise(now.rescale, 4), "what was summed so far"),
      figure("Running sum", precise(now.sum, 4), "of exp(score − maximum)"),
      figure("Output", precise(now.out / now.sum, 5), `channel ${tile.channel}`));
    const done = at === tiles - 1;
    fill(story, done ? h("span", {}, "After the last tile the output is ", h("b", {}, precise(now.out / now.sum, 5)), "; the engine's attention gave ",
      h("b", {}, precise(tile.output, 5)), ". Tiling does not change the answer.")
      : `The query of “${(tile.tokens[tile.tokens.length - 1] ?? "").trim()}” meets keys ${at * tile.tile + 1} to ${Math.min(scores.length, (at + 1) * tile.tile)}. ` +
        "Only one tile of scores is ever held: their maximum, their sum and the weighted values carry everything on.");
  };
  const stepper = makeStepper("the tiles", show, 1400);
  stepper.set(tiles, 0);
  return { element: h("div", { class: "learn-body" }, picture, stepper.element, state, story), leave: () => stepper.stop() };
}
