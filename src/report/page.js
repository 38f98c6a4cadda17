"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4))).replace("-", "−");
}

/* ---- colours ---- */

const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"].map(rgb);  // cividis, for every eye

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function between(stops, at) {
  const position = Math.min(Math.max(at, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(position), stops.length - 2);
  return stops[i].map((value, k) => Math.round(value + (position - i) * (stops[i + 1][k] - value)));
}

const IN_THE_DARK = { "#000000": "#f2f2ee", "#882255": "#e0407f", "#332288": "#9a8cf0", "#0072b2": "#2f8fd8" };

function classColour(i) {
  const colour = data.palette[i % data.palette.length].toLowerCase();
  return (matchMedia("(prefers-color-scheme: dark)").matches && IN_THE_DARK[colour]) || colour;
}

const SHAPES = ["circle", "triangle", "square", "diamond"];  // of the first ten classes, the next ten, ...

function classShape(i) {
  return SHAPES[Math.floor(i / data.palette.length) % SHAPES.length];
}

function className(e, i) {
  return e.classes ? e.classes[i] : String(i);
}

const range = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
const fraction = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);

/* ---- the table of runs ---- */

const table = {
  order: data.rows.map((_, i) => i), column: null, descending: false, open: new Set(),
  texts: data.rows.map((row, i) => [data.names[i], ...row].map(shown).join(" ").toLowerCase()),
};

function visible() {
  const terms = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  return table.order.filter((i) => terms.every((term) => table.texts[i].includes(term)));
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortBy(column) {
  table.descending = table.column === column && !table.descending;
  table.column = column;
  const sign = table.descending ? -1 : 1;
  table.order.sort((i, j) => {
    const a = data.rows[i][column], b = data.rows[j][column];
    if (a === null || b === null) return (a === null) - (b === null);  // what has no value is last, either way
    return sign * compare(a, b) || i - j;
  });
  drawTable();
}

function drawHead() {
  const cells = data.columns.map(({ label, title }, column) => {
    const button = make("button", { type: "button", title }, label);
    button.addEventListener("click", () => sortBy(column));
    const cell = make("th", { scope: "col", class: isNumber(column) ? "number" : "" }, button);
    if (table.column === column) cell.setAttribute("aria-sort", table.descending ? "descending" : "ascending");
    return cell;
  });
  const focused = [...document.querySelectorAll("#table thead button")].indexOf(document.activeElement);
  $("table").tHead.replaceChildren(make("tr", {}, ...cells));
  if (focused >= 0) document.querySelectorAll("#table thead button")[focused].focus();
}

function isNumber(column) {
  return data.rows.some((row) => typeof row[column] === "number");
}

function drawTable() {
  drawHead();
  const rows = visible();
  $("table").tBodies[0].replaceChildren(...rows.flatMap(tableRow));
  $("count").textContent = rows.length === data.rows.length ? `${rows.length} runs` : `${rows.length} of ${data.rows.length} runs`;
}

function tableRow(i) {
  const name = data.names[i], open = table.open.has(i);
  const cells = data.rows[i].map((value, column) => {
    const cell = make("td", { class: isNumber(column) ? "number" : column === 4 ? value : "" });
    cell.append(column ? shown(value) : make("button", { "aria-expanded": open, "aria-label": `details of ${name}` }, shown(value)));
    return cell;
  });
  const row = make("tr", { class: "run", "data-run": name }, ...cells);
  row.addEventListener("click", () => {
    if (String(getSelection())) return;  // a person who selects text wants to copy it
    open ? table.open.delete(i) : table.open.add(i);
    drawTable();
    document.querySelector(`tr[data-run="${CSS.escape(name)}"] button`).focus({ preventScroll: true });
  });
  return open ? [row, detailsRow(i)] : [row];
}

function detailsRow(i) {
  const run = data.details[data.names[i]];
  const list = make("dl");
  const lines = {
    "to repeat it": run.command && make("code", {}, run.command), folder: make("code", {}, data.names[i]), error: run.error,
    note: run.notes,
    time: run.started && `${run.started} to ${run.ended || "…"}${run.host ? `, on ${run.host}` : ""}`,
    code: [run.git, run.versions].filter(Boolean).join(", "),
    metrics: Object.entries(run.metrics).map(([key, value]) => `${key} ${shown(value)}`).join(", "),
  };
  for (const [term, value] of Object.entries(lines)) {
    if (value) list.append(make("dt", {}, term), make("dd", {}, value));
  }
  const pictures = (data.pictures[data.names[i]] || []).map((src) => make("img", { src, alt: "figure of this run" }));
  return make("tr", { class: "details" }, make("td", { colspan: data.columns.length }, make("div", { class: "inner" }, list, ...pictures)));
}

/* ---- curves ---- */

const SVG = "http://www.w3.org/2000/svg", WIDTH = 300, HEIGHT = 180, LEFT = 42, BOTTOM = 22;
const sizes = [...new Set(data.curves.map((curve) => curve.size).filter((size) => size !== null))].sort(compare);

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function ticks([low, high], count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, i) => Number((first + i * step).toPrecision(10)));
}

