// Flicker between the two images of a frame, and lay masks, boxes and a map of differences over them. Without this file the pages can still be read.
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

function set(frame, on) {
  frame.setAttribute("aria-pressed", String(on));
  if (calm.matches) swap(frame, on); // one change per press, nothing that moves by itself
  else if (on) start(frame);
  else stop(frame);
  const button = frame.closest(".look")?.querySelector("[data-view=flicker]");
  if (button) button.setAttribute("aria-pressed", String(looks(button).every((one) => one.getAttribute("aria-pressed") === "true")));
}

const press = (frame) => set(frame, frame.getAttribute("aria-pressed") !== "true");

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

// --- what is laid over a frame

function lay(frame, name, src) {
  const found = [...frame.querySelectorAll(`.${name}`)].find((mask) => mask.getAttribute("src") === src);
  if (found) return found;
  const mask = document.createElement("img");
  mask.className = `${name} laid`;
  mask.alt = "";
  mask.src = src;
  frame.append(mask);
  return mask;
}

// The boxes and masks of an image stand further down, beside their names; here they are laid over it.
function layFound(frame, button) {
  const laid = frame.querySelector(".boxes");
  if (laid) return laid;
  const seen = button.closest(".pair").querySelector(`.seen[data-side="${frame.dataset.side}"]`);
  const boxes = document.createElement("span");
  boxes.className = "boxes laid";
  boxes.setAttribute("aria-hidden", "true");
  boxes.append(...[...(seen?.querySelectorAll(".mask, svg") ?? [])].map((one) => one.cloneNode(true)));
  for (const one of boxes.querySelectorAll("img")) one.loading = "eager";
  frame.append(boxes);
  return boxes;
}

// The two frames that are looked at; a page of one image has none.
const looks = (button) => [...button.closest(".pair").querySelectorAll(".look .frame")];

const views = {
  flicker: (button, on) => looks(button).forEach((frame) => set(frame, on)),
  heat(button, on) {
    for (const frame of looks(button)) lay(frame, "heat", button.dataset.heat).hidden = !on;
    button.closest(".look").querySelector(".heat-words").hidden = !on;
  },
  changed(button, on) {
    const masks = button.dataset.changed.split("|");
    looks(button).forEach((frame, side) => masks[side] && (lay(frame, "mask", masks[side]).hidden = !on));
  },
  boxes: (button, on) => looks(button).forEach((frame) => (layFound(frame, button).hidden = !on)),
};

for (const button of document.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    views[button.dataset.view](button, on);
  });
}

for (const button of document.querySelectorAll(".toggle[data-mask]")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    lay(button.closest(".candidate").querySelector(".frame"), "mask", button.dataset.mask).hidden = !on;
  });
}

document.documentElement.classList.add("scripted");
