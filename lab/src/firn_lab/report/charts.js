"use strict";
// Charts and tables: pure functions from data to DOM elements.

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function shape(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function canvas(width, height, title) {
  const root = document.createElementNS(SVG, "svg");
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", title);
  return root;
}

function format(value, unit = "") {
  if (value === null || value === undefined) return "–";
  if (unit === "B") {
    for (const [size, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]])
      if (Math.abs(value) >= size) return `${format(value / size)} ${name}`;
    return `${format(value)} B`;
  }
  const size = Math.abs(value);
  const digits = size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4;
  const text = value.toLocaleString("en-US", { maximumFractionDigits: digits });
  if (unit === "×") return `×${text}`;
  return unit.startsWith("1/") ? text + unit.slice(1) : unit ? `${text} ${unit}` : text;
}

// Tick marks: round numbers from 0 to at least `top`.
function ticks(top, wanted = 5, unit = "") {
  if (!(top > 0)) return [0, 1];
  const rough = top / wanted;
  const base = unit === "B" ? 1024 ** Math.max(0, Math.floor(Math.log2(top) / 10)) : 1;
  const power = base * 10 ** Math.floor(Math.log10(rough / base));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let n = 0; n * step < top + step * 0.999; n++) found.push(n * step);
  return found;
}

function tip(element, text) {
  const box = document.getElementById("tip");
  element.addEventListener("pointermove", (event) => {
    box.textContent = text;
    box.hidden = false;
    box.style.left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8) + "px";
    box.style.top = event.clientY + 14 + "px";
  });
  element.addEventListener("pointerleave", () => { box.hidden = true; });
}

function spreadText(value, unit) {
  const text = format(value.value, unit);
  return value.count > 1 ? `${text} (${format(value.low)}…${format(value.high)}, ${value.count} blocks)` : text;
}

// Draws groups of bars. groups: [{label, values: [{name, colour, spread, text, tip}]}] with spread:
// {value, low, high, count}. `text` is printed at the bar and `tip` in its tooltip; both default to
// the value with its interval. `one`: a line marks the value 1.
function barChart(groups, unit, title, one = false) {
  const left = 300, width = 1120, right = 160, bar = 18;
  const rows = groups.map((group) => group.values.length * (bar + 3) + 16);
  const height = rows.reduce((sum, each) => sum + each, 0) + 34;
  const root = canvas(width, height, title);
  const top = Math.max(...groups.flatMap((group) => group.values.map((each) => each.spread.high)), 0);
  const marks = ticks(top, 5, unit);
  const x = (value) => left + (value / marks.at(-1)) * (width - left - right);
  for (const mark of marks) {
    shape(root, "line", { x1: x(mark), x2: x(mark), y1: 4, y2: height - 24, class: "grid" });
    shape(root, "text", { x: x(mark), y: height - 8, "text-anchor": "middle", class: "soft" },
      format(mark, unit));
  }
  if (one) shape(root, "line", { x1: x(1), x2: x(1), y1: 4, y2: height - 24, class: "one" });
  let y = 8;
  groups.forEach((group, index) => {
    const lines = wrap(group.label, 38);
    lines.forEach((line, n) => shape(root, "text",
      { x: left - 10, y: y + 14 + n * 14, "text-anchor": "end" }, line));
    group.values.forEach((each, n) => {
      const at = y + n * (bar + 3), value = each.spread, middle = at + bar / 2;
      const rect = shape(root, "rect", { x: left, y: at, height: bar, fill: each.colour,
        width: Math.max(1, x(value.value) - left), class: "hot bar", rx: 2 });
      tip(rect, `${group.label}\n${each.name}: ${each.tip ?? spreadText(value, unit)}`);
      if (value.count > 1) shape(root, "path", { class: "whisker",
        d: `M${x(value.low)} ${middle}H${x(value.high)}M${x(value.low)} ${middle - 4}v8` +
          `M${x(value.high)} ${middle - 4}v8` });
      shape(root, "text", { x: x(value.high) + 6, y: middle + 4, class: "soft label" },
        each.text ?? format(value.value, unit));
    });
    y += rows[index];
  });
  return root;
}

