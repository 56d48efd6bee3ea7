// Judge sampled pairs, show the shares of each bin, suggest thresholds from them. Judgements stay in this browser.
"use strict";

const Z = 1.6448536269514722; // of a two-sided interval of 90 %
const ENOUGH = 6; // judgements from which on a bin counts; fewer where it shows fewer pairs
const VERDICTS = ["near-identical", "fits", "unrelated"];
const home = document.querySelector("#judged");
const store = `pairwright-calibrate:${home.dataset.ident}`;
const cases = [...document.querySelectorAll(".case")];
const bins = [...document.querySelectorAll(".bin")];
const by = (id) => document.getElementById(id);
let judgements = {};
let current = null;

// --- what is kept

function load() {
  let text = "{}";
  try {
    text = localStorage.getItem(store) ?? text;
  } catch {
    by("unkept").hidden = false;
  }
  try {
    const kept = Object.entries(JSON.parse(text) ?? {});
    judgements = Object.fromEntries(kept.filter(([, verdict]) => VERDICTS.includes(verdict)));
  } catch {
    judgements = {}; // what is kept is damaged: nothing of it can be told
  }
}

function keep() {
  try {
    localStorage.setItem(store, JSON.stringify(judgements));
  } catch {
    by("unkept").hidden = false;
  }
}

// --- shares

