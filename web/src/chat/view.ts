// The view of conversations: a list, the messages of one, and the box to ask in.
import { fill, h, icon, iconButton } from "../dom";
import { precise } from "../format";
import { watchStatus } from "../status";
import { askForAnswer, type Progress } from "./answer";
import { messageBody, messageElement } from "./message";
import { loadSettings, settingsPanel } from "./settings";
import { loadConversations, newConversation, saveConversations, titleOf, type Conversation } from "./store";

const suggestions = ["Why is the sky blue?", "Write a haiku about memory bandwidth.",
  "Explain quantisation to a ten-year-old.", "Write a Python function that reverses a list."];

// What runs outlives the view: one can look at Live while an answer comes.
let running: { conversation: Conversation; abort: AbortController; progress: Progress | null } | null = null;
let redraw: (() => void) | null = null;
let follow: ((progress: Progress) => void) | null = null;
let conversations: Conversation[] | null = null;
let current: Conversation | null = null;

export function chatView(root: HTMLElement): () => void {
  conversations ??= loadConversations();
  current ??= newConversation();
  const all = conversations;
  const settings = loadSettings();
  let chat = true;
  let context = 4 * 200; // until the server has told
  let known = false; // whether the model has a template

  const list = h("ul", { class: "conversations" });
  const messages = h("div", { class: "messages" });
  const box = h("textarea", { rows: 1, "aria-label": "Your message", placeholder: "Ask something" });
  const send = h("button", { type: "submit", class: "send" });
  const note = h("p", { class: "note" });
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "log", "aria-label": "Conversation" }, messages);
  const side = h("aside", { class: "side", "aria-label": "Conversations" },
    h("button", { type: "button", class: "button wide", onclick: () => choose(newConversation()) },
      icon("plus"), "New conversation"), list);
  const panel = h("aside", { class: "panel-side", "aria-label": "Sampling settings" });
  const layout = h("div", { class: "chat" });

  const choose = (conversation: Conversation): void => {
    current = conversation;
    layout.classList.remove("show-list");
    draw();
    box.focus();
  };
  const atEnd = (): boolean => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
  const toEnd = (): void => { scroller.scrollTop = scroller.scrollHeight; };

  const drawList = (): void => fill(list, all.sort((a, b) => b.changed - a.changed).map((one) =>
    h("li", { class: one === current ? "chosen" : "" },
      h("button", { type: "button", class: "open", "aria-current": one === current ? "true" : undefined,
        onclick: () => choose(one) }, one.title),
      iconButton("trash", `Delete “${one.title}”`, () => {
        if (running?.conversation === one) running.abort.abort();
        all.splice(all.indexOf(one), 1);
        saveConversations(all);
        choose(one === current ? newConversation() : current!);
      }))));

  const drawSend = (): void => {
    fill(send, icon(running ? "stop" : "send"));
    send.setAttribute("aria-label", running ? "Stop the answer" : "Send");
    send.title = running ? "Stop (Esc)" : "Send (Enter)";
  };

  const draw = (): void => {
    const own = current!;
    drawList();
    drawSend();
    if (own.messages.length === 0) {
      fill(messages, h("div", { class: "welcome" },
        h("h1", {}, chat ? "What would you like to know?" : "Begin a text, and the model goes on"),
        h("p", {}, chat
          ? "Everything runs on the machine that serves this page. Conversations stay in this browser."
          : "This model has no chat template: it continues what you write."),
        chat && h("div", { class: "suggestions" }, suggestions.map((text) =>
          h("button", { type: "button", class: "chip", onclick: () => void ask(text) }, text)))));
      return;
    }
    fill(messages, own.messages.map((message, i) => messageElement(message, {
      last: i === own.messages.length - 1 && running?.conversation !== own,
      markdown: chat,
      again: () => void answer(own, i),
      edit: (text) => {
        own.messages.length = i;
        void ask(text);
      },
    })));
    if (running?.conversation === own) {
      const body = h("div", { class: "body" });
      const rate = h("div", { class: "figures" }, h("span", { class: "pulse" }, "reading the prompt"));
      messages.append(h("article", { class: "message assistant", "aria-busy": "true", "aria-label": "Answer" }, body, rate));
      follow = (progress) => {
        const stay = atEnd();
        body.replaceChildren(...messageBody(
          { role: "assistant", text: progress.text, reasoning: progress.reasoning || undefined }, chat, true));
        const since = progress.elapsed_s - (progress.first_s ?? 0);
        fill(rate, h("span", { class: "pulse" }, `${progress.tokens} tokens` +
          (since > 0.3 ? ` · ${precise((progress.tokens - 1) / since)} tokens/s` : "")));
        if (stay) toEnd();
      };
      if (running.progress) follow(running.progress);
    }
    toEnd();
  };

  // The answer to the messages before `at`, which it takes the place of.
  const answer = async (own: Conversation, at: number): Promise<void> => {
    if (running) return;
    own.messages.length = at;
    const abort = new AbortController();
    const mine = { conversation: own, abort, progress: null as Progress | null };
    running = mine;
    redraw?.();
    let due = 0;
    const message = await askForAnswer(own.messages, settings, { chat, context }, abort.signal, (progress) => {
      mine.progress = progress;
      due ||= window.setTimeout(() => { // markdown of a long answer is dear: not for every token
        due = 0;
        if (running === mine && current === own) follow?.(progress);
      }, 40);
    });
    window.clearTimeout(due);
    running = null;
    follow = null;
    own.messages.push(message);
    own.changed = Date.now();
    saveConversations(all);
    redraw?.();
  };

  const ask = async (text: string): Promise<void> => {
    const own = current!;
    if (running || !text.trim()) return;
    if (!all.includes(own)) all.push(own);
    if (own.messages.length === 0) own.title = titleOf(text);
    own.messages.push({ role: "user", text });
    own.changed = Date.now();
    saveConversations(all);
    await answer(own, own.messages.length);
  };

  const submit = (): void => {
    if (running) return running.abort.abort();
    const text = box.value;
    if (!text.trim()) return;
    box.value = "";
    grow();
    void ask(text);
  };
  const grow = (): void => {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 220)}px`;
  };
  box.addEventListener("input", grow);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) submit();
  });
  const escape = (event: KeyboardEvent): void => {
    if (event.key !== "Escape") return;
    if (layout.classList.contains("show-list") || layout.classList.contains("show-panel")) {
      layout.classList.remove("show-list", "show-panel");
    } else {
      running?.abort.abort();
    }
  };
  document.addEventListener("keydown", escape);

  const togglePanel = (): void => { layout.classList.toggle("show-panel"); };
  layout.append(side,
    h("section", { class: "talk" }, scroller,
      h("form", { class: "ask", onsubmit: (event: Event) => {
        event.preventDefault();
        submit();
      } },
      h("div", { class: "ask-box" }, box,
        h("div", { class: "ask-row" },
          iconButton("list", "Conversations", () => layout.classList.toggle("show-list"), { class: "icon-button narrow-only" }),
          iconButton("sliders", "Sampling settings", togglePanel), note, send)))),
    panel);
  root.append(layout);
  const drawPanel = (): void => fill(panel, h("div", { class: "panel-head" }, h("h2", {}, "Sampling"),
    iconButton("close", "Close the settings", togglePanel)), settingsPanel(settings, chat));
  drawPanel();

  redraw = draw;
  draw();
  const unwatch = watchStatus(5000, (heard) => {
    if ("error" in heard) {
      note.textContent = heard.error.message;
      return;
    }
    note.textContent = heard.status.status === "ok" ? "" : `the server is ${heard.status.status}`;
    if (heard.status.status !== "loading") context = heard.status.memory.max_context || context;
    if (heard.status.status === "loading" || (known && chat === heard.status.chat)) return;
    known = true;
    if (chat === heard.status.chat) return;
    chat = heard.status.chat;
    box.placeholder = chat ? "Ask something" : "Once upon a time";
    drawPanel();
    draw();
  });
  if (window.matchMedia("(min-width: 800px)").matches) box.focus();
  return () => {
    unwatch();
    document.removeEventListener("keydown", escape);
    redraw = null;
    follow = null;
  };
}
