/* ---- the table of runs: drawn once; a filter hides rows, a sort moves them ---- */

const ROWS = 50;  // shown at first, since layout takes most of the time; more follow when the table is scrolled to its end
const STATUS = data.columns.findIndex((column) => column.label === "status");
const numeric = data.columns.map((_, column) => data.rows.some((row) => typeof row[column] === "number"));
const table = {
  order: data.rows.map((_, i) => i), column: null, descending: false, rows: [], kept: [], shown: ROWS, widths: null, chosen: new Map(),
  texts: data.rows.map((row, i) => [data.names[i], ...row].map(shown).join(" ").toLowerCase()),
  bad: data.rows.map((row) => ["failed", "diverged"].includes(row[STATUS])),
};

function isVisible(i, terms, hideBad) {
  return !(hideBad && table.bad[i]) && terms.every((term) => table.texts[i].includes(term));
}

function visible() {
  const terms = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  return table.order.filter((i) => isVisible(i, terms, $("hide-bad").checked));
}

function filterRuns() {
  const count = data.rows.length;
  table.kept = visible();
  showRows(ROWS);
  $("table").parentElement.scrollTop = 0;
  $("count").textContent = table.kept.length === count ? `${count} runs` : `${table.kept.length} of ${count} runs`;
}

function showRows(number) {
  table.shown = number;
  const kept = new Set(table.kept.slice(0, number));
  table.rows.forEach((row, i) => {
    row.hidden = !kept.has(i);
    if (row.details) row.details.hidden = row.hidden;
  });
}

function showMore() {
  const box = $("table").parentElement, below = box.scrollHeight - box.scrollTop - box.clientHeight;
  if (below < box.clientHeight && table.shown < table.kept.length) showRows(table.shown + ROWS);
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
  [...$("table").tHead.rows[0].cells].forEach((cell, k) => {
    if (k === column) cell.setAttribute("aria-sort", table.descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  $("table").tBodies[0].append(...table.order.flatMap((i) => [table.rows[i], table.rows[i].details].filter(Boolean)));
  table.kept = visible();
  showRows(table.shown);
}

function drawTable() {
  const head = data.columns.map(({ label, title }, column) => {
    const button = make("button", { type: "button", title }, label);
    button.addEventListener("click", () => sortBy(column));
    return make("th", { scope: "col", class: numeric[column] ? "number" : "" }, button);
  });
  $("table").tHead.replaceChildren(make("tr", {}, ...head));
  table.rows = data.rows.map((_, i) => tableRow(i));
  $("table").tBodies[0].replaceChildren(...table.rows);
  table.widths = head.map((cell) => cell.offsetWidth);
  $("table").parentElement.addEventListener("scroll", showMore);
  drawChooser();
  fitColumns();
  filterRuns();
}

function tableRow(i) {
  const name = data.names[i];
  const cells = data.rows[i].map((value, column) => {
    const cell = document.createElement("td");
    cell.className = numeric[column] ? "number" : column === STATUS ? value : "";
    if (column) cell.textContent = shown(value);
    else cell.append(make("button", { type: "button", "aria-expanded": false, "aria-label": `details of ${name}` }, shown(value)));
    return cell;
  });
  const row = make("tr", { class: "run", "data-run": name }, ...cells);
  row.addEventListener("click", () => String(getSelection()) || toggleDetails(row, i));  // who selects text wants to copy it
  return row;
}

function toggleDetails(row, i) {
  if (row.details) row.details.remove();
  row.details = row.details ? null : detailsRow(i);
  if (row.details) row.after(row.details);
  row.querySelector("button").setAttribute("aria-expanded", Boolean(row.details));
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

/* ---- columns: those that matter most and fit the width, or those that a person chooses ---- */

function fittingColumns() {
  let space = $("table").parentElement.clientWidth;
  const kept = new Set([...table.chosen].filter(([, wanted]) => wanted).map(([column]) => column));
  kept.forEach((column) => { space -= table.widths[column]; });
  const ranked = data.columns.map((column, i) => [column.rank, i]).filter(([rank]) => rank !== null).sort((a, b) => a[0] - b[0]);
  for (const [, column] of ranked) {
    if (kept.has(column) || table.chosen.has(column)) continue;
    if (table.widths[column] > space) break;
    kept.add(column);
    space -= table.widths[column];
  }
  return kept;
}

function fitColumns() {
  const kept = fittingColumns();
  const rules = data.columns.map((_, i) => (kept.has(i) ? "" : `#table tr:not(.details) > :nth-child(${i + 1}) { display: none }`));
  $("column-rules").textContent = rules.filter(Boolean).join("\n");
  document.querySelectorAll("#chooser input").forEach((input, i) => { input.checked = kept.has(i); });
  $("chooser-name").textContent = kept.size === data.columns.length ? "columns" : `${kept.size} of ${data.columns.length} columns`;
}

function drawChooser() {
  $("chooser").replaceChildren(...data.columns.map(({ label, title }, column) => {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => { table.chosen.set(column, input.checked); fitColumns(); });
    return make("label", { title }, input, label);
  }));
}