function wilson(count, of) {
  const share = count / of;
  const scale = 1 + (Z * Z) / of;
  const centre = (share + (Z * Z) / (2 * of)) / scale;
  const half = (Z / scale) * Math.sqrt((share * (1 - share)) / of + (Z * Z) / (4 * of * of));
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

function tally(bin) {
  const shown = [...bin.querySelectorAll(".case")];
  const verdicts = shown.map((one) => judgements[one.dataset.pair]).filter(Boolean);
  const count = (verdict) => verdicts.filter((one) => one === verdict).length;
  return {
    shown: shown.length,
    judged: verdicts.length,
    "near-identical": count("near-identical"),
    fits: count("fits"),
    unrelated: count("unrelated"),
  };
}

const percent = (value) => Math.round(value * 100);

function words(count, of) {
  const [low, high] = wilson(count, of);
  return [`${percent(count / of)} %`, `${percent(low)} to ${percent(high)} %`];
}

function fill(element, ...parts) {
  element.replaceChildren(
    ...parts.map(([tag, text]) => {
      if (!tag) return text;
      const made = document.createElement(tag);
      made.textContent = text;
      return made;
    }),
  );
}

function showBin(bin) {
  const counts = tally(bin);
  const row = document.querySelector(`tr[data-of="${bin.id}"]`);
  const cell = (name) => row.querySelector(`[data-value="${name}"]`);
  cell("judged").textContent = `${counts.judged} / ${counts.shown}`;
  const parts = [];
  for (const verdict of ["near-identical", "unrelated"]) {
    if (!counts.judged) {
      cell(verdict).textContent = "–";
      continue;
    }
    const [share, interval] = words(counts[verdict], counts.judged);
    fill(cell(verdict), ["", share], ["small", interval]);
    parts.push(["b", share], ["", ` ${verdict} (${interval})${verdict === "unrelated" ? "" : " · "}`]);
  }
  fill(bin.querySelector(".shares"), ...parts);
}

// --- thresholds

// Bins of a sheet come by falling similarity. Going one way, the last judged bin before the first that is over the limit.
function reach(judged, verdict, limit) {
  const over = judged.findIndex(({ counts }) => counts[verdict] > limit * counts.judged + 1e-9);
  const within = over < 0 ? judged : judged.slice(0, over);
  return within.at(-1)?.bin;
}

function advise(sheet, limits) {
  const judged = [...sheet.querySelectorAll(".bin")]
    .map((bin) => ({ bin, counts: tally(bin) }))
    .filter(({ counts }) => counts.judged >= Math.min(ENOUGH, counts.shown));
  const low = reach(judged, "unrelated", limits.unrelated)?.dataset.low;
  const high = reach(judged.toReversed(), "near-identical", limits.near)?.dataset.high;
  return { judged: judged.length, low: low && Math.max(0, low), high: high && Math.min(1, high) };
}

function limitsNow() {
  const share = (id) => Math.min(100, Math.max(0, Number(by(id).value) || 0)) / 100;
  return { unrelated: share("limit-unrelated"), near: share("limit-near") };
}

const digits = (value) => (Math.abs(value * 100 - Math.round(value * 100)) < 1e-9 ? value.toFixed(2) : String(value));

function adviceWords({ judged, low, high }) {
  if (!judged) return "nothing judged yet";
  const parts = [
    low === undefined ? "even the most similar bin holds too many unrelated pairs" : `min ${digits(low)}`,
    high === undefined ? "even the least similar bin holds too many near-identical pairs" : `max ${digits(high)}`,
  ];
  return `${parts.join(", ")} (from ${judged} bin${judged === 1 ? "" : "s"})`;
}

// A pair must be in the band of every encoder, and there is one band: the strictest keeps every encoder within the limits.
function suggest() {
  const limits = limitsNow();
  const all = [...document.querySelectorAll(".sheet")].map((sheet) => {
    const advice = advise(sheet, limits);
    const name = sheet.dataset.encoder;
    [...document.querySelectorAll("[data-advice]")].find((one) => one.dataset.advice === name).querySelector("dd").textContent =
      adviceWords(advice);
    return { encoder: name, ...advice };
  });
  const judged = all.filter((one) => one.judged);
  const usable = judged.length && judged.every((one) => one.low !== undefined && one.high !== undefined);
  const low = Math.max(...judged.map((one) => one.low));
  const high = Math.min(...judged.map((one) => one.high));
  return { limits, encoders: all, judged: judged.length, thresholds: usable && low < high ? { low, high } : null, usable, low, high };
}

function showAdvice() {
  const found = suggest();
  const line = by("command").parentElement;
  line.hidden = !found.thresholds;
  if (found.thresholds) {
    by("command").textContent =
      `pairwright refilter ${home.dataset.dataset} --set mining.min_similarity=${digits(found.low)} --set mining.max_similarity=${digits(found.high)}`;
    const missing = found.encoders.filter((one) => !one.judged).map((one) => one.encoder);
    by("advice").textContent = missing.length
      ? `Nothing is judged of ${missing.join(", ")} yet: the band rests on the other encoders.`
      : found.encoders.length > 1
        ? "One band holds for all encoders: the highest minimum and the lowest maximum keep each within the limits."
        : "The lowest bin within the limit of unrelated pairs to the highest within that of near-identical ones.";
  } else if (!found.judged) {
    by("advice").textContent =
      "Judge pairs below, from the middle of the band outwards: thresholds are suggested as soon as a bin has six judgements.";
  } else {
    by("advice").textContent = found.usable
      ? `No band fits all: the highest minimum, ${digits(found.low)}, is not below the lowest maximum, ${digits(found.high)}. Allow larger shares, or judge more.`
      : "No band keeps to these limits in every encoder. Allow larger shares, or judge more bins.";
  }
}

// --- showing and judging

function showCase(one) {
  const verdict = judgements[one.dataset.pair];
  if (verdict) one.dataset.judged = verdict;
  else delete one.dataset.judged;
  for (const button of one.querySelectorAll("[data-verdict]")) {
    button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }
}

function showAll() {
  cases.forEach(showCase);
  bins.forEach(showBin);
  showProgress();
}

function showProgress() {
  const pairs = new Set(cases.map((one) => one.dataset.pair));
  by("done").textContent = [...pairs].filter((pair) => judgements[pair]).length;
  showAdvice();
}

function judge(pair, verdict) {
  if (verdict) judgements[pair] = verdict;
  else delete judgements[pair];
  keep();
  const same = cases.filter((one) => one.dataset.pair === pair);
  same.forEach(showCase);
  new Set(same.map((one) => one.closest(".bin"))).forEach(showBin);
  showProgress();
}

function choose(one, { focus = true } = {}) {
  if (!one) return;
  current?.classList.remove("current");
  current = one;
  current.classList.add("current");
  if (!focus) return;
  current.focus({ preventScroll: true });
  current.scrollIntoView({ block: "nearest" });
}

function inView() {
  return cases.find((one) => one.getBoundingClientRect().top > 100) ?? cases[0];
}

function move(step) {
  choose(current ? cases[Math.min(cases.length - 1, Math.max(0, cases.indexOf(current) + step))] : inView());
}

// The pair above or below: of the nearest row, the one whose place is nearest.
function moveRow(direction) {
  const own = current.getBoundingClientRect();
  const middle = (box) => box.left + box.width / 2;
  const place = cases.indexOf(current);
  const ahead = direction > 0 ? cases.slice(place + 1) : cases.slice(0, place).reverse();
  const boxes = ahead.map((one) => ({ one, box: one.getBoundingClientRect() }));
  const first = boxes.find(({ box }) => direction * (box.top - own.top) > 1);
  const row = boxes.filter(({ box }) => first && Math.abs(box.top - first.box.top) <= 1);
  row.sort((a, b) => Math.abs(middle(a.box) - middle(own)) - Math.abs(middle(b.box) - middle(own)));
  choose(row[0]?.one);
}

function nextOpen() {
  const start = current ? cases.indexOf(current) + 1 : 0;
  choose([...cases.slice(start), ...cases.slice(0, start)].find((one) => !judgements[one.dataset.pair]));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
  if (["1", "2", "3"].includes(event.key)) {
    if (!current) choose(inView());
    judge(current.dataset.pair, VERDICTS[Number(event.key) - 1]);
    move(1);
  } else if (event.key === "0" && current) judge(current.dataset.pair, null);
  else if (event.key === "ArrowRight") move(1);
  else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowDown" && current) moveRow(1);
  else if (event.key === "ArrowUp" && current) moveRow(-1);
  else return;
  event.preventDefault();
});

