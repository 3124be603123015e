// Buttons and a slider that go through the steps of an animation.
import { fill, h, icon, iconButton } from "../dom";

export interface Stepper {
  element: HTMLElement;
  set(count: number, at?: number): void;
  stop(): void;
}

// A drawing on a phone has half the units, so that its text stays legible.
export const narrow = (): boolean => window.innerWidth < 800;

export function makeStepper(name: string, show: (step: number) => void, interval_ms = 1100): Stepper {
  let count = 1;
  let at = 0;
  let timer = 0;
  const range = h("input", { type: "range", min: 0, max: 0, step: 1, value: "0", "aria-label": `Step of ${name}` });
  const label = h("span", { class: "step-label" });
  const go = (step: number): void => {
    at = Math.min(count - 1, Math.max(0, step));
    range.value = String(at);
    label.textContent = `${at + 1} / ${count}`;
    show(at);
  };
  const stop = (): void => {
    window.clearInterval(timer);
    timer = 0;
    fill(play, icon("play"));
    play.setAttribute("aria-label", `Play ${name}`);
    play.title = "Play";
  };
  const play = iconButton("play", `Play ${name}`, () => {
    if (timer) return stop();
    if (at === count - 1) go(0);
    fill(play, icon("pause"));
    play.setAttribute("aria-label", `Pause ${name}`);
    play.title = "Pause";
    timer = window.setInterval(() => {
      if (at >= count - 1) return stop();
      go(at + 1);
    }, interval_ms);
  });
  range.addEventListener("input", () => {
    stop();
    go(Number(range.value));
  });
  const move = (by: number) => (): void => {
    stop();
    go(at + by);
  };
  return {
    element: h("div", { class: "stepper" }, iconButton("back", `Step back in ${name}`, move(-1)), play,
      iconButton("next", `Step on in ${name}`, move(1)), range, label),
    set: (newCount, start) => {
      count = Math.max(1, newCount);
      range.max = String(count - 1);
      go(start ?? Math.min(at, count - 1));
    },
    stop,
  };
}
