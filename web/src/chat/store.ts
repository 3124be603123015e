// Conversations, kept in this browser only.

export interface Figures {
  tokens: number;
  first_s: number; // from asking to the first text, as the page saw it
  total_s: number;
  tok_s: number | null; // behind the first token, as the engine counted
  weight_bytes: number; // of all steps behind the first token
  kv_bytes: number;
  cached: number;
  prompt: number;
  seed: string | null;
  reason: string; // why it ended
  dropped?: number; // oldest messages that the context had no room for
}

export interface Message {
  role: "user" | "assistant";
  text: string;
  reasoning?: string;
  figures?: Figures;
  error?: string;
}

export interface Conversation {
  id: string;
  title: string;
  changed: number;
  messages: Message[];
}

const key = "nibble.conversations";
const kept = 200;

export function loadConversations(): Conversation[] {
  try {
    const all = JSON.parse(localStorage.getItem(key) ?? "[]");
    if (Array.isArray(all)) return all.filter((one) => Array.isArray(one?.messages));
  } catch { /* somebody else's: begin anew */ }
  return [];
}

// When the browser's room is full, the oldest go.
export function saveConversations(all: Conversation[]): void {
  const list = [...all].sort((a, b) => b.changed - a.changed)
    .filter((one) => one.messages.length > 0).slice(0, kept);
  for (;;) {
    try {
      localStorage.setItem(key, JSON.stringify(list));
      return;
    } catch {
      if (list.length <= 1) return;
      list.pop();
    }
  }
}

export function newConversation(): Conversation {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "New conversation", changed: Date.now(), messages: [] };
}

export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57)}…` : line || "New conversation";
}
