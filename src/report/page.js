/* ---- the latent explorer ---- */

const explorer = { data: null, sheets: {}, column: 0, row: 0, picked: null, over: null };

async function openExplorer(i) {
  const e = data.explorers[i];
  const load = async (src) => { const image = new Image(); image.src = src; await image.decode(); return image; };
  const names = ["mean", "images", "reconstructions", "truth", "sdImages"].filter((name) => e[name]);
  const sheets = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await load(e[name])])));
  Object.assign(explorer, { data: e, sheets, column: e.side >> 1, row: e.side >> 1, picked: null });
  forgetPaths();
  $("sd-panel").hidden = !e.sdImages;
  $("sd-scale").textContent = e.sdImages ? `0 to ${shown(e.sdRange[1])}` : "";
  $("truth-panel").hidden = !e.truth;
  $("which-run").textContent = e.about;
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
  drawPathsOver(context, box);
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
  startCurves();
  for (const id of ["filter", "hide-bad"]) $(id).addEventListener("input", () => { filterRuns(); drawCurves(); });
  $("hide-bad").parentElement.hidden = !table.bad.includes(true);
  addEventListener("resize", fitColumns);
  if (!data.curves.length) hide("curves");
  if (!document.querySelector("#papers figure")) hide("papers");
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
  startPaths();
  openExplorer(0);
}

start();
