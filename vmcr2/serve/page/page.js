// Sends pictures or a row to /predict and shows the answers. Whatever comes from files or the server is set as text,
// never as HTML.
"use strict";

const RATES = [0.01, 0.05, 0.1, 0.2];
const NEIGHBORS = 5;
const by = (id) => document.getElementById(id);
let health = null;

function html(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

const percent = (share) => (share >= 0.9995 && share < 1 ? "99.9 %" : `${(100 * share).toFixed(1)} %`);
// 0.473, and 0.0000412 where 0.000 would say nothing
const short = (value) => (value < 0.1 ? String(Number(value.toPrecision(3))) : value.toFixed(3));
const many = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

function options() {
  const asked = new URLSearchParams();
  if (health.refusal) asked.set("refuse", by("rate").value);
  if (health.neighbors) asked.set("neighbors", NEIGHBORS);
  return asked.toString();
}

async function ask(body, headers = {}) {
  by("status").textContent = "Waiting for the answer …";
  try {
    const reply = await fetch(`predict?${options()}`, { method: "POST", body, headers });
    const told = await reply.json();
    by("status").textContent = "";
    return told.answers || [{ error: told.error }];
  } catch {
    by("status").textContent = "";
    return [{ error: "The server does not answer: is it still running?" }];
  }
}

// the sentence under the class
function verdict(answer) {
  const first = answer.likeliest, sure = answer.probability === null ? "" : ` with probability ${percent(answer.probability)}`;
  if (answer.refused) return `It looks foreign: novelty ${short(answer.novelty)} is above ${short(answer.threshold)}. If it is one of the known classes, it is ${first}${sure}.`;
  if (answer.probability === null) return "No probability, and nothing is refused: the run is not calibrated.";
  const known = answer.threshold === null ? "" : ` It does not look foreign: novelty ${short(answer.novelty)} is not above ${short(answer.threshold)}.`;
  return `Probability ${percent(answer.probability)}.${known}`;
}

function likely(answer) {
  if (answer.probability === null) return null;
  const box = html("div", { className: "likely" });
  for (const one of [{ class: answer.likeliest, probability: answer.probability }, answer.second]) {
    if (!one) continue;
    const meter = html("meter", { value: one.probability, ariaLabel: `probability of ${one.class}` });
    box.append(html("span", { textContent: one.class }), meter, html("span", { className: "number", textContent: percent(one.probability) }));
  }
  return box;
}

function neighbors(answer) {
  if (!answer.neighbors || !answer.neighbors.length) return null;
  const list = html("ul", { className: "near" });
  for (const one of answer.neighbors) {
    const picture = one.picture ? html("img", { src: one.picture, alt: `a training picture of ${one.class}` }) : null;
    list.append(html("li", {}, picture, one.class, html("br"), html("span", { className: "small", textContent: `cosine ${one.cosine.toFixed(3)}` })));
  }
  return html("div", {}, html("h3", { textContent: "The nearest training samples" }), list);
}

function shown(answer) {
  if (answer.error) return html("p", { className: "banner error", role: "alert", textContent: answer.error });
  const residual = `Residual ${short(answer.residual)}: the share of its feature outside the subspace of ${answer.likeliest}.`;
  return html("div", {},
    html("h2", { className: "class", textContent: answer.refused ? "Refused" : answer.class }),
    html("p", { className: "says", textContent: verdict(answer) }),
    likely(answer), neighbors(answer), html("p", { className: "small", textContent: residual }));
}

function article(answer, given) {
  return html("article", { className: `${given ? "" : "row"} ${answer.refused ? "refused" : ""}` }, given, shown(answer));
}

function figure(file) {
  const image = html("img", { src: URL.createObjectURL(file), alt: "" });
  image.addEventListener("error", () => image.remove());
  image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  return html("figure", { className: "given" }, image, html("figcaption", { textContent: file.name }));
}

async function predictFiles(list) {
  const files = [...list];
  if (!files.length || !health) return;
  const problem = tooMuch(files);
  if (problem) { by("answers").prepend(article({ error: problem }, null)); return; }
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  const answers = await ask(form);
  // one error for all of them, or one answer for each
  const told = answers.length === files.length ? answers.map((one, at) => article(one, figure(files[at]))) : [article(answers[0], null)];
  by("answers").prepend(...told);
}

// said here: a browser that is busy sending may not show what the server says
function tooMuch(files) {
  const limits = health.limits, bytes = files.reduce((sum, file) => sum + file.size, 0);
  if (files.length > limits.samples) return `A request may have ${many(limits.samples, "picture")}: choose fewer.`;
  if (bytes > limits.bytes) return `A request may have ${(limits.bytes / 2 ** 20).toPrecision(3)} MiB: choose fewer or smaller pictures.`;
  return "";
}

function takePictures() {
  const drop = by("drop"), input = by("files");
  by("pictures").hidden = false;
  input.addEventListener("change", async () => { await predictFiles(input.files); input.value = ""; });
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) addEventListener(kind, () => drop.classList.remove("over"));
  addEventListener("drop", (event) => { event.preventDefault(); predictFiles(event.dataTransfer.files); });
  addEventListener("paste", (event) => predictFiles(event.clipboardData.files));
}

function field(column) {
  const values = column.kind === "boolean" ? ["true", "false"] : column.values.filter((value) => value !== null);
  if (column.kind === "number") return html("input", { name: column.name, inputMode: "decimal", autocomplete: "off" });
  const select = html("select", { name: column.name }, html("option", { value: "", textContent: "(missing)" }));
  for (const value of values) select.append(html("option", { value, textContent: value }));
  return select;
}

function takeRows() {
  by("rows").hidden = false;
  for (const column of health.columns) by("fields").append(html("label", {}, column.name, field(column)));
  by("row").addEventListener("submit", async (event) => {
    event.preventDefault();
    const row = {};
    for (const own of by("row").querySelectorAll("[name]")) row[own.name] = own.value === "" ? null : own.value;
    const answers = await ask(JSON.stringify([row]), { "Content-Type": "application/json" });
    by("answers").prepend(...answers.map((one) => article(one, null)));
  });
}

function about() {
  const size = health.shape.slice(1).reverse().join("×");
  const what = health.takes === "pictures" ? `Pictures of any size; the network sees them at ${size}` : `Rows of a table with ${many(health.columns.length, "column")}`;
  return `${what}. ${health.num_classes} ${health.num_classes === 1 ? "class" : "classes"}.`;
}

async function start() {
  health = await (await fetch("health")).json();
  document.title = `${health.run} · vmcr2 serve`;
  by("run").textContent = health.run;
  by("about").textContent = about();
  for (const note of health.notes) by("notes").append(html("p", { className: "banner", textContent: note }));
  if (health.refusal) {
    const possible = RATES.filter((rate) => rate >= health.refusal.least);
    const rates = [...new Set([...possible, health.refusal.rate])].sort((a, b) => a - b);
    for (const rate of rates) by("rate").append(html("option", { value: rate, textContent: `${Number((100 * rate).toPrecision(4))} %`, selected: rate === health.refusal.rate }));
    by("rate").append(html("option", { value: 0, textContent: "refuse nothing" }));
    by("refusal").hidden = false;
  }
  (health.takes === "pictures" ? takePictures : takeRows)();
  document.documentElement.dataset.ready = "yes";
}

start().catch(() => { by("status").textContent = "The server does not answer: is it still running?"; });
