// Draws every visible figure, and draws it again when its width, the axis, the class or the colour scheme changes.

const figures = JSON.parse(document.getElementById("payload").textContent);
const axis = { axis: "e", log: false };
const views = {};
const DRAW = { lines: drawLines, map: drawMap, spectra: drawSpectra, atoms: drawAtoms, bars: drawBars, points: drawPoints };

function draw(box) {
  const key = box.dataset.figure, figure = figures[key];
  if (!figure || !box.clientWidth) return; // hidden: drawn once it is shown
  const view = (views[key] = views[key] || {});
  view.choose = (j) => { view.chosen = j; redraw(box); };
  view.show = (i) => { view.layer = i; redraw(box); };
  box.dataset.width = box.clientWidth;
  box.replaceChildren();
  DRAW[figure.type](box, figure, figure.type === "lines" ? axis : view);
}

// the list in which a person just chose something keeps the keyboard focus
function redraw(box) {
  const active = document.activeElement, had = active && active.tagName === "SELECT" && box.contains(active);
  draw(box);
  if (had) box.querySelector("select").focus();
}

const boxes = [...document.querySelectorAll("[data-figure]")];
const redrawAll = (wanted = () => true) => boxes.filter((box) => wanted(figures[box.dataset.figure])).forEach(draw);
const isMap = (figure) => figure && figure.type === "map";

const form = document.querySelector("[data-axis]");
form.addEventListener("change", () => {
  axis.axis = form.elements.x.value;
  axis.log = form.elements.log.checked;
  redrawAll((figure) => figure && figure.type === "lines");
});
form.addEventListener("submit", (event) => event.preventDefault());

const choice = document.querySelector("[data-run-choice]");
function showRun() {
  for (const part of document.querySelectorAll("[data-run]")) part.hidden = part.dataset.run !== choice.value;
  boxes.filter((box) => box.closest("[data-run]")).forEach(draw);
}
if (choice) { choice.addEventListener("change", showRun); showRun(); }

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    getSelection().selectAllChildren(code); // a browser that forbids the clipboard leaves it selected
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; } catch { button.textContent = "Selected: copy it"; }
  });
}

// tables of classes: the first rows until a person asks for all; a click on a head sorts, a second one the other way
for (const table of document.querySelectorAll("table.classes")) {
  const body = table.tBodies[0], button = table.closest(".scroll").nextElementSibling?.querySelector("[data-all-rows]");
  let all = false;
  const fold = () => [...body.rows].forEach((row, i) => { row.hidden = !all && i >= Number(table.dataset.rows); });
  const compare = (one, other) => {
    const [a, b] = [one, other].map((cell) => cell.dataset.value);
    if (a === undefined) return one.textContent.localeCompare(other.textContent, undefined, { numeric: true });
    return (a === "" ? Infinity : Number(a)) - (b === "" ? Infinity : Number(b)) || 0;
  };
  table.querySelectorAll("th[data-sort]").forEach((head, column) => {
    const sort = html("button", { type: "button", textContent: head.textContent });
    head.replaceChildren(sort);
    sort.addEventListener("click", () => {
      const down = head.ariaSort === "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = down ? "descending" : "ascending";
      const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
      body.append(...(down ? rows.reverse() : rows));
      fold();
    });
  });
  button?.addEventListener("click", () => { all = true; button.parentElement.hidden = true; fold(); });
  fold();
}

// shades are painted, not styled: a change of the colour scheme paints them again
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll(isMap));
function printing(now) {
  document.documentElement.classList.toggle("printing", now);
  redrawAll();
}
addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));

redrawAll();
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.clientWidth && Math.abs(target.clientWidth - (target.dataset.width || 0)) > 1) draw(target);
});
boxes.forEach((box) => watch.observe(box));
document.documentElement.dataset.ready = "yes";
