/* ---- curves: one panel per model and dataset, one colour per configuration ---- */

const SVG = "http://www.w3.org/2000/svg", WIDTH = 300, HEIGHT = 180, LEFT = 42, BOTTOM = 22, MAX_LEGEND = 12, FINE = 10000;
const DASHES = ["", "6 3", "2 3"];  // of the first ten configurations of a panel, the next ten, ...

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
  const against = document.querySelector("[name=against]:checked").value, quantity = $("quantity").value;
  const names = new Set(visible().map((i) => data.names[i]));
  const panels = new Map();
  for (const curve of data.curves) {
    if (!names.has(curve.run) || !curve.values[quantity]) continue;
    if (!panels.has(curve.panel)) panels.set(curve.panel, []);
    panels.get(curve.panel).push(curve);
  }
  const pictures = [...panels].map(([title, curves]) => make("div", {}, make("h3", {}, title), picture(curves, against, quantity), ...curveLegend(curves)));
  $("panels").replaceChildren(...pictures);
}

function curveColour(curve) {
  return classColour(curve.kind);
}

function curveDash(curve) {
  return DASHES[Math.floor(curve.kind / data.palette.length) % DASHES.length];
}

function curveLegend(curves) {
  const kinds = [...new Map(curves.filter((curve) => curve.label).map((curve) => [curve.kind, curve]))].sort((a, b) => a[0] - b[0]);
  if (!kinds.length) return [];
  const entries = kinds.slice(0, MAX_LEGEND).map(([, curve]) => {
    const dash = svg("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: curveColour(curve), "stroke-width": 2, "stroke-dasharray": curveDash(curve) });
    return make("span", {}, svg("svg", { class: "key", width: 18, height: 8 }, dash), curve.label);
  });
  if (kinds.length > MAX_LEGEND) entries.push(make("span", {}, `and ${kinds.length - MAX_LEGEND} more`));
  return [make("div", { class: "curve-legend" }, ...entries)];
}

function picture(curves, against, quantity) {
  const values = Float64Array.from(curves.flatMap((curve) => curve.values[quantity]).filter((v) => v !== null)).sort();
  const low = values[Math.floor((quantity === "objective" ? 0.05 : 0) * values.length)] ?? 0, high = values[values.length - 1] ?? 1;
  const space = 0.06 * (high - low || Math.abs(high) || 1), limits = [low - space, high + space];
  const xs = [0, Math.max(...curves.map((curve) => curve[against][curve[against].length - 1]))];
  const x = (value) => LEFT + fraction(value, xs) * (WIDTH - LEFT - 6);
  const y = (value) => (1 - fraction(value, limits)) * (HEIGHT - BOTTOM - 6) + 6;
  const frame = ticks(limits, 4).flatMap((t) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(t), y2: y(t) }),
    svg("text", { x: LEFT - 6, y: y(t) + 4, "text-anchor": "end" }, shown(t)),
  ]);
  frame.push(...ticks(xs, 4).map((t) => svg("text", { x: x(t), y: HEIGHT - 6, "text-anchor": "middle" }, axisText(t, against))));
  const lines = curves.map((curve) => line(curve, against, quantity, x, y));
  const clipped = svg("svg", { class: "clipped", width: WIDTH, height: HEIGHT - BOTTOM }, ...lines);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${quantity} against ${against}` }, ...frame, clipped);
}

function axisText(value, against) {
  if (against === "epoch" || !value) return shown(value);
  return value < 120 ? `${shown(value)} s` : value < 7200 ? `${shown(value / 60)} min` : `${shown(value / 3600)} h`;
}

/* A path is drawn once, in whole numbers from 0 to FINE across its own ranges; each picture moves and scales it. */

const wide = ([low, high]) => (high > low ? [low, high] : Number.isFinite(low) ? [low, low + (Math.abs(low) || 1)] : [0, 1]);

function drawnPath(curve, against, quantity) {
  const values = curve.values[quantity], xs = wide([0, curve[against][values.length - 1]]), ys = wide(range(values.filter((v) => v !== null)));
  const at = (value, limits) => Math.round(FINE * fraction(value, limits));
  const points = values.map((v, i) => (v === null ? "" : `${at(curve[against][i], xs)} ${at(v, ys)}`)).filter(Boolean);
  const about = [curve.run, curve.label, shown(values[values.length - 1])].filter(Boolean).join(": ");
  return { xs, ys, path: svg("path", { d: `M${points.join("L")}` }, svg("title", {}, about)) };
}

function line(curve, against, quantity, x, y) {
  curve.drawn ??= {};
  const { xs, ys, path } = (curve.drawn[`${against} ${quantity}`] ??= drawnPath(curve, against, quantity));
  const [left, right] = xs.map(x), [first, last] = ys.map(y);
  path.setAttribute("transform", `matrix(${(right - left) / FINE} 0 0 ${(last - first) / FINE} ${left} ${first})`);
  path.setAttribute("stroke", curveColour(curve));
  path.setAttribute("stroke-dasharray", curveDash(curve));
  return path;
}

function startCurves() {
  $("quantity").append(...data.quantities.map((name) => make("option", { value: name }, name)));
  $("quantity").parentElement.hidden = data.quantities.length < 2;
  $("quantity").addEventListener("change", drawCurves);
  document.querySelectorAll("[name=against]").forEach((input) => input.addEventListener("change", drawCurves));
  drawCurves();
}
