// Where the bytes of a decode step go, for a model, a device and formats. Every figure is the
// server's: GET /plan, the same C++ as `nibble plan`.
import { ApiError, getJson } from "./api";
import { command, emptyView, fill, h } from "./dom";
import { bytes, count, precise } from "./format";

interface Was { weight_bytes: number; kv_bytes: number; step_s: number; tok_s: number; bound: string }
interface Row {
  weights: string; kv: string; batch: number; context: number; weight_bytes: number; kv_bytes: number;
  step_s: number; tok_s: number; speedup: number; bound: "memory" | "compute"; memory_weights_bytes: number;
  memory_kv_bytes: number; memory_total_bytes: number; device_memory_bytes: number; fits: boolean;
  max_batch: number; max_context: number; why: string; was: Was;
}
interface PlanAnswer {
  rows: Row[]; pairs: Row[]; crossover_tokens: number | null; counting: string; counting_text: string;
  left_out: string[];
  model: { name: string; context_length: number };
  device: { name: string; description: string; memory_bytes: number; bandwidth: number; bandwidth_efficiency: number };
  choices: { models: string[]; devices: string[]; weights: string[]; kv: string[] };
}

// The second document's own case.
const opening = { model: "llama-3-8b", device: "h100", devices: 1, weights: "bf16", kv: "bf16", batch: 16, context: 4096 };
type Case = typeof opening;

let held: Case | null = null;

function readAddress(): Case {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const out: Case = { ...(held ?? opening) };
  for (const key of Object.keys(out) as (keyof Case)[]) {
    const given = query.get(key);
    if (given === null) continue;
    if (typeof out[key] === "string") (out[key] as string) = given;
    else if (Number.isFinite(Number(given))) (out[key] as number) = Math.round(Number(given));
  }
  out.devices = Math.min(16, Math.max(1, out.devices));
  out.batch = Math.min(512, Math.max(1, out.batch));
  out.context = Math.min(131072, Math.max(1, out.context));
  return out;
}

const query = (one: Case): string =>
  new URLSearchParams(Object.entries(one).map(([key, value]) => [key, String(value)])).toString();

const size = (value: number): string => value >= 1e9 ? `${(value / 1e9).toFixed(2)} GB` : bytes(value, 3);
const milliseconds = (value: number, digits = 2): string =>
  value >= 1 ? `${precise(value, 3)} s` : `${(value * 1000).toFixed(digits)} ms`;
const tokens = (value: number): string => value >= 100 ? String(Math.round(value)) : precise(value, 3);
// "a, b" as "A, b."
const sentence = (text: string): string =>
  text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const whole = (value: number): string => value % 1e9 === 0 ? `${value / 1e9} GB` : size(value);

// A slider whose positions are equal factors apart, and the number itself.
function slider(id: string, label: string, values: number[], value: number, set: (value: number) => void): HTMLElement {
  const nearest = (wanted: number): number =>
    values.reduce((best, one, i) => Math.abs(one - wanted) < Math.abs(values[best]! - wanted) ? i : best, 0);
  const last = values[values.length - 1]!;
  const number = h("input", { type: "number", min: values[0], max: last, step: 1, "aria-label": label, value: String(value) });
  const range = h("input", { type: "range", id, min: 0, max: values.length - 1, step: 1, value: String(nearest(value)),
    "aria-valuetext": count(value) });
  range.addEventListener("input", () => {
    const now = values[Number(range.value)]!;
    range.setAttribute("aria-valuetext", count(now));
    number.value = String(now);
    set(now);
  });
  number.addEventListener("change", () => {
    const now = Math.min(last, Math.max(values[0]!, Math.round(Number(number.value)) || values[0]!));
    number.value = String(now);
    range.value = String(nearest(now));
    set(now);
  });
  return h("div", { class: "setting" }, h("div", { class: "setting-head" }, h("label", { for: id }, label), number), range);
}

function powers(from: number, to: number): number[] {
  const out: number[] = [];
  for (let value = from; value <= to; value *= 2) {
    out.push(value);
    if (value >= 4 && value * 1.5 < to) out.push(value * 1.5);
  }
  return out;
}

function choice(label: string, names: string[], chosen: string, set: (name: string) => void): HTMLElement {
  if (!names.includes(chosen)) names = [chosen, ...names];
  const select = h("select", { id: `p-${label}`, value: chosen, onchange: () => set(select.value) },
    names.map((one) => h("option", { value: one }, one)));
  return h("div", { class: "setting" }, h("label", { for: `p-${label}` }, label), select);
}

