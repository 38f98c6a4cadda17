"use strict";
/* Paths between two points of the latent explorer: the straight line, the geodesic, and what is decoded along both.

The metric is known at the nodes of the explorer's grid and linear between them. A geodesic starts from the shortest
path over the nodes, or from the straight line, and its points move as long as that makes its energy smaller. */

const paths = { on: false, ends: [], found: null };
const STEPS = 9, FINEST = 32;  // images along a path, and pieces of a geodesic
const MOVES = [[0, 1], [1, 0], [1, 1], [1, -1], [1, 2], [2, 1], [1, -2], [2, -1]].flatMap(([i, j]) => [[i, j], [-i, -j]]);

/* ---- the metric ---- */

const gridStep = (axis) => axis[1] - axis[0];
const nodeOf = ([column, row]) => row * explorer.data.side + column;

function nodeMetric(node) {
  return explorer.data.metric.slice(3 * node, 3 * node + 3);
}

function metricAt([x, y]) {
  const e = explorer.data, clamp = (value) => Math.min(Math.max(value, 0), e.side - 1 - 1e-9);
  const across = clamp((x - e.across[0]) / gridStep(e.across)), up = clamp((y - e.up[0]) / gridStep(e.up));
  const column = Math.floor(across), row = Math.floor(up), right = across - column, above = up - row;
  const corners = [[0, 0, (1 - right) * (1 - above)], [1, 0, right * (1 - above)], [0, 1, (1 - right) * above], [1, 1, right * above]];
  return corners.reduce((total, [i, j, weight]) => nodeMetric(nodeOf([column + i, row + j])).map((g, k) => total[k] + weight * g), [0, 0, 0]);
}

const squared = ([g11, g12, g22], dx, dy) => g11 * dx * dx + 2 * g12 * dx * dy + g22 * dy * dy;

