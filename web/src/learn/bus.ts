// One step is a bus: it costs its weights once, however many ride.
import { emptyView, fill, h } from "../dom";
import { bytes, count, seconds } from "../format";
import type { Step } from "../status";
import { watchStatus } from "../status";
import { colourOf } from "../strip";
import { makeStepper } from "./stepper";

const leastSeats = 8;

export function busPanel(): { element: HTMLElement; leave: () => void } {
  let steps: Step[] = [];
  const bus = h("div", { class: "bus", role: "img" });
  const text = h("p", { class: "story" });
  const body = h("div", { class: "learn-body" });
  const show = (at: number): void => {
    const step = steps[at];
    if (!step) return;
    const seats = Math.max(leastSeats, ...steps.map((one) => one.spans.length));
    const before = new Set(steps[at - 1]?.spans.map((one) => `${one.request}.${one.choice}`) ?? []);
    const fresh = step.spans.filter((one) => !before.has(`${one.request}.${one.choice}`)).length;
    const left = [...before].filter((id) => !step.spans.some((one) => `${one.request}.${one.choice}` === id)).length;
    fill(bus, Array.from({ length: seats }, (_, i) => {
      const span = step.spans[i];
      return h("div", { class: `seat ${span ? `${colourOf(span)} ${span.answer ? "answer" : "prompt"} taken` : ""}` },
        span ? [h("b", {}, `#${span.request}`), h("span", {}, span.answer ? `token ${count(span.first)}` : `${count(span.rows)} prompt`)] : null);
    }));
    const riders = step.spans.length;
    bus.setAttribute("aria-label", `Step ${step.step}: ${riders} of ${seats} seats taken`);
    fill(text, `Step ${count(step.step)} took ${seconds(step.seconds)}. `,
      fresh > 0 && at > 0 ? `${fresh} got on. ` : "", left > 0 ? `${left} got off. ` : "",
      "The ride costs ", h("b", { class: "blue" }, bytes(step.weight_bytes)), ` of weights, `,
      riders > 1 ? h("span", {}, "shared by ", h("b", {}, riders), ": ", h("b", { class: "blue" }, bytes(step.weight_bytes / riders)), " each")
        : "for one rider", ", and each brings luggage: ", h("b", { class: "amber" }, bytes(step.kv_bytes)), " of cache in all.");
  };
  const stepper = makeStepper("the bus", show, 700);
  let live = true;
  const ask = "for i in 1 2 3 4; do curl -s " + location.origin + "/v1/completions -H 'Content-Type: application/json' " +
    "-d '{\"prompt\":\"Once upon a time\",\"max_tokens\":60}' >/dev/null & sleep 0.3; done; wait";
  const watch = watchStatus(1000, (heard) => {
    if ("error" in heard || !live) return;
    const fresh = heard.status.steps ?? [];
    if (fresh.length === 0) {
      fill(body, emptyView("Nobody has ridden yet", "Send a few requests, one shortly after the other, and watch them get on:", ask));
      return;
    }
    if (steps.length > 0 && fresh[fresh.length - 1]!.step === steps[steps.length - 1]!.step) return;
    if (steps.length > 0 && body.matches(":focus-within")) return; // somebody steps through them
    steps = fresh;
    if (!body.contains(bus)) fill(body, bus, stepper.element, text);
    // Where somebody gets on is where it becomes interesting.
    const first = steps.findIndex((one, i) => i > 0 && one.spans.length > steps[i - 1]!.spans.length);
    stepper.set(steps.length, Math.max(0, first));
  });
  return { element: body, leave: () => { live = false; watch(); stepper.stop(); } };
}