function segments(label: string, names: string[], chosen: string, set: (name: string) => void): HTMLElement {
  const group = h("div", { class: "segments", role: "radiogroup", "aria-label": label });
  const draw = (): void => fill(group, names.map((one) => h("label", { class: one === chosen ? "chosen" : "" },
    h("input", { type: "radio", name: label, value: one, checked: one === chosen, onchange: () => {
      chosen = one;
      for (const other of group.querySelectorAll("label"))
        other.classList.toggle("chosen", other.querySelector("input")!.value === one);
      set(one);
    } }), one)));
  draw();
  return h("div", { class: "setting" }, h("span", { class: "label" }, label), group);
}

function figure(label: string, value: string, was: string, tone: string): HTMLElement {
  return h("div", { class: `stat ${tone}` }, h("span", { class: "label" }, label), h("strong", {}, value),
    h("span", { class: "more" }, was));
}

function bytesBar(row: Row): HTMLElement {
  const total = row.weight_bytes + row.kv_bytes;
  const percent = (value: number): string => `${Math.round(100 * value / total)}%`;
  return h("div", { class: "bytes-bar", role: "img",
    "aria-label": `Of ${size(total)} read in a step, ${size(row.weight_bytes)} are weights and ${size(row.kv_bytes)} are KV cache` },
    h("i", { class: "weights", style: { flex: String(row.weight_bytes / total) } },
      row.weight_bytes / total > 0.16 ? h("span", {}, `weights ${percent(row.weight_bytes)}`) : null),
    h("i", { class: "kv", style: { flex: String(row.kv_bytes / total) } },
      row.kv_bytes / total > 0.16 ? h("span", {}, `KV ${percent(row.kv_bytes)}`) : null));
}

function pairBars(pairs: Row[], now: Case, choose: (row: Row) => void): HTMLElement {
  const most = Math.max(...pairs.map((one) => one.weight_bytes + one.kv_bytes));
  return h("ul", { class: "pairs plainlist" }, pairs.map((one) => {
    const chosen = one.weights === now.weights && one.kv === now.kv;
    return h("li", {}, h("button", { type: "button", class: chosen ? "chosen" : "", "aria-pressed": chosen ? "true" : "false",
      onclick: () => choose(one),
      "aria-label": `Weights ${one.weights}, KV ${one.kv}: ${milliseconds(one.step_s)}, ${tokens(one.tok_s)} tokens a second` },
    h("span", { class: "pair-name" }, `W ${one.weights} · KV ${one.kv}`),
    h("span", { class: "pair-bar" },
      h("i", { class: "weights", style: { width: `${100 * one.weight_bytes / most}%` } }),
      h("i", { class: "kv", style: { width: `${100 * one.kv_bytes / most}%` } })),
    h("span", { class: "pair-time" }, milliseconds(one.step_s, 1))));
  }));
}

