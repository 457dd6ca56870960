// Small charts in SVG: curves over epochs, spectra, stems, bars. Colours come from the style sheet, so that they follow
// light, dark and print.
"use strict";

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "14 4", "4 2", "1 3", "10 3 2 3 2 3"];
const STYLES = DASHES.length;

function svg(name, attributes = {}, parent = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function html(name, properties = {}, parent = null) {
  const node = Object.assign(document.createElement(name), properties);
  if (parent) parent.append(node);
  return node;
}

// text with the indices of R_c, R^v and R^v_c typeset; never parsed as HTML
function rich(node, text) {
  for (const part of text.split(/(R\^v_c|R\^v|R_c)/)) {
    const indices = /^R(\^v)?(_c)?$/.exec(part);
    if (!indices || (!indices[1] && !indices[2])) { node.append(part); continue; }
    node.append("R");
    if (indices[1]) html("sup", { textContent: "v" }, node);
    if (indices[2]) html("sub", { textContent: "c" }, node);
  }
  return node;
}

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) {
    const fine = [];
    for (let e = first - 1; e <= last + 1; e++) for (const n of [1, 2, 5]) fine.push(n * 10 ** e);
    const inside = fine.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    return inside.length > 1 ? inside : ticks(low, high, 3).filter((v) => v > 0);
  }
  const every = Math.max(1, Math.ceil((last - first + 1) / count));
  const found = [];
  for (let e = first; e <= last; e += every) found.push(10 ** e);
  return found;
}

function makeScale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low), b = f(high);
  return (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
}

// a frame with axes: returns the svg, both scales and the plot's edges
function frame(box, { x, y, xLog = false, yLog = false, xLabel, height, xTicks = null }) {
  const width = Math.max(box.clientWidth, 240);
  const yMarks = yLog ? logTicks(y[0], y[1], 6) : ticks(y[0], y[1], height > 200 ? 5 : 4);
  const left = 10 + 6.8 * Math.max(...yMarks.map((v) => plain(v).length), 2);
  const edge = { left, right: width - 12, top: 12, bottom: height - 36 };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const sx = makeScale(x[0], x[1], edge.left, edge.right, xLog);
  const sy = makeScale(y[0], y[1], edge.bottom, edge.top, yLog);
  for (const v of yMarks) {
    svg("line", { class: "axis", x1: edge.left, x2: edge.right, y1: sy(v), y2: sy(v) }, root);
    svg("text", { x: edge.left - 7, y: sy(v) + 4, "text-anchor": "end" }, root).textContent = plain(v);
  }
  let free = -Infinity;
  for (const v of xTicks || (xLog ? logTicks(x[0], x[1], 6) : ticks(x[0], x[1], Math.min(8, width / 90)))) {
    const text = plain(v), half = 3.5 * text.length;
    if (sx(v) - half < free) continue;
    free = sx(v) + half + 6;
    svg("text", { x: sx(v), y: edge.bottom + 17, "text-anchor": "middle" }, root).textContent = text;
  }
  svg("text", { x: edge.right, y: height - 3, "text-anchor": "end" }, root).textContent = xLabel;
  return { root, sx, sy, edge, width, height };
}

