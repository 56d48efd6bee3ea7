// Show the image of the dot that is pointed at; keep a filter for all who open this dataset.
"use strict";

const peek = document.querySelector(".peek");
for (const kind of ["pointerover", "focusin"]) {
  document.querySelector(".map svg")?.addEventListener(kind, (event) => {
    const dot = event.target.closest("[data-thumb]");
    if (!dot) return;
    peek.hidden = false;
    peek.querySelector("img").src = dot.dataset.thumb;
    peek.querySelector("figcaption").textContent = dot.querySelector("title").textContent;
  });
}

for (const button of document.querySelectorAll("[data-keep]")) {
  const name = button.parentElement.querySelector("input");
  const trouble = button.parentElement.querySelector(".trouble");
  async function keepFilter() {
    name.hidden = false;
    if (!name.value.trim()) return name.focus();
    const headers = { "Content-Type": "application/json", "X-Pairwright-Token": document.body.dataset.token };
    const body = JSON.stringify({ name: name.value.trim(), page: button.dataset.keep, query: location.search.slice(1) });
    const answer = await fetch("/filters", { method: "POST", headers, body }).catch(() => null);
    if (answer?.ok) return location.reload();
    const why = answer ? (await answer.json()).error : "the server does not answer. Does pairwright view still run?";
    trouble.textContent = `Not kept: ${why}`;
  }
  button.addEventListener("click", keepFilter);
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // else the search is sent
    keepFilter();
  });
}
