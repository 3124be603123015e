// What the engine does now: the step's ragged batch, pages, bytes, and throughput beside latency.
import { makeChart } from "./chart";
import { emptyView, fill, h } from "./dom";
import { bytes, count, precise, seconds } from "./format";
import { batchStrip, stepHistory } from "./strip";
import { watchStatus, type Heard, type Status } from "./status";

const spanS = 120;

// What the charts show; kept while another view is open.
interface Sample {
  at: number;
  uptime: number;
  steps: number;
  rows: number;
  sampled: number | null;
  step_s: number | null;
  weight_bytes: number | null;
  kv_bytes: number | null;
  rate: number | null; // tokens of answers a second, since the sample before
  step: number | null; // seconds of a step
  weights: number | null; // bytes of a step
  kv: number | null;
  itl: [number, number] | null;
  ttft: [number, number] | null;
}
let samples: Sample[] = [];

function sampleOf({ status, at }: { status: Status; at: number }): Sample {
  const engine = status.engine;
  const own = (percentiles: { count: number; p50: number; p99: number }): [number, number] | null =>
    percentiles.count > 0 ? [percentiles.p50, percentiles.p99] : null;
  return {
    at, uptime: status.uptime_s, steps: engine?.steps ?? 0, rows: engine?.step_tokens ?? 0,
    sampled: engine?.sampled_tokens ?? null, step_s: engine?.step_s ?? null,
    weight_bytes: engine?.weight_bytes ?? null, kv_bytes: engine?.kv_bytes ?? null,
    rate: null, step: null, weights: null, kv: null,
    itl: own(status.latency.itl_s), ttft: own(status.latency.ttft_s),
  };
}

function record(heard: Heard): void {
  if ("error" in heard) return;
  const now = sampleOf(heard);
  const before = samples[samples.length - 1];
  if (before && now.uptime < before.uptime) samples = []; // another server
  else if (before && now.at - before.at < 0.2) return;
  if (before && samples.length > 0) {
    const took = now.at - before.at;
    const steps = now.steps - before.steps;
    now.rate = now.sampled !== null && before.sampled !== null
      ? (now.sampled - before.sampled) / took : (now.rows - before.rows) / took;
    if (steps > 0) {
      const each = (a: number | null, b: number | null): number | null =>
        a === null || b === null ? null : (a - b) / steps;
      now.step = each(now.step_s, before.step_s);
      now.weights = each(now.weight_bytes, before.weight_bytes);
      now.kv = each(now.kv_bytes, before.kv_bytes);
    }
  }
  samples.push(now);
  while (samples.length > 0 && now.at - samples[0]!.at > spanS) samples.shift();
}

function stat(label: string, value: string, more: string, tone = ""): HTMLElement {
  return h("div", { class: `stat ${tone}` }, h("span", { class: "label" }, label),
    h("strong", {}, value), h("span", { class: "more" }, more));
}

export function share(parts: { name: string; value: number; tone: string; text: string }[], label: string): HTMLElement {
  const total = parts.reduce((sum, one) => sum + one.value, 0) || 1;
  return h("div", { class: "share" },
    h("div", { class: "share-bar", role: "img", "aria-label": `${label}: ${parts.map((one) => `${one.name} ${one.text}`).join(", ")}` },
      parts.filter((one) => one.value > 0).map((one) =>
        h("i", { class: one.tone, style: { flex: `${one.value / total}` } }))),
    h("ul", { class: "legend" }, parts.map((one) => h("li", {}, h("i", { class: one.tone }), one.name, h("b", {}, one.text)))));
}

function drawStats(root: HTMLElement, status: Status): void {
  const last = samples[samples.length - 1];
  const engine = status.engine;
  const { itl_s: itl, ttft_s: ttft, window_s: window } = status.latency;
  const pair = (one: { count: number; p50: number; p99: number }): string =>
    one.count > 0 ? `${seconds(one.p50, 2)} · ${seconds(one.p99, 2)}` : "–";
  const step = status.steps?.[status.steps.length - 1];
  const read = step ? step.weight_bytes + step.kv_bytes : null;
  fill(root,
    stat("Running", count(engine?.running ?? 0), `${count(engine?.waiting ?? 0)} waiting`),
    stat("Tokens per second", last?.rate ? precise(last.rate) : "0", "of all answers together"),
    stat("Between tokens", pair(itl), `p50 · p99 of ${window} s`),
    stat("First token", pair(ttft), `p50 · p99 of ${window} s`),
    stat("Read per step", read === null ? bytes(engine?.weight_bytes_per_step ?? 0) : bytes(read),
      step && step.seconds > 0 && engine?.read_bandwidth
        ? `${precise(100 * read! / step.seconds / engine.read_bandwidth)}% of this machine's bandwidth`
        : step && step.seconds > 0 ? `${bytes(read! / step.seconds)}/s in the last step` : "of weights"));
}

