// Heat maps: a canvas for the cells, an SVG over it for names and borders, shades from the style sheet's ramp.

function ramp() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3, 4].map((i) => {
    const code = style.getPropertyValue(`--ramp${i}`).trim();
    return [1, 3, 5].map((at) => parseInt(code.slice(at, at + 2), 16));
  });
  return Array.from({ length: 256 }, (_, n) => {
    const at = (n / 255) * 4, i = Math.min(3, Math.floor(at));
    return stops[i].map((v, c) => Math.round(v + (stops[i + 1][c] - v) * (at - i)));
  });
}

function unpack(layer) {
  const text = atob(layer.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  if (layer.bits === 8) return bytes;
  const values = new Uint16Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) values[i] = bytes[2 * i] + 256 * bytes[2 * i + 1];
  return values;
}

// what a cell means, as a shade between 0 and 1 and as words
const KINDS = {
  inner: {
    ends: ["0", "1"],
    shade: (v) => v / 255,
    words: (v) => `|cosine| ${(v / 255).toFixed(2)}`,
    pair: (row, column) => (row === column ? `two samples of ${row}` : `samples of ${row} and ${column}`),
  },
  angle: {
    ends: ["90°, orthogonal", "0°"],
    shade: (v) => Math.sqrt(1 - v / 255),
    words: (v) => `about ${((v / 255) * 90).toFixed(0)}°`,
    pair: (row, column) => `${row} and ${column}`,
  },
  block: {
    ends: ["no codes", "all codes"],
    shade: (v) => v / 255,
    words: (v) => `${(100 * (v / 255) ** 2).toPrecision(2)} % of its codes`,
    pair: (row, column) => `${row} on atoms of ${column}`,
  },
  confusion: {
    ends: ["never", "always"],
    shade: (v, total) => Math.sqrt(v / Math.max(total, 1)),
    words: (v, total) => `${v} of ${total}`,
    pair: (row, column) => (row === column ? `${row}, right` : `${row} taken for ${column}`),
  },
};

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function drawMap(box, figure, view) {
  const kind = KINDS[figure.kind], n = figure.size;
  const layer = figure.layers[view.layer || 0];
  layer.values = layer.values || unpack(layer);
  const values = layer.values;
  const totals = figure.kind === "confusion" ? Array.from({ length: n }, (_, i) => values.subarray(i * n, i * n + n).reduce((a, b) => a + b, 0)) : [];
  if (figure.layers.length > 1) layerChoice(box, figure, view);
  const names = figure.names, sizes = figure.sizes || names.map(() => 1);
  const narrow = box.clientWidth < 420;
  const named = names.length <= 20, most = narrow ? 11 : 15;
  const longest = named ? Math.min(most, Math.max(...names.map((name) => name.length))) : 3;
  const turned = named && longest > 2;
  const left = 8 + 6.9 * Math.max(longest, 2), below = turned ? 10 + 6.9 * longest : 20;
  const width = Math.min(Math.max(box.clientWidth, 240), 560);
  const side = width - left - 2, height = side + below + 2;
  const holder = html("div", { className: "map" }, box);
  holder.style.maxWidth = `${width}px`;
  const canvas = html("canvas", { width: n, height: n }, holder);
  Object.assign(canvas.style, { left: `${(100 * left) / width}%`, top: `${100 / height}%`, width: `${(100 * side) / width}%`, height: `${(100 * side) / height}%` });
  paint(canvas, values, n, kind, totals);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, holder);
  svg("rect", { class: "axis", x: left, y: 1, width: side, height: side }, root);
  const unit = side / n;
  let start = 0;
  const step = named ? 1 : [10, 20, 25, 50, 100].find((s) => names.length / s <= 10) || 200;
  sizes.forEach((size, i) => {
    const middle = (start + size / 2) * unit;
    if (figure.sizes && i) {
      const at = start * unit;
      svg("path", { class: "border", d: `M${left + at},1v${side}M${left},${1 + at}h${side}` }, root);
    }
    if (i % step === 0) {
      const text = named ? clip(names[i], most) : String(i);
      svg("text", { x: left - 6, y: 1 + middle + 4, "text-anchor": "end" }, root).textContent = text;
      const across = turned
        ? { transform: `translate(${left + middle + 4},${side + 8}) rotate(-90)`, "text-anchor": "end" }
        : { x: left + middle, y: side + 16, "text-anchor": "middle" };
      svg("text", across, root).textContent = text;
    }
    start += size;
  });
  const shades = html("div", { className: "shades" }, box);
  html("span", { textContent: kind.ends[0] }, shades);
  html("i", {}, shades);
  html("span", { textContent: kind.ends[1] }, shades);
  const owner = sizes.flatMap((size, i) => Array(size).fill(i));
  const note = html("div", { className: "tip", hidden: true }, box);
  root.addEventListener("pointerleave", () => { note.hidden = true; });
  root.addEventListener("pointermove", (event) => {
    const area = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - area.left) / area.width) * n);
    const row = Math.floor(((event.clientY - area.top) / area.height) * n);
    note.hidden = row < 0 || column < 0 || row >= n || column >= n;
    if (note.hidden) return;
    note.replaceChildren(html("b", { textContent: kind.words(values[row * n + column], totals[row]) }));
    html("div", { textContent: kind.pair(names[owner[row]], names[owner[column]]) }, note);
    place(note, box, event);
  });
}