function drawCurves() {
  const against = document.querySelector("[name=against]:checked").value;
  const names = new Set(visible().map((i) => data.names[i]));
  const panels = new Map();
  for (const curve of data.curves) {
    if (names.has(curve.run)) panels.set(curve.panel, [...(panels.get(curve.panel) || []), curve]);
  }
  const pictures = [...panels].map(([title, curves]) => make("div", {}, make("h3", {}, title), picture(curves, against)));
  $("panels").replaceChildren(...pictures);
  $("sizes").replaceChildren(...sizes.map((size, i) => make("span", {}, make("span", { class: "dash", style: `color:${classColour(i)}` }), `A = ${size}`)));
}

function picture(curves, against) {
  const values = curves.flatMap((curve) => curve.value).filter((v) => v !== null).sort((a, b) => a - b);
  const low = values[Math.floor(0.05 * values.length)] ?? 0, high = values[values.length - 1] ?? 1;
  const space = 0.06 * (high - low || 1), limits = [low - space, high + space];
  const xs = [0, range(curves.flatMap((curve) => curve[against]))[1]];
  const x = (value) => LEFT + fraction(value, xs) * (WIDTH - LEFT - 6);
  const y = (value) => (1 - fraction(value, limits)) * (HEIGHT - BOTTOM - 6) + 6;
  const frame = ticks(limits, 4).flatMap((t) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(t), y2: y(t) }),
    svg("text", { x: LEFT - 6, y: y(t) + 4, "text-anchor": "end" }, shown(t)),
  ]);
  frame.push(...ticks(xs, 4).map((t) => svg("text", { x: x(t), y: HEIGHT - 6, "text-anchor": "middle" }, axisText(t, against))));
  const lines = curves.map((curve) => line(curve, against, x, y));
  const clipped = svg("svg", { class: "clipped", width: WIDTH, height: HEIGHT - BOTTOM }, ...lines);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `objective against ${against}` }, ...frame, clipped);
}

function axisText(value, against) {
  if (against === "epoch" || !value) return shown(value);
  return value < 120 ? `${shown(value)} s` : value < 7200 ? `${shown(value / 60)} min` : `${shown(value / 3600)} h`;
}

function line(curve, against, x, y) {
  const points = curve.value.map((v, i) => (v === null ? "" : `${x(curve[against][i]).toFixed(1)},${y(v).toFixed(1)}`)).filter(Boolean);
  const stroke = curve.size === null ? css("--ink") : classColour(sizes.indexOf(curve.size));
  return svg("path", { d: `M${points.join("L")}`, stroke }, svg("title", {}, `${curve.run}: ${shown(curve.value[curve.value.length - 1])}`));
}

/* ---- the latent explorer ---- */

const explorer = { data: null, sheets: {}, column: 0, row: 0, picked: null, over: null };

async function openExplorer(i) {
  const e = data.explorers[i];
  const load = async (src) => { const image = new Image(); image.src = src; await image.decode(); return image; };
  const names = ["mean", "images", "reconstructions", "truth", "sdImages"].filter((name) => e[name]);
  const sheets = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await load(e[name])])));
  Object.assign(explorer, { data: e, sheets, column: e.side >> 1, row: e.side >> 1, picked: null });
  $("sd-panel").hidden = !e.sdImages;
  $("sd-scale").textContent = e.sdImages ? `0 to ${shown(e.sdRange[1])}` : "";
  $("truth-panel").hidden = !e.truth;
  $("image-name").textContent = `test ${kind(e)}${e.incomplete ? ", as seen" : ""}`;
  $("reconstruction-name").textContent = e.incomplete ? "filled in" : "its reconstruction";
  const byLabel = document.querySelector("[name=colour][value=label]");
  byLabel.disabled = !e.labels;
  if (!e.labels) document.querySelector("[name=colour][value=error]").checked = true;
  pick(0);
  drawExplorer();
}

