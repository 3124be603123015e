// Lines and stacked areas over time, as SVG in the page's own pixels.
import { fill, h, s } from "./dom";

export interface Series {
  name: string;
  colour: string; // a CSS variable's name
  values: (number | null)[]; // one per time; null: nothing was measured
  dashed?: boolean;
}

export interface Chart {
  element: HTMLElement;
  draw(times: number[], series: Series[]): void;
}

interface Options {
  title: string;
  format(value: number): string;
  stacked?: boolean;
  span_s: number; // at most
  height?: number;
  empty: string;
}

const margin = { left: 58, right: 8, top: 10, bottom: 22 };

// 1, 2 or 5 times a power of ten, not below the largest value.
export function niceTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5, 10].find((one) => one * power >= value) ?? 10) * power;
}

// "50.0 ms" is said as "50 ms" on an axis.
const axisText = (text: string): string => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

// Pixels on either side of a value that has no neighbours, which would have no length else.
const alone = 2;

function lineOf(points: ([number, number] | null)[]): string {
  let path = "";
  points.forEach((point, i) => {
    if (!point) return;
    const [x, y] = point;
    const before = points[i - 1] ?? null;
    if (before || points[i + 1]) path += `${before ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    else path += `M${(x - alone).toFixed(1)} ${y.toFixed(1)}h${2 * alone}`;
  });
  return path;
}

function areaOf(upper: ([number, number] | null)[], lower: [number, number][]): string {
  let path = "";
  for (let i = 0; i < upper.length;) {
    if (!upper[i]) { ++i; continue; }
    let end = i;
    while (end < upper.length && upper[end]) ++end;
    let run = upper.slice(i, end) as [number, number][];
    let back = lower.slice(i, end).reverse();
    if (run.length === 1) {
      const [[x, y], [, base]] = [run[0]!, back[0]!];
      run = [[x - alone, y], [x + alone, y]];
      back = [[x + alone, base], [x - alone, base]];
    }
    path += `M${[...run, ...back].map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z`;
    i = end;
  }
  return path;
}

export function makeChart(options: Options): Chart {
  const height = options.height ?? 168;
  const frame = h("div", { class: "chart-frame" });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "card chart" },
    h("figcaption", {}, h("h3", {}, options.title), legend), frame);
  let times: number[] = [];
  let series: Series[] = [];
  let hover: number | null = null;
  let lastSpan = options.span_s;

  const drawLegend = (): void => fill(legend, series.map((one) => {
    const at = hover ?? one.values.length - 1;
    const value = one.values[at];
    return h("li", {}, h("i", { style: { background: `var(${one.colour})` }, class: one.dashed ? "dashed" : "" }),
      one.name, h("b", {}, value === null || value === undefined ? "–" : options.format(value)));
  }));

  const redraw = (): void => {
    drawLegend();
    const width = Math.max(240, frame.clientWidth);
    const some = series.some((one) => one.values.some((value) => value !== null));
    if (!some) {
      fill(frame, h("p", { class: "chart-empty" }, options.empty));
      return;
    }
    const end = times[times.length - 1] ?? 0;
    const span = [30, 60].find((one) => end - times[0]! <= one && one <= options.span_s) ?? options.span_s;
    lastSpan = span;
    const totals = times.map((_, i) => {
      const all = series.map((one) => one.values[i] ?? 0);
      return options.stacked ? all.reduce((a, b) => a + b, 0) : Math.max(...all);
    });
    const top = niceTop(Math.max(...totals) * 1.02);
    const x = (time: number): number =>
      width - margin.right - (end - time) / span * (width - margin.left - margin.right);
    const y = (value: number): number =>
      height - margin.bottom - value / top * (height - margin.top - margin.bottom);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": `${options.title}: ${series.map((one) => {
        const last = one.values[one.values.length - 1];
        return `${one.name} ${last === null || last === undefined ? "nothing" : options.format(last)}`;
      }).join(", ")}` });
    for (const share of [0, 0.5, 1]) {
      svg.append(s("line", { x1: margin.left, x2: width - margin.right, y1: y(top * share), y2: y(top * share), class: "grid" }),
        s("text", { x: margin.left - 8, y: y(top * share) + 4, class: "axis", "text-anchor": "end" }, axisText(options.format(top * share))));
    }
    for (const back of [span, span / 2, 0]) {
      svg.append(s("text", { x: x(end - back), y: height - 5, class: "axis",
        "text-anchor": back === 0 ? "end" : back === span ? "start" : "middle" },
      back === 0 ? "now" : `−${back} s`));
    }
    const base = times.map(() => 0);
    for (const one of series) {
      const points = one.values.map((value, i): [number, number] | null =>
        value === null ? null : [x(times[i]!), y((options.stacked ? base[i]! : 0) + value)]);
      if (options.stacked) {
        const lower = times.map((time, i): [number, number] => [x(time), y(base[i]!)]);
        svg.append(s("path", { d: areaOf(points, lower), class: "area", style: { fill: `var(${one.colour})` } }));
        one.values.forEach((value, i) => { base[i]! += value ?? 0; });
      } else {
        svg.append(s("path", { d: lineOf(points), class: `line${one.dashed ? " dashed" : ""}`,
          style: { stroke: `var(${one.colour})` } }));
      }
    }
    if (hover !== null && times[hover] !== undefined) {
      svg.append(s("line", { x1: x(times[hover]!), x2: x(times[hover]!), y1: margin.top, y2: height - margin.bottom, class: "cross" }));
    }
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const time = end - (width - margin.right - ((event as PointerEvent).clientX - box.left)) /
        (width - margin.left - margin.right) * lastSpan;
      let best = 0;
      times.forEach((one, i) => { if (Math.abs(one - time) < Math.abs(times[best]! - time)) best = i; });
      if (hover !== best) {
        hover = best;
        redraw();
      }
    });
    svg.addEventListener("pointerleave", () => {
      hover = null;
      redraw();
    });
    fill(frame, svg);
  };
  new ResizeObserver(() => redraw()).observe(frame);
  return { element, draw: (newTimes, newSeries) => {
    const shift = newTimes.length - times.length;
    times = newTimes;
    series = newSeries;
    if (hover !== null && shift === 0) hover = Math.max(0, hover - 1);
    redraw();
  } };
}