function paint(canvas, values, n, kind, totals) {
  const colours = ramp(), context = canvas.getContext("2d"), image = context.createImageData(n, n);
  for (let i = 0; i < n * n; i++) {
    const shade = Math.max(0, Math.min(1, kind.shade(values[i], totals[Math.floor(i / n)])));
    const [r, g, b] = colours[Math.round(255 * shade)];
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

function layerChoice(box, figure, view) {
  const line = html("label", { className: "choice", textContent: "Shown: " }, box);
  const select = html("select", {}, line);
  figure.layers.forEach((layer, i) => html("option", { value: i, textContent: layer.label, selected: i === (view.layer || 0) }, select));
  select.addEventListener("change", () => view.show(Number(select.value)));
}

// samples as points between the places of their classes
function drawPoints(box, figure) {
  const most = box.clientWidth < 420 ? 9 : 14;
  const names = figure.names.map((name) => clip(name, most));
  const margin = 14 + 6.9 * Math.max(...names.map((name) => name.length));
  const width = Math.min(Math.max(box.clientWidth, 240), 560), side = width - 2 * margin, height = side + 60;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const corner = figure.anchors.length < 3; // two classes: a quarter of the plane
  const at = ([x, y]) => [margin + side * (corner ? x : (x + 1) / 2), 30 + side * (corner ? 1 - y : (1 - y) / 2)];
  const ring = (corner ? [[0, 0], ...figure.anchors] : figure.anchors).map((place) => at(place).join(","));
  svg("path", { class: "axis", d: `M${ring.join("L")}Z` }, root);
  const [cx, cy] = at([0, 0]);
  svg("path", { class: "axis", d: `M${cx - 5},${cy}h10M${cx},${cy - 5}v10` }, root);
  const points = figure.x.map((x, i) => at([x, figure.y[i]]));
  points.forEach(([x, y], i) => mark(figure.own[i], x, y, 2.6, root, Math.floor(figure.own[i] / STYLES)));
  figure.anchors.forEach(([x, y], j) => {
    const [px, py] = at([x, y]), beside = Math.abs(x) < 0.1 ? "middle" : x > 0 ? "start" : "end";
    const place = { class: "level-label", x: px + (beside === "middle" ? 0 : x > 0 ? 9 : -9), y: py + 4 - 14 * y, "text-anchor": beside };
    svg("text", place, root).textContent = names[j];
  });
  box.append(root);
  root.style.maxWidth = `${width}px`;
  const note = html("div", { className: "tip", hidden: true }, box);
  root.addEventListener("pointerleave", () => { note.hidden = true; });
  root.addEventListener("pointermove", (event) => {
    const area = root.getBoundingClientRect(), scale = width / area.width;
    const far = ([x, y]) => Math.hypot(x - (event.clientX - area.left) * scale, y - (event.clientY - area.top) * scale);
    const near = points.reduce((best, point, i) => (far(point) < far(points[best]) ? i : best), 0);
    note.hidden = far(points[near]) > 16;
    if (note.hidden) return;
    note.replaceChildren(html("b", { textContent: `a sample of ${figure.names[figure.own[near]]}` }));
    figure.nearest[near].forEach((j, n) => html("div", { textContent: `${figure.share[near][n]} % in the subspace of ${figure.names[j]}` }, note));
    place(note, box, event);
  });
}
