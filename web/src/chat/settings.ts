// How answers are sampled: a panel, and what of it goes into a request.
import { h } from "../dom";

interface Field {
  key: string;
  label: string;
  hint: string;
  off: number; // the value that changes nothing
  min: number;
  max: number;
  step: number;
}

const fields: Field[] = [
  { key: "temperature", label: "Temperature", hint: "0 takes the most probable token, every time", off: 1, min: 0, max: 2, step: 0.05 },
  { key: "top_p", label: "Top-p", hint: "the smallest set of tokens with this probability; 1 is off", off: 1, min: 0.05, max: 1, step: 0.05 },
  { key: "top_k", label: "Top-k", hint: "the k most probable tokens; 0 is off", off: 0, min: 0, max: 200, step: 1 },
  { key: "min_p", label: "Min-p", hint: "at least this share of the best token's probability; 0 is off", off: 0, min: 0, max: 0.5, step: 0.01 },
  { key: "repetition_penalty", label: "Repetition penalty", hint: "1 is off", off: 1, min: 1, max: 1.5, step: 0.01 },
  { key: "presence_penalty", label: "Presence penalty", hint: "0 is off", off: 0, min: -2, max: 2, step: 0.1 },
  { key: "frequency_penalty", label: "Frequency penalty", hint: "0 is off", off: 0, min: -2, max: 2, step: 0.1 },
];

export interface Settings {
  system: string;
  max_tokens: number | null;
  seed: number | null;
  numbers: Record<string, number>;
}

const key = "nibble.sampling";
const fallback: Settings = { system: "", max_tokens: null, seed: null,
  numbers: { temperature: 0.7, top_p: 0.95 } };

export function loadSettings(): Settings {
  try {
    const held = JSON.parse(localStorage.getItem(key) ?? "null");
    if (held && typeof held.numbers === "object") return { ...fallback, ...held };
  } catch { /* not ours */ }
  return structuredClone(fallback);
}

// The members of a request; what changes nothing is left out.
export function requestMembers(settings: Settings): Record<string, number> {
  const out: Record<string, number> = {};
  for (const field of fields) {
    const value = settings.numbers[field.key] ?? field.off;
    if (value !== field.off) out[field.key] = value;
  }
  if (settings.max_tokens !== null) out.max_tokens = settings.max_tokens;
  if (settings.seed !== null) out.seed = settings.seed;
  return out;
}

export function settingsPanel(settings: Settings, chat: boolean): HTMLElement {
  const save = (): void => localStorage.setItem(key, JSON.stringify(settings));
  const sliders = fields.map((field) => {
    const value = (): number => settings.numbers[field.key] ?? field.off;
    const number = h("input", { type: "number", "aria-label": field.label, min: field.min,
      max: field.max, step: "any", value: String(value()) });
    const range = h("input", { type: "range", id: `s-${field.key}`, min: field.min, max: field.max,
      step: field.step, value: String(value()), "aria-describedby": `h-${field.key}` });
    const set = (text: string, from: HTMLInputElement): void => {
      const given = Number(text);
      if (text === "" || !Number.isFinite(given)) return;
      settings.numbers[field.key] = Math.min(field.max, Math.max(field.min, given));
      for (const other of [number, range]) if (other !== from) other.value = String(value());
      save();
    };
    range.addEventListener("input", () => set(range.value, range));
    number.addEventListener("change", () => {
      set(number.value, range);
      number.value = String(value());
    });
    return h("div", { class: "setting" },
      h("div", { class: "setting-head" }, h("label", { for: `s-${field.key}` }, field.label), number),
      range, h("p", { class: "hint", id: `h-${field.key}` }, field.hint));
  });
  const whole = (name: "max_tokens" | "seed", label: string, hint: string): HTMLElement => {
    const input = h("input", { type: "number", id: `s-${name}`, min: name === "seed" ? 0 : 1, step: 1,
      placeholder: name === "seed" ? "random" : "to the end", value: settings[name] ?? "",
      onchange: () => {
        const given = Math.floor(Number(input.value));
        settings[name] = input.value === "" || !(given >= Number(input.min)) ? null : given;
        input.value = String(settings[name] ?? "");
        save();
      } });
    return h("div", { class: "setting" },
      h("div", { class: "setting-head" }, h("label", { for: `s-${name}` }, label), input),
      h("p", { class: "hint" }, hint));
  };
  const system = h("textarea", { id: "s-system", rows: 3, placeholder: "You are …", value: settings.system,
    oninput: () => {
      settings.system = system.value;
      save();
    } });
  return h("div", { class: "settings" },
    chat && h("div", { class: "setting" }, h("label", { for: "s-system" }, "System prompt"), system),
    sliders, whole("max_tokens", "Most tokens", "empty: until the answer ends or the context is full"),
    whole("seed", "Seed", "the same seed and text give the same answer, whoever else asks meanwhile"));
}
