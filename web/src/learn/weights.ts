// Real weights snap to the levels of a scale; one outlier drags the scale, and the others with it.
import { fill, h, s } from "../dom";
import { precise } from "../format";
import { makeStepper, narrow } from "./stepper";

export interface WeightRow { tensor: string; type: string; layer: number; row: number; cols: number; first: number; values: number[]; ratio: number }

// Symmetric, as in the document: s = max|w| / (2^(k-1) - 1), ŵ = s · round(w / s).
export function snap(values: number[], bits: number, group: number): { levels: number[]; scales: number[] } {
  const most = 2 ** (bits - 1) - 1;
  const levels: number[] = [];
  const scales: number[] = [];
  for (let begin = 0; begin < values.length; begin += group) {
    const part = values.slice(begin, begin + group);
    const scale = Math.max(...part.map(Math.abs)) / most || 1;
    scales.push(scale);
    levels.push(...part.map((value) => scale * Math.max(-most - 1, Math.min(most, Math.round(value / scale)))));
  }
  return { levels, scales };
}

export function relativeErrors(values: number[], levels: number[], except: number): { median: number; zeros: number } {
  const errors: number[] = [];
  let zeros = 0;
  values.forEach((value, i) => {
    if (i === except || value === 0) return;
    errors.push(Math.abs(levels[i]! - value) / Math.abs(value));
    if (levels[i] === 0) ++zeros;
  });
  errors.sort((a, b) => a - b);
  return { median: errors[Math.floor(errors.length / 2)] ?? 0, zeros: zeros / Math.max(1, errors.length) };
}

const stages = ["the weights as they are", "the largest sets the scale", "the scale sets the levels", "every weight goes to the nearest level"];

export function weightsPanel(row: WeightRow): { element: HTMLElement; leave: () => void } {
  const own = row.values.reduce((best, value, i) => Math.abs(value) > Math.abs(row.values[best]!) ? i : best, 0);
  let at = own; // which weight is the outlier
  let factor = 1;
  let bits = 4;
  let group = row.values.length;
  let stage = 0;
  const width = narrow() ? 360 : 720, height = narrow() ? 220 : 280, left = 10, right = 10;
  const picture = h("div", {});
  const story = h("p", { class: "story", "aria-live": "polite" });
  const draw = (): void => {
    const values = [...row.values]; // the outlier trades places
    values[own] = row.values[at]!;
    values[at] = row.values[own]! * factor;
    const { levels, scales } = snap(values, bits, group);
    const most = Math.max(...values.map(Math.abs)) * 1.08;
    const x = (i: number): number => left + (i + 0.5) / values.length * (width - left - right);
    const y = (value: number): number => height / 2 - value / most * (height / 2 - 8);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "weights-picture", role: "img",
      "aria-label": `${values.length} weights of ${row.tensor}; ${stages[stage]}` });
    if (stage >= 2) {
      scales.forEach((scale, g) => {
        const from = x(g * group) - 4;
        const to = x(Math.min(values.length, (g + 1) * group) - 1) + 4;
        const steps = 2 ** (bits - 1) - 1;
        if (scale / most * height / 2 < 1.2) { // too fine for lines
          svg.append(s("rect", { class: "levels", x: from, width: to - from, y: y(steps * scale), height: y(-steps * scale) - y(steps * scale) }));
          return;
        }
        for (let q = -steps; q <= steps; ++q) svg.append(s("line", { class: "level", x1: from, x2: to, y1: y(q * scale), y2: y(q * scale) }));
      });
    }
    svg.append(s("line", { class: "zero", x1: left, x2: width - right, y1: y(0), y2: y(0) }));
    values.forEach((value, i) => {
      const shown = stage >= 3 ? levels[i]! : value;
      if (stage >= 3) svg.append(s("line", { class: "moved", x1: x(i), x2: x(i), y1: y(value), y2: y(shown) }));
      svg.append(s("circle", { cx: x(i), cy: y(shown), r: (i === at ? 5 : 3.2) * (narrow() ? 0.7 : 1),
        class: `weight${i === at ? " outlier" : ""}${stage >= 3 && shown === 0 && value !== 0 ? " lost" : ""}` }, s("title", {}, precise(value, 3))));
    });
    if (stage >= 1) {
      scales.forEach((scale, g) => {
        const top = scale * (2 ** (bits - 1) - 1);
        svg.append(s("line", { class: "reach", x1: x(g * group) - 4, x2: x(Math.min(values.length, (g + 1) * group) - 1) + 4, y1: y(top), y2: y(top) }));
      });
    }
    fill(picture, svg);
    const error = relativeErrors(values, levels, at);
    fill(story, stage === 0 ? `${values.length} weights of row ${row.row} of ${row.tensor} (layer ${row.layer}, stored as ${row.type}), around the row's largest, which is ${precise(row.ratio, 3)} times its median.`
      : stage === 1 ? `The largest weight of ${group < values.length ? "each group" : "the row"} is the end of the scale: ${precise(Math.max(...scales) * (2 ** (bits - 1) - 1), 3)}.`
      : stage === 2 ? `${bits} bits give ${2 ** bits - 1} levels, ${precise(Math.max(...scales), 3)} apart.`
      : [`Median error of the others: `, h("b", {}, `${precise(100 * error.median, 3)}%`), `; `, h("b", {}, `${precise(100 * error.zeros, 3)}%`),
        ` of them became exactly 0. `, group === values.length ? "Make the outlier smaller and the levels come closer; or give it groups, and the damage stays inside one."
          : "Move the outlier: only its own group suffers."]);
  };
  const stepper = makeStepper("the weights", (step) => {
    stage = step;
    draw();
  });
  const slider = (id: string, label: string, min: number, max: number, step: number, value: number, set: (value: number) => void): HTMLElement => {
    const input = h("input", { type: "range", id, min, max, step, value: String(value) });
    input.addEventListener("input", () => {
      set(Number(input.value));
      draw();
    });
    return h("div", { class: "setting" }, h("label", { for: id }, label), input);
  };
  const select = (id: string, label: string, options: [string, number][], value: number, set: (value: number) => void): HTMLElement => {
    const input = h("select", { id, value: String(value), onchange: () => {
      set(Number(input.value));
      draw();
    } }, options.map(([name, one]) => h("option", { value: one }, name)));
    return h("div", { class: "setting" }, h("label", { for: id }, label), input);
  };
  stepper.set(stages.length, 3);
  return {
    element: h("div", { class: "learn-body" }, picture, stepper.element, story, h("div", { class: "knobs" },
      slider("w-factor", "Outlier, times its own size", 0.05, 4, 0.05, factor, (value) => { factor = value; }),
      slider("w-at", "Where it is", 0, row.values.length - 1, 1, at, (value) => { at = value; }),
      select("w-bits", "Bits", [["8", 8], ["4", 4], ["3", 3]], bits, (value) => { bits = value; }),
      select("w-group", "One scale for", [["the whole row", row.values.length], ["groups of 32", 32], ["groups of 16", 16]], group, (value) => { group = value; }))),
    leave: () => stepper.stop(),
  };
}
