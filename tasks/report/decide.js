// Go from pair to pair by keys, and accept, reject or edit what is shown. Without this file the pages can still be read.
// Decisions stay in the browser until they are downloaded; a page that is served sends each at once, and keeps it here
// only as long as the server has not stored it.
"use strict";

const home = document.body.dataset;
const store = `pairwright decisions ${home.dataset} ${home.version}`;
const noun = home.noun ?? "pair";
const WORDS = { accept: "accepted", reject: "rejected", edit: "edited", none: "taken back" };
const AT_ONCE = 500; // decisions in one request
const cards = [...document.querySelectorAll(".pair[data-key]")];
const by = (id) => document.getElementById(id);
let kept = {}; // what this browser keeps, by key, the latest decision of each, the oldest first
let current = null;
const done = []; // decisions of this visit, each with what it replaced

// --- what is kept

const isDecision = (one) => one && typeof one === "object" && typeof one.key === "string" && one.verdict in WORDS;

function load() {
  kept = {};
  try {
    const found = Object.values(JSON.parse(localStorage.getItem(store)) ?? {});
    kept = Object.fromEntries(found.filter(isDecision).map((one) => [one.key, one]));
  } catch {
    // Nothing is kept by this browser, or what is kept is damaged: nothing of it can be told.
  }
}

// What the dataset has been told, or something later, need not be kept.
function drop() {
  const told = cards.filter((card) => card.dataset.at && Date.parse(kept[card.dataset.key]?.at) <= Date.parse(card.dataset.at));
  for (const card of told) delete kept[card.dataset.key];
  if (told.length) keep();
}

function keep() {
  try {
    localStorage.setItem(store, JSON.stringify(kept));
  } catch {
    trouble("This browser keeps nothing for pages opened from disk: download the decisions before you close the page.");
  }
}

function trouble(text) {
  by("trouble").textContent = text;
}

// --- a card and its decision

// What the dataset itself knew when the page was written, or has been told since.
function known(card) {
  const { verdict, chosen = "", rejected = "", note = "" } = card.dataset;
  return verdict ? { key: card.dataset.key, verdict, chosen, rejected, note } : null;
}

function decisionOf(card) {
  const one = kept[card.dataset.key] ?? known(card);
  return one && one.verdict !== "none" ? one : null;
}

const nameOf = (card) => card.querySelector("h2").textContent.trim();
const textOf = (card, kind) => card.querySelector(`.words > .text.${kind} > p`);

function showText(card, kind, text) {
  const shown = textOf(card, kind);
  if (!shown) return;
  card.querySelector(`.edited-text.${kind}`)?.remove();
  shown.hidden = Boolean(text);
  if (!text) return;
  const edited = shown.cloneNode();
  edited.hidden = false;
  edited.classList.add("edited-text", kind);
  edited.textContent = text;
  shown.after(edited);
}

function show(card) {
  const one = decisionOf(card);
  const chip = card.querySelector(".verdict");
  chip.hidden = !one;
  chip.textContent = one ? WORDS[one.verdict] : "";
  chip.title = one?.note ?? "";
  if (one) card.dataset.decided = one.verdict;
  else delete card.dataset.decided;
  for (const button of card.querySelectorAll("[data-do]")) {
    button.setAttribute("aria-pressed", String(button.dataset.do === one?.verdict));
    if (button.dataset.do === "none") button.hidden = !one;
  }
  for (const kind of ["chosen", "rejected"]) showText(card, kind, one?.verdict === "edit" ? one[kind] : "");
}

const many = (number, thing = "decision") => `${number} ${thing}${number === 1 ? "" : "s"}`;

function showTally() {
  const all = Object.values(kept);
  const back = all.filter((one) => one.verdict === "none").length;
  if (home.decide) {
    const stored = cards.filter((card) => known(card)).length;
    by("tally").textContent = all.length ? `${all.length} not stored yet` : stored ? `${stored} of ${cards.length} here decided` : "No decisions here yet";
    by("again").hidden = !all.length;
    return;
  }
  by("tally").textContent = all.length ? many(all.length - back) + (back ? `, ${back} taken back` : "") : "No decisions yet";
  by("download").hidden = !all.length;
  document.querySelector(".bar .then").hidden = !all.length;
}

function showAll() {
  cards.forEach(show);
  showTally();
}

// --- deciding

const stamp = (one) => ({ key: one.key, verdict: one.verdict, chosen: one.chosen ?? "", rejected: one.rejected ?? "", note: one.note ?? "", at: new Date().toISOString() });

function put(card, one) {
  delete kept[one.key]; // the latest is the last
  kept[one.key] = stamp(one);
  keep();
  show(card);
  showTally();
  by("said").textContent = `${nameOf(card)} ${WORDS[one.verdict]}.`;
  if (home.decide) send();
}