function pieceEnergy(a, b) {
  return squared(metricAt([(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]), b[0] - a[0], b[1] - a[1]);
}

const pieces = (path) => path.slice(1).map((point, i) => pieceEnergy(path[i], point));
const energyOf = (path) => (path.length - 1) * pieces(path).reduce((a, b) => a + b, 0);
const lengthOf = (path) => pieces(path).reduce((total, piece) => total + Math.sqrt(Math.max(piece, 0)), 0);

/* ---- the search ---- */

function straight(a, b) {
  return Array.from({ length: FINEST + 1 }, (_, i) => [0, 1].map((k) => a[k] + (i / FINEST) * (b[k] - a[k])));
}

function shortestNodes(start, end) {
  const { side, across, up } = explorer.data, distance = new Float64Array(side * side).fill(Infinity);
  const before = new Int32Array(side * side).fill(-1), waiting = new Set([start]);
  distance[start] = 0;
  while (waiting.size) {
    let node = -1;
    for (const other of waiting) if (node < 0 || distance[other] < distance[node]) node = other;
    if (node === end) break;
    waiting.delete(node);
    const column = node % side, row = Math.floor(node / side), here = nodeMetric(node);
    for (const [i, j] of MOVES) {
      const to = [column + i, row + j];
      if (Math.min(...to) < 0 || Math.max(...to) >= side) continue;
      const next = nodeOf(to), mean = nodeMetric(next).map((g, k) => (g + here[k]) / 2);
      const reached = distance[node] + Math.sqrt(Math.max(squared(mean, i * gridStep(across), j * gridStep(up)), 0));
      if (reached < distance[next]) {
        distance[next] = reached;
        before[next] = node;
        waiting.add(next);
      }
    }
  }
  const nodes = [end];
  while (before[nodes[0]] >= 0) nodes.unshift(before[nodes[0]]);
  return nodes.map((node) => [across[node % side], up[Math.floor(node / side)]]);
}

function resampled(path, count) {
  const lengths = path.slice(1).map((point, i) => Math.hypot(point[0] - path[i][0], point[1] - path[i][1]));
  const total = lengths.reduce((a, b) => a + b, 0), points = [];
  for (let i = 0, piece = 0, passed = 0; i <= count; i++) {
    const at = (i / count) * total;
    while (piece < lengths.length - 1 && passed + lengths[piece] < at) passed += lengths[piece++];
    const part = lengths[piece] > 0 ? (at - passed) / lengths[piece] : 0;
    points.push([0, 1].map((k) => path[piece][k] + part * (path[piece + 1][k] - path[piece][k])));
  }
  return points;
}

function relaxed(path) {
  const e = explorer.data, points = path.map((point) => [...point]);
  let step = 2;  // of cells of the grid
  const around = (i, at) => pieceEnergy(points[i - 1], at) + pieceEnergy(at, points[i + 1]);
  for (let sweep = 0; sweep < 200 && step > 0.02; sweep++) {
    let moved = false;
    for (let i = 1; i < points.length - 1; i++) {
      const here = around(i, points[i]);
      const tries = [[1, 0], [-1, 0], [0, 1], [0, -1]].map(([dx, dy]) => [points[i][0] + step * dx * gridStep(e.across), points[i][1] + step * dy * gridStep(e.up)]);
      const energies = tries.map((at) => around(i, at)), best = energies.indexOf(Math.min(...energies));
      if (energies[best] < here * (1 - 1e-9)) {
        points[i] = tries[best];
        moved = true;
      }
    }
    if (!moved) step /= 2;
  }
  return points;
}

function geodesic(a, b, over) {
  let found = [over, straight(a, b)];
  for (let count = 4; count <= FINEST; count *= 2) found = found.map((path) => relaxed(resampled(path, count)));
  found.push(straight(a, b));
  const energies = found.map(energyOf);
  return found[energies.indexOf(Math.min(...energies))];
}

/* ---- what a person sees ---- */

function findPaths() {
  const e = explorer.data, [a, b] = paths.ends.map(([column, row]) => [e.across[column], e.up[row]]);
  const over = shortestNodes(...paths.ends.map(nodeOf)), line = straight(a, b);
  paths.found = { line, curve: geodesic(a, b, over.length > 1 ? over : [a, b]) };
}

function chooseEnd() {
  if (!paths.on) return;
  const here = [explorer.column, explorer.row];
  paths.ends = paths.ends.length === 2 ? [here] : [...paths.ends, here];
  paths.found = null;
  if (paths.ends.length === 2) findPaths();
  drawPaths();
}

function drawPaths() {
  const { found, ends } = paths;
  $("strips").hidden = !found;
  if (found) {
    drawStrip("straight-strip", found.line);
    drawStrip("geodesic-strip", found.curve);
    const [line, curve] = [lengthOf(found.line), lengthOf(found.curve)];
    $("path-note").textContent = `Length of the straight line ${shown(line)}, of the geodesic ${shown(curve)}. Choose another start, or press Escape.`;
  } else {
    $("path-note").textContent = !paths.on ? "" : ends.length ? "Choose the end: click, tap, or press Enter." : "Choose the start: click, tap, or press Enter.";
  }
  drawPlane();
}

function drawStrip(id, path) {
  const e = explorer.data, near = (value, axis) => Math.min(Math.max(Math.round((value - axis[0]) / gridStep(axis)), 0), e.side - 1);
  for (let i = 0; i < STEPS; i++) {
    const [x, y] = path[Math.round((i * FINEST) / (STEPS - 1))];
    drawTile(`${id}-${i}`, explorer.sheets.mean, nodeOf([near(x, e.across), near(y, e.up)]), e.side);
  }
}

function drawPathsOver(context, box) {
  const e = explorer.data, at = ([x, y]) => [place(x, e.across, box.width), box.height - place(y, e.up, box.height)];
  const stroke = (path, colour, dash) => {
    context.setLineDash([]);
    context.beginPath();
    path.map(at).forEach((point) => context.lineTo(...point));
    context.lineJoin = "round";
    context.strokeStyle = css("--paper");
    context.lineWidth = 5;
    context.stroke();
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = 2.5;
    context.stroke();
    context.setLineDash([]);
  };
  if (paths.found) {
    stroke(paths.found.line, css("--ink"), [6, 5]);
    stroke(paths.found.curve, css("--accent"), []);
  }
  for (const [column, row] of paths.ends) dot(context, ...at([e.across[column], e.up[row]]), 6, css("--accent"), true, "circle");
}

function forgetPaths() {
  const known = Boolean(explorer.data.metric);
  Object.assign(paths, { ends: [], found: null, on: false });
  $("path").hidden = !known;
  $("path-on").checked = false;
  $("strips").hidden = true;
  $("path-note").textContent = "";
}

function startPaths() {
  const strip = (id, name) => make("figure", {}, make("div", { id, class: "strip" }, ...Array.from({ length: STEPS }, (_, i) => make("canvas", { id: `${id}-${i}` }))), make("figcaption", {}, name));
  const choice = make("label", {}, make("input", { id: "path-on", type: "checkbox" }), "path between two points");
  const strips = make("div", { id: "strips" }, strip("straight-strip", "along the straight line (dashed)"), strip("geodesic-strip", "along the geodesic"));
  $("hint").before(make("div", { id: "path" }, choice, make("p", { id: "path-note", role: "status" }), strips));
  $("path-on").addEventListener("change", () => {
    Object.assign(paths, { on: $("path-on").checked, ends: [], found: null });
    drawPaths();
  });
  $("plane").addEventListener("pointerdown", chooseEnd);
  $("plane").addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") chooseEnd();
    if (event.key !== "Escape" || !paths.on) return;
    Object.assign(paths, { ends: [], found: null });
    drawPaths();
  });
}