function wrap(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1) && (lines.at(-1) + " " + word).length > width) lines.push(word);
    else lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines.slice(0, 3);
}

// Draws curves: [{name, colour, points: [{x, y, low, high}], faint}]. `steps`: the values of x,
// drawn at equal distances, as for thread counts.
function lineChart(curves, unit, axis, title, steps = null) {
  const left = 84, width = 1120, height = 380, right = 20, bottom = 44, head = 10;
  const root = canvas(width, height, title);
  const points = curves.flatMap((curve) => curve.points);
  const marks = ticks(Math.max(...points.map((each) => each.high ?? each.y), 0), 5, unit);
  const last = Math.max(...points.map((each) => each.x), 1);
  const xs = steps ?? ticks(last, Math.min(10, last)).filter((each) => each <= last);
  const place = (value) => steps
    ? (steps.indexOf(value) + 0.5) / steps.length
    : value / last;
  const x = (value) => left + place(value) * (width - left - right);
  const y = (value) => height - bottom - (value / marks.at(-1)) * (height - bottom - head);
  for (const mark of marks) {
    shape(root, "line", { x1: left, x2: width - right, y1: y(mark), y2: y(mark), class: "grid" });
    shape(root, "text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end", class: "soft" },
      format(mark, unit));
  }
  for (const mark of xs)
    shape(root, "text", { x: x(mark), y: height - 22, "text-anchor": "middle", class: "soft" },
      format(mark));
  shape(root, "text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, axis);
  for (const curve of curves) {
    const up = curve.points.map((p) => `${x(p.x)},${y(p.high ?? p.y)}`);
    const down = curve.points.map((p) => `${x(p.x)},${y(p.low ?? p.y)}`).reverse();
    if (curve.points.some((p) => p.high !== undefined))
      shape(root, "polygon", { points: [...up, ...down].join(" "), fill: curve.colour, opacity: 0.15 });
    shape(root, "polyline", { points: curve.points.map((p) => `${x(p.x)},${y(p.y)}`).join(" "),
      fill: "none", stroke: curve.colour, "stroke-width": curve.faint ? 1.2 : 2.2, class: "curve",
      opacity: curve.faint ? 0.75 : 1 });
    const dot = curve.points.length > 200 ? 0 : curve.faint ? 2 : 4;
    for (const p of dot ? curve.points : []) {
      const mark = shape(root, "circle",
        { cx: x(p.x), cy: y(p.y), r: dot, fill: curve.colour, class: "hot" });
      const range = p.high === undefined ? "" : ` (${format(p.low)}…${format(p.high)})`;
      tip(mark, `${curve.name}\n${axis} ${format(p.x)}: ${format(p.y, unit)}${range}`);
    }
  }
  return root;
}

// A table that a click on a head sorts by that column. heads: [{text, number}]. A cell is text, or
// {text, value} to sort by value.
function sortable(heads, rows, differs = () => false) {
  const body = make("tbody");
  const value = (cell) => (cell !== null && typeof cell === "object" ? cell.value : cell);
  const fill = (list) => body.replaceChildren(...list.map((row) => make("tr",
    differs(row) ? { class: "differs" } : {},
    ...row.map((cell, n) => make("td", heads[n].number ? { class: "number" } : {},
      cell !== null && typeof cell === "object" ? cell.text : String(cell ?? "–"))))));
  const head = make("tr");
  heads.forEach((each, n) => {
    const cell = make("th", { scope: "col", class: each.number ? "number" : "" },
      make("button", { type: "button" }, each.text));
    cell.onclick = () => {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const list = [...rows].sort((a, b) => order(value(a[n]), value(b[n]), up));
      fill(list);
    };
    head.append(cell);
  });
  fill(rows);
  return make("table", { class: "sortable" }, make("thead", {}, head), body);
}

// Compares two cells of a column. Missing values come last in both directions.
function order(a, b, up) {
  const none = (each) => each === null || each === undefined;
  if (none(a) || none(b)) return none(a) - none(b);
  const sign = typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return up ? sign : -sign;
}