function drawAnswer(root: HTMLElement, plan: PlanAnswer, now: Case, choose: (row: Row) => void): void {
  const row = plan.rows[0]!;
  const faster = row.speedup;
  const gain = faster >= 0.995 ? `${faster.toFixed(2)}×` : `${precise(faster, 2)}×`;
  const sum = `${size(row.memory_weights_bytes)} of weights + ${size(row.memory_kv_bytes)} of cache = ` +
    `${size(row.memory_total_bytes)} of ${whole(row.device_memory_bytes)}`;
  fill(root,
    h("section", { class: "card", "aria-label": "The step" },
      h("h3", {}, "Where the bytes of one decode step go"), bytesBar(row),
      h("div", { class: "stats inner" },
        figure("Weight bytes / step", size(row.weight_bytes), `was ${size(row.was.weight_bytes)}`, "weights-tone"),
        figure("KV bytes / step", size(row.kv_bytes), `was ${size(row.was.kv_bytes)}`, "kv-tone"),
        figure("Step time", milliseconds(row.step_s), `${row.bound}-bound; was ${milliseconds(row.was.step_s)}`, ""),
        figure("Tokens / s", tokens(row.tok_s), `${gain} BF16; was ${tokens(row.was.tok_s)}`, "")),
      h("p", { class: `memory-sum ${row.fits ? "fits" : "too-much"}` }, `Memory: ${sum}: `,
        h("strong", {}, row.fits ? "fits" : "does not fit"), "."),
      h("p", { class: "hint" }, sentence(row.why), row.max_context > 0 ? ` At this context at most ${count(row.max_batch)} sequences fit; ` +
        `with this batch at most ${count(row.max_context)} tokens each.` : "")),
    h("section", { class: "card", "aria-label": "Format pairs" },
      h("h3", {}, "Six pairs of formats, the same batch and context"), pairBars(plan.pairs, now, choose),
      h("p", { class: "hint" }, "Blue: weight bytes. Amber: KV-cache bytes. Right: step time." +
        (plan.crossover_tokens ? ` With ${row.weights} weights and a ${row.kv} cache, the cache passes the weights once the batch holds ` +
          `about ${count(Number(plan.crossover_tokens.toPrecision(3)))} tokens of context in all.` : ""))),
    h("section", { class: "card prose-card", "aria-label": "What is not modelled" },
      h("h3", {}, "What is not modelled"), h("ul", {}, plan.left_out.map((one) => h("li", {}, one))),
      h("p", { class: "hint" }, `${sentence(plan.counting_text)} ${plan.device.name}: ${sentence(plan.device.description)}`)),
    h("div", {}, h("p", { class: "hint above" }, "The same figures in a terminal:"), command(
      `nibble plan --model ${now.model} --device ${now.device} --devices ${now.devices} --weights ${now.weights} ` +
      `--kv ${now.kv} --batch ${now.batch} --context ${now.context}`)));
}

export function plannerView(root: HTMLElement): () => void {
  const now = readAddress();
  let abort = new AbortController();
  let timer = 0;
  let drawn = false;
  const answer = h("div", { class: "stack planner-answer", "aria-live": "off" });
  const controls = h("section", { class: "card controls", "aria-label": "The case" });
  const problem = h("div", { role: "alert" });

  const ask = async (): Promise<void> => {
    abort.abort();
    abort = new AbortController();
    held = { ...now };
    history.replaceState(null, "", `#/planner?${query(now)}`);
    try {
      const plan = await getJson<PlanAnswer>(`/plan?${query(now)}`, abort.signal);
      problem.replaceChildren();
      if (!drawn) drawControls(plan);
      drawAnswer(answer, plan, now, (row) => {
        now.weights = row.weights;
        now.kv = row.kv;
        drawControls(plan);
        void ask();
      });
    } catch (error) {
      if ((error as Error).name === "AbortError") return;
      if (error instanceof ApiError && error.status === 404) {
        fill(problem, emptyView("This server has no /plan", "It was built without the cost model. The command has it:",
          `nibble plan --model ${now.model} --device ${now.device}`));
        return;
      }
      fill(problem, h("p", { class: "error" }, (error as Error).message));
    }
  };
  const change = (): void => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void ask(), 50);
  };
  const drawControls = (plan: PlanAnswer): void => {
    drawn = true;
    const { choices } = plan;
    const contexts = powers(128, 131072);
    fill(controls,
      h("div", { class: "row between" }, h("h3", {}, "The case"), h("button", { type: "button", class: "quiet", onclick: () => {
        Object.assign(now, opening);
        drawControls(plan);
        void ask();
      } }, "Start again")),
      choice("Model", choices.models, now.model, (name) => { now.model = name; change(); }),
      choice("Device", choices.devices, now.device, (name) => { now.device = name; change(); }),
      slider("p-devices", "Devices", Array.from({ length: 16 }, (_, i) => i + 1), now.devices, (value) => { now.devices = value; change(); }),
      segments("Weights", choices.weights, now.weights, (name) => { now.weights = name; change(); }),
      segments("KV cache", choices.kv, now.kv, (name) => { now.kv = name; change(); }),
      slider("p-batch", "Batch", powers(1, 512), now.batch, (value) => { now.batch = value; change(); }),
      slider("p-context", "Context per sequence", contexts, now.context, (value) => { now.context = value; change(); }));
  };
  root.append(h("div", { class: "page" },
    h("header", { class: "page-head" }, h("h1", {}, "Planner"),
      h("p", {}, "A decode step reads every weight once, then the cache of every sequence. Fewer bytes, faster tokens: " +
        "at batch 1 nearly all of them are weights; at long context and large batch the cache takes over.")),
    problem, h("div", { class: "planner" }, controls, answer)));
  void ask();
  return () => {
    window.clearTimeout(timer);
    abort.abort();
  };
}