function decide(card, verdict, given = {}) {
  const before = decisionOf(card);
  if (before?.verdict === verdict && !given.key && verdict !== "edit") return;
  done.push({ card, before });
  put(card, { key: card.dataset.key, verdict, ...given });
}

// Who has accepted or rejected a card goes on to the next one; the last of a page stays, so that it can be undone.
function decideAndGo(card, verdict) {
  decide(card, verdict);
  const next = cards[cards.indexOf(card) + 1];
  if (next && verdict !== "none") choose(next);
}

function undo() {
  const last = done.pop();
  if (last) {
    choose(last.card);
    put(last.card, last.before ?? { key: last.card.dataset.key, verdict: "none" });
  } else if (current && decisionOf(current)) decide(current, "none");
}

// --- a server that stores decisions

let sending = false;

async function send() {
  if (sending) return;
  sending = true;
  try {
    const next = () => Object.values(kept).slice(0, AT_ONCE);
    for (let list = next(); list.length; list = next()) {
      await post(list);
      for (const one of list) settle(one);
      keep();
    }
    trouble("");
  } catch (error) {
    trouble(`Not stored: ${error instanceof TypeError ? "the server does not answer. Does pairwright view still run?" : error.message}`);
  }
  sending = false;
  showAll();
}

async function post(list) {
  const body = JSON.stringify(list);
  const answer = await fetch(home.decide, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Pairwright-Token": home.token },
    body,
    keepalive: body.length < 60_000, // a page that is left meanwhile sends it still; browsers allow 64 kB
  });
  if (answer.ok) return;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error ?? `the server answered ${answer.status}`);
}

// A stored decision is what the dataset knows from now on; one that was made meanwhile waits.
function settle(one) {
  if (kept[one.key]?.at === one.at) delete kept[one.key];
  for (const card of cards.filter((card) => card.dataset.key === one.key)) {
    for (const name of ["verdict", "chosen", "rejected", "note", "at"]) card.dataset[name] = one[name];
    if (one.verdict === "none") delete card.dataset.verdict;
  }
}

// --- editing

function edit(card) {
  if (card.querySelector(".editor")) return card.querySelector(".editor textarea").focus();
  if (!card.querySelector("[data-do=edit]")) return;
  const editor = by("editor").content.firstElementChild.cloneNode(true);
  const one = decisionOf(card);
  for (const kind of ["chosen", "rejected"]) {
    const given = textOf(card, kind)?.textContent.trim();
    if (given === undefined) editor.querySelector(`[data-of=${kind}]`).remove();
    else editor.querySelector(`[name=${kind}]`).value = (one?.verdict === "edit" && one[kind]) || given;
  }
  editor.querySelector("[name=note]").value = one?.note ?? "";
  editor.querySelector("[data-edit=keep]").addEventListener("click", () => keepEdit(card, editor));
  editor.querySelector("[data-edit=leave]").addEventListener("click", () => leave(card, editor));
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave(card, editor);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) keepEdit(card, editor);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  card.classList.add("editing");
  card.querySelector(".decide").before(editor);
  editor.querySelector("textarea").focus();
}

function leave(card, editor) {
  editor.remove();
  card.classList.remove("editing");
  choose(card);
}

// Without controls but tab and line feed, which no text holds.
const plain = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "").trim();

function keepEdit(card, editor) {
  const texts = [];
  const given = { note: plain(editor.querySelector("[name=note]").value) };
  for (const area of editor.querySelectorAll("textarea")) {
    const text = plain(area.value);
    if (!text || texts.includes(text)) {
      trouble(text ? "Both texts are the same." : `The ${area.name} text is empty: reject the ${noun} instead.`);
      return area.focus();
    }
    texts.push(text);
    given[area.name] = text === textOf(card, area.name).textContent.trim() ? "" : text;
  }
  trouble("");
  leave(card, editor);
  const before = decisionOf(card);
  if (given.chosen || given.rejected) decide(card, "edit", given);
  else if (before && before.note !== given.note) decide(card, before.verdict, { ...before, note: given.note });
  else by("said").textContent = `${nameOf(card)}: no text was changed.`;
}

// --- judging how alike two images are, on served pages

const JUDGED = ["unjudged", "near-identical", "fits", "unrelated"];

function showJudged(card) {
  for (const button of card.querySelectorAll("[data-judge]")) {
    button.setAttribute("aria-pressed", String(button.dataset.judge === card.dataset.judged));
  }
}

async function judge(card, verdict) {
  if (card?.dataset.pair === undefined) return;
  try {
    await post([stamp({ key: card.dataset.pair, verdict })]);
  } catch (error) {
    return trouble(`Not stored: ${error.message}`);
  }
  trouble("");
  card.dataset.judged = verdict === "unjudged" ? "" : verdict;
  showJudged(card);
  by("said").textContent = `${nameOf(card)}: ${verdict}.`;
}

