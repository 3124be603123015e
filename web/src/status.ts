// What GET /status says, asked for by whoever looks: one timer for the whole page.
import { getJson } from "./api";

export interface Percentiles { count: number; p50: number; p90: number; p99: number }
export interface Span { request: number; choice: number; first: number; rows: number; answer: boolean }
export interface Step {
  step: number; seconds: number; rows: number; weight_bytes: number; kv_bytes: number; spans: Span[];
}
export interface Status {
  status: "ok" | "loading" | "draining";
  model: string;
  uptime_s: number;
  chat: boolean;
  engine?: {
    running: number; waiting: number; steps: number; step_tokens: number; preemptions: number;
    prefix_hits: number; cached_tokens: number; threads: number; weight_bytes_per_step: number;
    sampled_tokens?: number; step_s?: number; weight_bytes?: number; kv_bytes?: number;
    read_bandwidth?: number;
  };
  kv?: { pages_used: number; pages_cached: number; pages_peak: number; pages_total: number;
    touched_bytes: number };
  steps?: Step[]; // the last few
  latency: { window_s: number; ttft_s: Percentiles; itl_s: Percentiles };
  queue: { requests: number; prompt_tokens: number; finished_per_s: number; tokens_per_s: number };
  http: { connections: number };
  memory: { max_context: number; weight_bytes: number; kv_bytes: number; kv_tokens: number;
    predicted_bytes: number; resident_bytes: number };
}

// What somebody hears: a status, or why there is none.
export type Heard = { status: Status; at: number } | { error: Error };
type Listener = (heard: Heard) => void;

const listeners = new Map<Listener, number>();
let timer = 0;
let latest: Heard | null = null;

// The steps that were told of since the page was opened, oldest first. Where more ran between two
// answers than an answer holds, some are missing.
let told: Step[] = [];
const kept = 192;

function keepSteps(steps: Step[]): void {
  const last = told[told.length - 1]?.step ?? 0;
  const newest = steps[steps.length - 1]?.step ?? 0;
  if (newest < last) told = []; // another server
  told = [...told, ...steps.filter((one) => told.length === 0 || one.step > last)].slice(-kept);
}

async function ask(): Promise<void> {
  try {
    const status = await getJson<Status>("/status");
    if (status.steps) {
      keepSteps(status.steps);
      status.steps = told;
    }
    latest = { status, at: performance.now() / 1000 };
  } catch (error) {
    latest = { error: error as Error };
  }
  for (const listener of [...listeners.keys()]) listener(latest);
  schedule();
}

function schedule(): void {
  window.clearTimeout(timer);
  if (listeners.size === 0) return;
  const wait = document.hidden ? 5000 : Math.min(...listeners.values());
  timer = window.setTimeout(() => void ask(), wait);
}

// Calls every `every_ms` milliseconds, or more often when somebody else wants that; gives what ends
// it.
export function watchStatus(every_ms: number, listener: Listener): () => void {
  listeners.set(listener, every_ms);
  if (latest) listener(latest);
  window.clearTimeout(timer);
  timer = window.setTimeout(() => void ask(), 0);
  return () => {
    listeners.delete(listener);
    schedule();
  };
}
document.addEventListener("visibilitychange", schedule);