function mark(style, x, y, r, parent, shape = style) {
  const shapes = [
    `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    `M${x},${y - 1.3 * r}l${1.2 * r},${2.2 * r}h${-2.4 * r}Z`,
    `M${x},${y - 1.4 * r}l${1.4 * r},${1.4 * r}l${-1.4 * r},${1.4 * r}l${-1.4 * r},${-1.4 * r}Z`,
  ];
  svg("path", { d: shapes[shape % shapes.length], fill: `var(--s${style % STYLES})` }, parent);
}

function legend(box, entries) {
  if (entries.length < 2 && !entries.some((entry) => entry.points)) return;
  const list = html("ul", { className: "legend" }, box);
  for (const { label, style, points } of entries) {
    const item = html("li", {}, list);
    const sample = svg("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, item);
    stroke(svg("path", { d: "M1,6H29" }, sample), style, points ? 1 : 2);
    if (points) mark(style, 15, 6, 3.4, sample);
    rich(html("span", {}, item), label);
  }
}

function stroke(path, style, width = 1.8) {
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", `var(--s${style % STYLES})`);
  path.setAttribute("stroke-width", width);
  path.setAttribute("stroke-linejoin", "round");
  if (DASHES[style % STYLES]) path.setAttribute("stroke-dasharray", DASHES[style % STYLES]);
}

// labels of levels: above or below their lines, where the fewest curves are, and never over each other
function levels(plot, lines, drawn) {
  const { root, sy, edge } = plot;
  const placed = lines.map((line) => ({ ...line, at: sy(line.y) })).sort((a, b) => a.at - b.at);
  let free = edge.top + 2;
  for (const line of placed) {
    svg("line", { class: "level", x1: edge.left, x2: edge.right, y1: line.at, y2: line.at }, root);
    const text = line.label.replaceAll("R_c", "Rc");
    const width = 7 * text.length;
    const covered = (end, at) =>
      drawn.filter(([x, y]) => x > end - width - 4 && x < end + 6 && y > at - 13 && y < at + 4).length;
    let best = null;
    for (const shift of [-5, 13]) {
      const at = Math.max(line.at + shift, free);
      for (let end = edge.right - 2; end - width > edge.left || end > edge.right - 3; end -= 20) {
        const cost = covered(end, at);
        if (best === null || cost < best.cost) best = { cost, end, at };
      }
    }
    svg("text", { class: "level-label", x: best.end, y: best.at, "text-anchor": "end" }, root).textContent = text;
    free = best.at + 14;
  }
}

// points along a polyline, a few pixels apart
function along(points) {
  const found = [points[0]];
  for (let i = 1; i < points.length; i++) {
    const [ax, ay] = points[i - 1], [bx, by] = points[i];
    const parts = Math.max(1, Math.ceil(Math.hypot(bx - ax, by - ay) / 4));
    for (let n = 1; n <= parts; n++) found.push([ax + ((bx - ax) * n) / parts, ay + ((by - ay) * n) / parts]);
  }
  return found;
}

function tip(box, plot, find) {
  const cross = svg("line", { class: "cross", y1: plot.edge.top, y2: plot.edge.bottom, visibility: "hidden" }, plot.root);
  const note = html("div", { className: "tip", hidden: true }, box);
  const hide = () => { note.hidden = true; cross.setAttribute("visibility", "hidden"); };
  plot.root.addEventListener("pointerleave", hide);
  plot.root.addEventListener("pointermove", (event) => {
    const area = plot.root.getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * plot.width;
    const found = x < plot.edge.left - 8 || x > plot.edge.right + 8 ? null : find(x);
    if (!found) return hide();
    cross.setAttribute("x1", found.x);
    cross.setAttribute("x2", found.x);
    cross.setAttribute("visibility", "visible");
    note.replaceChildren(html("b", { textContent: found.title }));
    for (const line of found.lines) rich(html("div", {}, note), line);
    note.hidden = false;
    place(note, box, event);
  });
}

function place(note, box, event) {
  const area = box.getBoundingClientRect();
  const x = event.clientX - area.left, y = event.clientY - area.top;
  const beside = x + 14 + note.offsetWidth > area.width ? x - 14 - note.offsetWidth : x + 14;
  note.style.left = `${Math.max(0, Math.min(beside, area.width - note.offsetWidth))}px`;
  note.style.top = `${Math.max(0, y - note.offsetHeight - 8)}px`;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}

function drawLines(box, figure, view) {
  const key = view.axis, wide = box.clientWidth > 700;
  const curves = figure.curves
    .map((curve) => {
      const keep = curve.y.map((_, i) => i).filter((i) => (!figure.log || curve.y[i] > 0) && (!view.log || curve[key][i] > 0));
      return { ...curve, xs: keep.map((i) => curve[key][i]), ys: keep.map((i) => curve.y[i]), es: keep.map((i) => curve.e[i]) };
    })
    .filter((curve) => curve.xs.length);
  if (!curves.length) { html("p", { className: "how", textContent: "Nothing above 0 to draw." }, box); return; }
  let x = extent(curves.flatMap((c) => c.xs)), y = extent([...curves.flatMap((c) => c.ys), ...figure.lines.map((l) => l.y)]);
  if (view.log ? x[0] === x[1] : true) x = view.log ? [x[0] / 1.5, x[1] * 1.5] : [0, x[1] || 1];
  if (figure.log) y = y[0] === y[1] ? [y[0] / 2, y[1] * 2] : [y[0] / 1.15, y[1] * 1.15];
  else {
    if (y[0] > 0 && y[0] < 0.6 * y[1]) y[0] = 0;
    const room = (y[1] - y[0]) * 0.06 || Math.abs(y[1]) * 0.1 || 1;
    const above = figure.lines.some((l) => l.y > y[1] - room) ? 2 * room : room; // a level's label stands above it
    y = [y[0] === 0 ? 0 : y[0] - room, y[1] + above];
    if (figure.top) y[1] = Math.min(y[1], figure.top);
  }
  const seen = new Map(curves.map((c) => [`${c.label}|${c.style}|${c.points}`, c]));
  legend(box, [...seen.values()]);
  const plot = frame(box, {
    x, y, xLog: view.log, yLog: figure.log, height: wide ? 340 : 250,
    xLabel: key === "e" ? "epoch" : "seconds of training",
  });
  const drawn = [];
  for (const curve of curves) {
    const points = curve.xs.map((v, i) => [plot.sx(v), plot.sy(curve.ys[i])]);
    drawn.push(...along(points));
    const path = svg("path", { d: `M${points.map((p) => p.map((n) => n.toFixed(1)).join(",")).join("L")}` }, plot.root);
    stroke(path, curve.style, curve.points ? 1 : 1.8);
    const every = Math.ceil(points.length / 40);
    if (curve.points || points.length < 3)
      points.forEach((p, i) => { if (i % every === 0 || i === points.length - 1) mark(curve.style, p[0], p[1], 3.4, plot.root); });
    if (points.length === 1 && curves.length < 4)
      svg("text", { class: "level-label", x: points[0][0] - 9, y: points[0][1] + 4, "text-anchor": "end" }, plot.root).textContent = plain(curve.ys[0]);
  }
  levels(plot, figure.lines, drawn);
  box.append(plot.root);
  const all = curves.flatMap((c) => c.xs.map((v, i) => ({ x: v, e: c.es[i] })));
  tip(box, plot, (at) => {
    const near = all.reduce((best, p) => (Math.abs(plot.sx(p.x) - at) < Math.abs(plot.sx(best.x) - at) ? p : best));
    const told = curves.map((c) => {
      const i = c.xs.reduce((best, v, n) => (Math.abs(v - near.x) < Math.abs(c.xs[best] - near.x) ? n : best), 0);
      return c.points && c.es[i] !== near.e ? "" : `${c.label}: ${plain(c.ys[i])}`;
    }).filter(Boolean);
    const lines = told.slice(0, 12);
    if (told.length > 12) lines.push(`and ${told.length - 12} more`);
    return { x: plot.sx(near.x), title: key === "e" ? `epoch ${near.e}` : `${plain(near.x)} s`, lines };
  });
}

function chooser(box, names, chosen, listen) {
  const line = html("label", { className: "choice", textContent: "Class: " }, box);
  const select = html("select", {}, line);
  names.forEach((name, i) => html("option", { value: i, textContent: name, selected: i === chosen }, select));
  select.addEventListener("change", () => listen(Number(select.value)));
}

function drawSpectra(box, figure, view) {
  const top = Math.max(...figure.values.flat(), figure.ideal || 0);
  const floor = top * 1e-5;
  const least = Math.min(...figure.values.flat().filter((v) => v > floor), figure.ideal || top);
  chooser(box, figure.names, view.chosen || 0, (j) => view.choose(j));
  const count = figure.median.length;
  const plot = frame(box, { x: [1, Math.max(count, 2)], y: [least / 1.3, top * 1.3], yLog: true, xLabel: "eigenvalue number", height: 290, xTicks: [1, 5, 10, 15, 20, 25, 30].filter((i) => i <= Math.max(count, 2)) });
  const path = (row) => `M${row.map((v, i) => [v, i]).filter(([v]) => v > floor)
    .map(([v, i]) => `${plot.sx(i + 1).toFixed(1)},${plot.sy(v).toFixed(1)}`).join("L")}`;
  const thin = svg("g", { fill: "none", stroke: "var(--s6)", opacity: Math.max(0.12, Math.min(0.5, 6 / figure.values.length)) }, plot.root);
  for (const row of figure.values) if (row.some((v) => v > floor)) svg("path", { d: path(row) }, thin);
  if (figure.ideal) {
    const end = plot.sx(Math.min(figure.components, count));
    svg("path", { class: "level", d: `M${plot.edge.left},${plot.sy(figure.ideal)}H${end}V${plot.edge.bottom}` }, plot.root);
  }
  const own = figure.values[view.chosen || 0];
  stroke(svg("path", { d: path(figure.median) }, plot.root), 0, 2.6);
  if (own.some((v) => v > floor)) stroke(svg("path", { d: path(own) }, plot.root), 1, 2.2);
  legend(box, [{ label: "median class", style: 0 }, { label: figure.names[view.chosen || 0], style: 1 }]);
  box.append(plot.root);
  tip(box, plot, (at) => {
    let i = 0;
    while (i + 1 < count && Math.abs(plot.sx(i + 2) - at) < Math.abs(plot.sx(i + 1) - at)) i++;
    return { x: plot.sx(i + 1), title: `eigenvalue ${i + 1}`, lines: [`median: ${plain(figure.median[i])}`, `${figure.names[view.chosen || 0]}: ${plain(own[i])}`] };
  });
}

function drawAtoms(box, figure, view) {
  const j = view.chosen || 0;
  chooser(box, figure.names, j, (chosen) => view.choose(chosen));
  const index = figure.index[j], share = figure.share[j];
  const high = Math.max(...share, 1e-6) * 1.1;
  const plot = frame(box, { x: [0, figure.atoms], y: [0, high], xLabel: "atom of the dictionary", height: 290 });
  svg("rect", {
    class: "band", x: plot.sx(j * figure.block), y: plot.edge.top,
    width: Math.max(2, plot.sx((j + 1) * figure.block) - plot.sx(j * figure.block)), height: plot.edge.bottom - plot.edge.top,
  }, plot.root);
  index.forEach((atom, i) => {
    if (!(share[i] > 0)) return;
    const at = plot.sx(atom + 0.5), own = Math.floor(atom / figure.block) === j;
    svg("line", { x1: at, x2: at, y1: plot.edge.bottom, y2: plot.sy(share[i]), stroke: `var(--s${own ? 0 : 1})`, "stroke-width": 1.4 }, plot.root);
    mark(own ? 0 : 1, at, plot.sy(share[i]), 2.6, plot.root);
  });
  legend(box, [{ label: "own atoms", style: 0, points: true }, { label: "atoms of others", style: 1, points: true }]);
  box.append(plot.root);
  tip(box, plot, (at) => {
    const near = index.map((_, i) => i).reduce((a, b) => (Math.abs(plot.sx(index[b] + 0.5) - at) < Math.abs(plot.sx(index[a] + 0.5) - at) ? b : a));
    const owner = figure.names[Math.floor(index[near] / figure.block)];
    return { x: plot.sx(index[near] + 0.5), title: `atom ${index[near]}, latched for ${owner}`, lines: [`${(100 * share[near]).toPrecision(3)} % of the codes`] };
  });
}

function drawBars(box, figure) {
  const high = Math.max(...figure.counts, 1) * 1.08, end = figure.counts.length * figure.width;
  const plot = frame(box, { x: [0, end], y: [0, high], xLabel: "smallest principal angle in degrees", height: 290, xTicks: [0, 15, 30, 45, 60, 75, 90] });
  figure.counts.forEach((count, i) => {
    if (!count) return;
    const at = plot.sx(i * figure.width), to = plot.sx((i + 1) * figure.width);
    svg("rect", { x: at + 0.5, y: plot.sy(count), width: Math.max(1, to - at - 1), height: plot.edge.bottom - plot.sy(count), fill: "var(--s0)" }, plot.root);
  });
  box.append(plot.root);
  tip(box, plot, (at) => {
    const share = (at - plot.edge.left) / (plot.edge.right - plot.edge.left);
    const i = Math.max(0, Math.min(figure.counts.length - 1, Math.floor(share * figure.counts.length)));
    return { x: plot.sx((i + 0.5) * figure.width), title: `${plain(i * figure.width)}° to ${plain((i + 1) * figure.width)}°`, lines: [`${figure.counts[i]} pairs of classes`] };
  });
}