function judgeByKey(number) {
  judge(subject(), JUDGED[number]);
  if (number && current?.dataset.pair) move(1);
}

// --- going from card to card

function choose(card, { focus = true } = {}) {
  if (!card) return;
  current?.classList.remove("current");
  current = card;
  current.classList.add("current");
  by("place").textContent = nameOf(card);
  if (!focus) return;
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "start" });
}

const isSeen = (card) => {
  const { top, bottom } = card.getBoundingClientRect();
  return bottom > 120 && top < innerHeight - 120;
};

// What a key is about: the current card while it is seen, else the first that is.
const atHand = () => (current && isSeen(current) ? current : (cards.find(isSeen) ?? cards[0]));

function subject() {
  if (atHand() !== current) choose(atHand(), { focus: false });
  return current;
}

function move(step) {
  const place = current && isSeen(current) ? cards.indexOf(current) + step : cards.findIndex(isSeen);
  if (place >= 0 && place < cards.length) return choose(cards[place]);
  const page = document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]");
  if (page) location.href = page.href.split("#")[0] + (step > 0 ? "#first" : "#last");
  else by("said").textContent = step > 0 ? `This is the last ${noun}.` : `This is the first ${noun}.`;
}

const view = (name) => subject()?.querySelector(`[data-view=${name}]`)?.click();

const KEYS = {
  j: () => move(1),
  ArrowRight: () => move(1),
  k: () => move(-1),
  ArrowLeft: () => move(-1),
  f: () => view("flicker"),
  h: () => view("heat"),
  c: () => view("changed"),
  b: () => view("boxes"),
  a: () => decideAndGo(subject(), "accept"),
  r: () => decideAndGo(subject(), "reject"),
  e: () => edit(subject()),
  u: undo,
  0: () => judgeByKey(0),
  1: () => judgeByKey(1),
  2: () => judgeByKey(2),
  3: () => judgeByKey(3),
  "?": () => by("keys").showModal(),
};

// Who speaks to the browser, or touches keys by chance, can turn single keys off.
const SILENT = "pairwright keys off";
const remember = (off) => (off ? localStorage.setItem(SILENT, "1") : localStorage.removeItem(SILENT));

function recall() {
  try {
    by("use-keys").checked = !localStorage.getItem(SILENT);
  } catch {
    // This browser keeps nothing for pages opened from disk: keys work until they are turned off.
  }
}

by("use-keys").addEventListener("change", () => {
  try {
    remember(!by("use-keys").checked);
  } catch {
    // The choice holds for this page alone.
  }
});

document.addEventListener("keydown", (event) => {
  if (!by("use-keys").checked) return;
  const busy = event.target.closest("input, textarea, select, dialog, [contenteditable]");
  const scrolls = event.key.startsWith("Arrow") && event.target.closest(".scroll");
  if (event.ctrlKey || event.metaKey || event.altKey || busy || scrolls || !(event.key in KEYS) || !cards.length) return;
  event.preventDefault();
  KEYS[event.key]();
});

for (const card of cards) {
  card.addEventListener("click", (event) => {
    choose(card, { focus: false });
    const judged = event.target.closest("[data-judge]");
    if (judged) judge(card, judged.getAttribute("aria-pressed") === "true" ? "unjudged" : judged.dataset.judge);
    const verdict = event.target.closest("[data-do]")?.dataset.do;
    if (verdict === "edit") edit(card);
    else if (verdict) decideAndGo(card, verdict);
  });
  card.addEventListener("focusin", () => choose(card, { focus: false }));
}

for (const button of document.querySelectorAll("[data-go]")) button.addEventListener("click", () => move(Number(button.dataset.go)));
by("show-keys").addEventListener("click", () => by("keys").showModal());
by("close-keys").addEventListener("click", () => by("keys").close());
by("again")?.addEventListener("click", send);

by("download")?.addEventListener("click", () => {
  const lines = Object.values(kept).map((one) => `${JSON.stringify(one)}\n`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = "decisions.jsonl";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});

// Another window decides about the same dataset.
addEventListener("storage", (event) => {
  if (event.key !== store && event.key !== null) return;
  load();
  showAll();
});

addEventListener("scroll", () => cards.length && (by("place").textContent = nameOf(atHand())), { passive: true });

cards.forEach(showJudged);
recall();
load();
drop();
showAll();
if (cards.length) by("place").textContent = nameOf(cards[0]);
if (home.decide && Object.keys(kept).length) send();
if (location.hash === "#first") choose(cards[0]);
else if (location.hash === "#last") choose(cards.at(-1));
else choose(cards.find((card) => `#${card.id}` === location.hash));