function pointColours() {
  const e = explorer.data, by = document.querySelector("[name=colour]:checked").value;
  const values = by === "label" && e.labels ? e.labels : e.error;
  const classes = e.classes ? e.classes.map((_, i) => i) : [...new Set(values)].sort((a, b) => a - b);
  if (values === e.labels && classes.length <= data.palette.length * (e.classes ? SHAPES.length : 1)) {
    const places = values.map((v) => classes.indexOf(v));
    return { colours: places.map(classColour), shapes: places.map(classShape), classes };
  }
  const limits = range(values);
  return { colours: values.map((v) => `rgb(${between(RAMP, fraction(v, limits))})`), limits };
}

function place(value, axis, size) {
  const half = (axis[1] - axis[0]) / 2;
  return fraction(value, [axis[0] - half, axis[axis.length - 1] + half]) * size;
}

function drawPlane() {
  const e = explorer.data, canvas = $("plane"), box = canvas.getBoundingClientRect(), scale = devicePixelRatio || 1;
  canvas.width = Math.round(box.width * scale);
  canvas.height = Math.round(box.height * scale);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(background(e), 0, 0, canvas.width, canvas.height);
  context.scale(scale, scale);
  const { colours, shapes } = pointColours();
  e.points.forEach(([across, up], i) => {
    const x = place(across, e.across, box.width), y = box.height - place(up, e.up, box.height), picked = i === explorer.picked;
    dot(context, x, y, picked ? 6 : 3.2, colours[i], picked, shapes ? shapes[i] : "circle");
  });
  const x = place(e.across[explorer.column], e.across, box.width), y = box.height - place(e.up[explorer.row], e.up, box.height);
  context.strokeStyle = css("--accent");
  context.lineWidth = 1.5;
  context.strokeRect(x - box.width / e.side / 2, y - box.height / e.side / 2, box.width / e.side, box.height / e.side);
}

