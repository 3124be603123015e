// Calls of the server that sent the page. When it wants a key, the page asks for one.
import { h } from "./dom";

const keyName = "nibble.key";

export class ApiError extends Error {
  constructor(public status: number, message: string, public param: string | null) {
    super(message);
  }
}

let asking: Promise<string | null> | null = null;

function askForKey(wrong: boolean): Promise<string | null> {
  asking ??= new Promise<string | null>((resolve) => {
    const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true });
    const form = h("form", { method: "dialog" },
      h("h2", {}, "This server wants an API key"),
      h("p", {}, wrong ? "The key was not one of this server's. " : "",
        "It is kept in this tab only, and forgotten when you close it."),
      h("label", { for: "key" }, "API key"), input,
      h("div", { class: "row end" },
        h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Not now"),
        h("button", { type: "submit", class: "button primary" }, "Use this key")));
    const dialog = h("dialog", { class: "dialog", "aria-label": "API key" }, form);
    let key: string | null = null;
    form.addEventListener("submit", () => { key = input.value.trim() || null; });
    dialog.addEventListener("close", () => {
      dialog.remove();
      asking = null;
      resolve(key);
    });
    document.body.appendChild(dialog);
    dialog.showModal();
    input.focus();
  });
  return asking;
}

let declined = false; // polling does not ask again and again

async function call(path: string, init: RequestInit = {}): Promise<Response> {
  for (let wrong = false; ; wrong = true) {
    const headers = new Headers(init.headers);
    const key = sessionStorage.getItem(keyName);
    if (key) headers.set("Authorization", `Bearer ${key}`);
    const response = await fetch(path, { ...init, headers, cache: "no-store" });
    if (response.status !== 401 || (declined && init.method !== "POST")) return response;
    const held = sessionStorage.getItem(keyName);
    if (held !== key) continue; // another call has asked meanwhile
    const given = await askForKey(wrong || key !== null);
    if (!given) {
      declined = true;
      return response;
    }
    declined = false;
    sessionStorage.setItem(keyName, given);
  }
}

async function failure(response: Response): Promise<ApiError> {
  let message = `the server answered ${response.status}`;
  let param: string | null = null;
  try {
    const error = (await response.json()).error;
    message = error.message ?? message;
    param = error.param ?? null;
  } catch { /* no JSON: the status has to do */ }
  const after = response.headers.get("Retry-After");
  if (after && (response.status === 429 || response.status === 503))
    message += ` (try again in ${after} s)`;
  return new ApiError(response.status, message, param);
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, { signal });
  if (!response.ok) throw await failure(response);
  return await response.json() as T;
}

// The data of server-sent events until [DONE]. An error inside the stream is thrown.
export async function* postStream(path: string, body: unknown, signal: AbortSignal,
  head: (headers: Headers) => void): AsyncGenerator<any> {
  const response = await call(path, { method: "POST", body: JSON.stringify(body), signal,
    headers: { "Content-Type": "application/json" } });
  if (!response.ok || !response.body) throw await failure(response);
  head(response.headers);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the connection ended before the answer did");
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      if (!event.startsWith("data: ")) continue; // a comment
      const data = event.slice(6);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(0, chunk.error.message, null);
      yield chunk;
    }
  }
}