for (const one of cases) {
  one.addEventListener("click", (event) => {
    const button = event.target.closest("[data-verdict]");
    choose(one, { focus: false });
    if (button) judge(one.dataset.pair, button.getAttribute("aria-pressed") === "true" ? null : button.dataset.verdict);
  });
}

// --- results

function results() {
  const { limits, encoders, thresholds } = suggest();
  const seen = new Map(cases.map((one) => [one.dataset.pair, one]));
  return {
    dataset: home.dataset.name,
    version: home.dataset.version,
    limits: { unrelated: limits.unrelated, "near-identical": limits.near },
    suggested: thresholds && { min_similarity: thresholds.low, max_similarity: thresholds.high },
    encoders: encoders.map(({ encoder, low, high }) => ({ encoder, min: low ?? null, max: high ?? null })),
    bins: bins.map((bin) => ({
      encoder: bin.closest(".sheet").dataset.encoder,
      low: Number(bin.dataset.low),
      high: Number(bin.dataset.high),
      candidates: Number(bin.dataset.count),
      ...tally(bin),
    })),
    judgements: Object.entries(judgements).map(([pair, verdict]) => ({
      pair,
      verdict,
      images: [...(seen.get(pair)?.querySelectorAll("figcaption") ?? [])].map((name) => name.title),
      similarities: Object.fromEntries(
        [...(seen.get(pair)?.querySelectorAll(".likeness div") ?? [])]
          .filter((one) => one.querySelector("dd"))
          .map((one) => [one.querySelector("dt").textContent, one.querySelector("dd").textContent]),
      ),
    })),
  };
}

by("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(results(), null, 1)], { type: "application/json" }));
  link.download = `judgements-${home.dataset.name.replace(/[^\w.-]+/g, "_")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});

by("clear").addEventListener("click", () => {
  const count = Object.keys(judgements).length;
  if (!count || !confirm(`Forget ${count} judgement${count === 1 ? "" : "s"} of this dataset?`)) return;
  judgements = {};
  keep();
  showAll();
});

by("next").addEventListener("click", nextOpen);
for (const id of ["limit-unrelated", "limit-near"]) by(id).addEventListener("input", showAdvice);

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // a browser that lets no page write there: the reader copies
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// Another window judges the same dataset.
addEventListener("storage", (event) => {
  if (event.key !== store && event.key !== null) return;
  load();
  showAll();
});

load();
showAll();