function background(e) {
  const canvas = make("canvas", { width: e.side, height: e.side }), limits = range(e.sd);
  const stops = [rgb(css("--low")), rgb(css("--high"))], image = new ImageData(e.side, e.side);
  e.sd.forEach((value, i) => {
    const at = limits[1] - limits[0] > 1e-6 ? fraction(value, limits) : 0, row = e.side - 1 - Math.floor(i / e.side);
    image.data.set([...between(stops, at), 255], 4 * (row * e.side + (i % e.side)));
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function dot(context, x, y, radius, colour, ring, shape) {
  context.beginPath();
  if (shape === "circle") context.arc(x, y, radius, 0, 2 * Math.PI);
  else outline(shape).forEach(([across, down]) => context.lineTo(x + radius * across, y + radius * down));
  context.closePath();
  context.fillStyle = colour;
  context.globalAlpha = ring ? 1 : 0.8;
  context.fill();
  context.globalAlpha = 1;
  if (ring) {
    context.lineWidth = 2;
    context.strokeStyle = css("--ink");
    context.stroke();
  }
}

function outline(shape) {
  if (shape === "triangle") return [[0, -1.1], [1.1, 1], [-1.1, 1]];
  return shape === "square" ? [[-1, -1], [1, -1], [1, 1], [-1, 1]] : [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]];
}

function drawTile(id, sheet, index, columns) {
  const [, height, width] = explorer.data.shape, canvas = $(id);
  const x = (index % columns) * width, y = Math.floor(index / columns) * height;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(sheet, x, y, width, height, 0, 0, width, height);
  if (height === 1) drawVector(canvas, context.getImageData(0, 0, width, 1).data);
}

function drawVector(canvas, pixels) {
  const values = Array.from({ length: pixels.length / 4 }, (_, i) => pixels[4 * i] / 255);
  canvas.width = 320;
  canvas.height = 200;
  const context = canvas.getContext("2d");
  context.strokeStyle = css("--accent");
  context.lineWidth = 2;
  values.forEach((value, i) => context.lineTo(10 + (300 * i) / Math.max(1, values.length - 1), 190 - 180 * value));
  context.stroke();
}

function drawHere() {
  const e = explorer.data, index = explorer.row * e.side + explorer.column;
  drawTile("decoded", explorer.sheets.mean, index, e.side);
  if (e.sdImages) drawTile("decoded-sd", explorer.sheets.sdImages, index, e.side);
  $("here").textContent = `z = (${e.across[explorer.column].toFixed(2)}, ${e.up[explorer.row].toFixed(2)}), predictive sd ${shown(e.sd[index])}`.replaceAll("-", "−");
  drawPlane();
}

const kind = (e) => (e.shape[1] === 1 ? "point" : "image");  // vectors are one line of pixels

function pick(i) {
  const e = explorer.data;
  explorer.picked = i;
  drawTile("image", explorer.sheets.images, i, e.columns);
  drawTile("reconstruction", explorer.sheets.reconstructions, i, e.columns);
  if (e.truth) drawTile("truth", explorer.sheets.truth, i, e.columns);
  const errors = e.truth ? `RMSE ${shown(e.error[i])} of seen, ${shown(e.hiddenError[i])} of hidden pixels` : `RMSE ${shown(e.error[i])}`;
  $("picked").textContent = `test ${kind(e)}${e.labels ? `, label ${className(e, e.labels[i])}` : ""}, ${errors}`;
}

function drawLegend() {
  const { classes, limits } = pointColours();
  if (classes) {
    const mark = (i) => make("span", { class: `dot ${classShape(i)}`, style: `background:${classColour(i)}` });
    $("legend").replaceChildren(...classes.map((c, i) => make("span", {}, mark(i), className(explorer.data, c))));
  } else {
    const bar = make("span", { class: "bar", style: `background:linear-gradient(90deg,${RAMP.map((stop) => `rgb(${stop})`)})` });
    $("legend").replaceChildren(shown(limits[0]), bar, shown(limits[1]));
  }
}

function drawExplorer() {
  if (!explorer.data) return;
  drawLegend();
  drawHere();
}

function moveTo(event) {
  const e = explorer.data, box = $("plane").getBoundingClientRect(), clamp = (i) => Math.min(Math.max(i, 0), e.side - 1);
  explorer.column = clamp(Math.floor(((event.clientX - box.left) / box.width) * e.side));
  explorer.row = clamp(e.side - 1 - Math.floor(((event.clientY - box.top) / box.height) * e.side));
  drawHere();
}

function nearest(x, y) {
  const e = explorer.data, box = $("plane").getBoundingClientRect();
  const distances = e.points.map(([across, up]) => Math.hypot(place(across, e.across, box.width) - x, box.height - place(up, e.up, box.height) - y));
  const distance = Math.min(...distances);
  return [distances.indexOf(distance), distance];
}

function listenToPlane() {
  const plane = $("plane");
  plane.addEventListener("pointermove", moveTo);
  plane.addEventListener("pointerdown", (event) => {
    moveTo(event);
    const box = plane.getBoundingClientRect();
    const [i, distance] = nearest(event.clientX - box.left, event.clientY - box.top);
    if (distance < (event.pointerType === "touch" ? 24 : 12)) pick(i);
    drawPlane();
  });
  plane.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key], e = explorer.data;
    if (step) {
      explorer.column = Math.min(Math.max(explorer.column + step[0], 0), e.side - 1);
      explorer.row = Math.min(Math.max(explorer.row + step[1], 0), e.side - 1);
    } else if (event.key === "Enter" || event.key === " ") {
      const box = plane.getBoundingClientRect();
      pick(nearest(place(e.across[explorer.column], e.across, box.width), box.height - place(e.up[explorer.row], e.up, box.height))[0]);
    } else return;
    event.preventDefault();
    drawHere();
  });
}

/* ---- start ---- */

function start() {
  drawTable();
  drawCurves();
  $("filter").addEventListener("input", () => { drawTable(); drawCurves(); });
  document.querySelectorAll("[name=against]").forEach((input) => input.addEventListener("change", drawCurves));
  if (!data.curves.length) hide("curves");
  if (!document.querySelector(".gallery figure")) hide("figures");
  if (data.explorers.length) startExplorer();
  else hide("explorer");
}

function hide(section) {
  $(section).hidden = true;
  document.querySelector(`nav a[href="#${section}"]`).hidden = true;
}

function startExplorer() {
  $("which").append(...data.explorers.map((e, i) => make("option", { value: i }, e.title)));
  $("which").addEventListener("change", () => openExplorer(Number($("which").value)));
  document.querySelectorAll("[name=colour]").forEach((input) => input.addEventListener("change", drawExplorer));
  addEventListener("resize", drawExplorer);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawCurves(); drawExplorer(); });
  listenToPlane();
  openExplorer(0);
}

start();
