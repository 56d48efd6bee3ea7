// Flicker between the two images of a frame, and lay masks over them. Without this file the pages can still be read.
"use strict";

const PERIOD_MS = 550; // under one full cycle a second: far from what can harm
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const running = new Map();

function swap(frame, on) {
  frame.classList.toggle("swapped", on);
}

function start(frame) {
  if (running.has(frame) || calm.matches) return;
  swap(frame, true);
  running.set(frame, setInterval(() => swap(frame, !frame.classList.contains("swapped")), PERIOD_MS));
}

function stop(frame) {
  clearInterval(running.get(frame));
  running.delete(frame);
  swap(frame, false);
}

function press(frame) {
  const on = frame.getAttribute("aria-pressed") !== "true";
  frame.setAttribute("aria-pressed", String(on));
  if (calm.matches) swap(frame, on); // one change per press, nothing that moves by itself
  else if (on) start(frame);
  else stop(frame);
}

for (const frame of document.querySelectorAll(".frame")) {
  frame.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && start(frame));
  frame.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && frame.getAttribute("aria-pressed") !== "true") stop(frame);
  });
  frame.addEventListener("click", () => press(frame));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const frame of document.querySelectorAll(".frame[aria-pressed=true]")) press(frame);
});

function overlay(frame, src) {
  const found = [...frame.querySelectorAll(".mask")].find((mask) => mask.getAttribute("src") === src);
  if (found) return found;
  const mask = document.createElement("img");
  mask.className = "mask";
  mask.alt = "";
  mask.src = src;
  frame.append(mask);
  return mask;
}

function marks(button) {
  if (button.dataset.mask) return [[button.closest(".candidate").querySelector(".frame"), button.dataset.mask]];
  const frame = (side) => button.closest(".pair").querySelector(`.look .frame[data-side="${side}"]`);
  return button.dataset.changed.split("|").map((src, side) => [frame(side), src]);
}

for (const button of document.querySelectorAll(".toggle[data-mask], .toggle[data-changed]")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    for (const [frame, src] of marks(button)) if (src) overlay(frame, src).hidden = !on;
  });
}
