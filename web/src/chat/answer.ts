// Asks for one answer and tells of it as it comes.
import { postStream } from "../api";
import type { Figures, Message } from "./store";
import { requestMembers, type Settings } from "./settings";

export interface Progress {
  text: string;
  reasoning: string;
  tokens: number;
  first_s: number | null;
  elapsed_s: number;
}

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens: number };
  nibble?: { decode_s: number; decode_steps: number; decode_weight_bytes: number; decode_kv_bytes: number };
}

// What is served: with a chat template, and room for so many tokens of prompt and answer.
export interface Served {
  chat: boolean;
  context: number;
}

// Of an answer of a model without a chat template, whose texts have no end.
const mostPlainTokens = 200;

// A model without a chat template goes on with the text as it stands.
function bodyOf(messages: Message[], settings: Settings, { chat, context }: Served): Record<string, unknown> {
  const common = { ...requestMembers(settings), stream: true, stream_options: { include_usage: true } };
  if (!chat) {
    const fits = Math.max(1, Math.floor(context / 4));
    return { max_tokens: Math.min(mostPlainTokens, fits), ...common, prompt: messages.map((one) => one.text).join("") };
  }
  const turns: { role: string; content: string }[] = [];
  for (const { role, text } of messages) { // templates want turns that alternate; a failed answer is none
    const last = turns[turns.length - 1];
    if (role === "assistant" && !text) continue;
    if (last?.role === role) last.content += `\n\n${text}`;
    else turns.push({ role, content: text });
  }
  if (settings.system.trim()) turns.unshift({ role: "system", content: settings.system });
  return { ...common, truncation: "auto", messages: turns };
}

function figuresOf(progress: Progress, usage: Usage | null, reason: string): Figures {
  const own = usage?.nibble;
  // Steps that verify guesses give several tokens each.
  const behind_first = (usage?.completion_tokens ?? 0) - 1;
  return {
    tokens: usage?.completion_tokens ?? progress.tokens,
    first_s: progress.first_s ?? progress.elapsed_s,
    total_s: progress.elapsed_s,
    tok_s: own && own.decode_s > 0 && behind_first > 0 ? behind_first / own.decode_s : null,
    weight_bytes: own?.decode_weight_bytes ?? 0,
    kv_bytes: own?.decode_kv_bytes ?? 0,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
    prompt: usage?.prompt_tokens ?? 0,
    seed: null,
    reason,
  };
}

export async function askForAnswer(messages: Message[], settings: Settings, served: Served,
  signal: AbortSignal, tell: (progress: Progress) => void): Promise<Message> {
  const started = performance.now();
  const progress: Progress = { text: "", reasoning: "", tokens: 0, first_s: null, elapsed_s: 0 };
  let usage: Usage | null = null;
  let reason = "";
  let seed: string | null = null;
  let dropped = 0;
  const { chat } = served;
  const path = chat ? "/v1/chat/completions" : "/v1/completions";
  const done = (): Message => {
    const message: Message = { role: "assistant", text: progress.text,
      figures: { ...figuresOf(progress, usage, reason), seed, ...(dropped > 0 && { dropped }) } };
    if (progress.reasoning) message.reasoning = progress.reasoning;
    return message;
  };
  try {
    for await (const chunk of postStream(path, bodyOf(messages, settings, served), signal,
      (headers) => {
        seed = headers.get("X-Nibble-Seed");
        dropped = Number(headers.get("X-Nibble-Dropped-Messages") ?? 0);
      })) {
      progress.elapsed_s = (performance.now() - started) / 1000;
      if (chunk.usage) usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      if (choice.finish_reason) reason = choice.finish_reason;
      const text: string = (chat ? choice.delta?.content : choice.text) ?? "";
      const thought: string = choice.delta?.reasoning_content ?? "";
      if (!text && !thought) continue;
      progress.first_s ??= progress.elapsed_s;
      ++progress.tokens;
      progress.text += text;
      progress.reasoning += thought;
      tell(progress);
    }
  } catch (error) {
    progress.elapsed_s = (performance.now() - started) / 1000;
    if (signal.aborted) {
      reason = "stopped";
      return done();
    }
    return { ...done(), figures: undefined, error: (error as Error).message };
  }
  return done();
}