function drawPages(root: HTMLElement, status: Status): void {
  const kv = status.kv;
  if (!kv) return;
  const free = kv.pages_total - kv.pages_used - kv.pages_cached;
  fill(root, h("h3", {}, "KV pages"),
    share([
      { name: "in use", value: kv.pages_used, tone: "kv", text: count(kv.pages_used) },
      { name: "cached prefixes", value: kv.pages_cached, tone: "kv-soft", text: count(kv.pages_cached) },
      { name: "free", value: free, tone: "none", text: count(free) }], "KV pages"),
    h("p", { class: "hint" }, `${count(kv.pages_peak)} of ${count(kv.pages_total)} pages were in use at most; ` +
      `pages that ever held anything take ${bytes(kv.touched_bytes)}. ` +
      `${count(status.engine!.cached_tokens)} prompt tokens came from the prefix cache, ` +
      `${count(status.engine!.preemptions)} sequences were preempted.`));
}

function drawMemory(root: HTMLElement, status: Status): void {
  const memory = status.memory;
  const rest = Math.max(0, memory.predicted_bytes - memory.weight_bytes - memory.kv_bytes);
  fill(root, h("h3", {}, "Memory"),
    share([
      { name: "weights", value: memory.weight_bytes, tone: "weights", text: bytes(memory.weight_bytes) },
      { name: "KV pages", value: memory.kv_bytes, tone: "kv", text: bytes(memory.kv_bytes) },
      { name: "everything else", value: rest, tone: "none", text: bytes(rest) }], "Memory"),
    h("p", { class: "hint" }, `Planned before loading: ${bytes(memory.predicted_bytes)} with all pages filled. ` +
      `Taken now: ${bytes(memory.resident_bytes)}. The pages hold ${count(memory.kv_tokens)} tokens, ` +
      `one request up to ${count(memory.max_context)}.`));
}

export function liveView(root: HTMLElement): () => void {
  const stats = h("div", { class: "stats" });
  const strip = h("section", { class: "card strip-card", "aria-label": "The step's batch" });
  const pages = h("section", { class: "card", "aria-label": "KV pages" });
  const memory = h("section", { class: "card", "aria-label": "Memory" });
  const empty = "Nothing was asked while this page watched; it looks back two minutes.";
  const rate = makeChart({ title: "Throughput", format: (value) => `${precise(value)}/s`, span_s: spanS, empty });
  const between = makeChart({ title: "Between tokens", format: (value) => seconds(value), span_s: spanS, empty });
  const first = makeChart({ title: "First token", format: (value) => seconds(value), span_s: spanS, empty });
  const read = makeChart({ title: "Bytes read per step", format: (value) => bytes(value, 3), stacked: true, span_s: spanS, height: window.innerWidth < 800 ? 168 : 290, empty });
  const problem = h("div", {});
  root.append(h("div", { class: "page" },
    h("header", { class: "page-head" }, h("h1", {}, "Live"),
      h("p", {}, "What the engine is doing now. Every step reads all weights once, for everybody in its batch.")),
    problem, stats, strip,
    h("div", { class: "triple" }, rate.element, between.element, first.element),
    h("div", { class: "pair" }, read.element, h("div", { class: "stack" }, pages, memory))));

  return watchStatus(500, (heard) => {
    record(heard);
    if ("error" in heard) {
      fill(problem, h("p", { class: "error", role: "alert" }, `No status: ${heard.error.message}`));
      return;
    }
    problem.replaceChildren();
    const status = heard.status;
    drawStats(stats, status);
    strip.hidden = !status.steps && (status.engine?.steps ?? 0) > 0; // a server that tells no steps
    if (status.steps?.length) {
      fill(strip, h("h3", {}, "The step's batch"), batchStrip(status.steps[status.steps.length - 1]!),
        stepHistory(status.steps));
    } else {
      fill(strip, h("h3", {}, "The step's batch"), emptyView("No step was run yet",
        "Ask something in Chat, or from a terminal:",
        `curl ${location.origin}/v1/${status.chat ? "chat/completions" : "completions"} -H 'Content-Type: application/json' -d '${
          status.chat ? '{"messages":[{"role":"user","content":"Why is the sky blue?"}],"max_tokens":100}' : '{"prompt":"Once upon a time","max_tokens":50}'}'`));
    }
    drawPages(pages, status);
    drawMemory(memory, status);
    const times = samples.map((one) => one.at);
    rate.draw(times, [{ name: "tokens", colour: "--ink-soft", values: samples.map((one) => one.rate) }]);
    between.draw(times, [
      { name: "p50", colour: "--line-a", values: samples.map((one) => one.itl?.[0] ?? null) },
      { name: "p99", colour: "--line-a", dashed: true, values: samples.map((one) => one.itl?.[1] ?? null) }]);
    first.draw(times, [
      { name: "p50", colour: "--line-b", values: samples.map((one) => one.ttft?.[0] ?? null) },
      { name: "p99", colour: "--line-b", dashed: true, values: samples.map((one) => one.ttft?.[1] ?? null) }]);
    read.draw(times, [
      { name: "weights", colour: "--weights", values: samples.map((one) => one.weights) },
      { name: "KV", colour: "--kv-fill", values: samples.map((one) => one.kv) }]);
  });
}
