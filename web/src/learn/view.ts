// Three animations over real numbers of the engine and of the model that is loaded.
import { getJson } from "../api";
import { h } from "../dom";
import { attentionPanel, type AttentionTile } from "./attention";
import { busPanel } from "./bus";
import { weightsPanel, type WeightRow } from "./weights";

interface Panel { element: HTMLElement; leave: () => void }

function section(title: string, lead: string, docs: string): { element: HTMLElement; body: HTMLElement } {
  const body = h("div", {}, h("p", { class: "hint" }, "Reading…"));
  return { element: h("section", { class: "card learn", "aria-label": title }, h("h2", {}, title), h("p", { class: "lead" }, lead), body,
    h("p", { class: "hint docs" }, "Derived in ", h("code", {}, docs))), body };
}

export function learnView(root: HTMLElement): () => void {
  const abort = new AbortController();
  const leaves: (() => void)[] = [];
  const put = (body: HTMLElement, panel: Panel): void => {
    leaves.push(panel.leave);
    body.replaceChildren(panel.element);
  };
  const load = async <T>(path: string, body: HTMLElement, make: (data: T) => Panel): Promise<void> => {
    try {
      put(body, make(await getJson<T>(path, abort.signal)));
    } catch (error) {
      if ((error as Error).name !== "AbortError") body.replaceChildren(h("p", { class: "error", role: "alert" }, (error as Error).message));
    }
  };
  const bus = section("A bus filling with requests", "Continuous batching: every step leaves with whoever is there. " +
    "These are the engine's last steps.", "docs/engine.md");
  const weights = section("Weights snapping to levels", "Symmetric quantisation of a real row of the loaded model. " +
    "One large weight stretches the scale for all that share it.", "docs/experiments.md");
  const attention = section("Attention, a tile at a time", "One query of the first layer of the loaded model, against a short " +
    "text. Scores are never stored all at once.", "docs/architecture.md");
  root.append(h("div", { class: "page narrow" }, h("header", { class: "page-head" }, h("h1", {}, "Learn"),
    h("p", {}, "Watch it happen: three ideas, with the engine's own numbers.")), bus.element, weights.element, attention.element));
  put(bus.body, busPanel());
  void load<WeightRow>("/learn/weights", weights.body, weightsPanel);
  void load<AttentionTile>("/learn/attention", attention.body, attentionPanel);
  return () => {
    abort.abort();
    for (const leave of leaves) leave();
  };
}
