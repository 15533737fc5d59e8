"use strict";
// The page of a run: sections, each with controls, a chart and a table.

const data = JSON.parse(document.getElementById("data").textContent);
const names = data.targets.map((target) => target.name);
const colour = (name) => data.colours[names.indexOf(name) % data.colours.length];
const unitOf = (figure) => (data.kinds[figure.split(".")[0]] ?? data.kinds[figure] ?? { unit: "" }).unit;
const hidden = new Set();
const redraws = [];
const result = (id, name) => data.results.find((each) => each.case === id && each.target === name);
const MOMENTS = { load: "after load", update: "after updates", rest: "at rest" };

function section(id, title, ...children) {
  const element = make("section", { id }, make("h2", {}, title), ...children);
  document.getElementById("main").append(element);
  document.getElementById("nav").append(make("a", { href: "#" + id }, title));
  return element;
}

function box(kind, title, lines) {
  if (!lines.length) return;
  const list = make("ul", {}, ...lines.map((line) => make("li", {}, line)));
  document.getElementById("main").append(make("div", { class: kind, role: "alert" }, title, list));
}

// A chart that is redrawn when a choice or the set of shown targets changes.
function chart(id, title, choices, draw) {
  const place = make("div", { class: "chart" });
  const selects = choices.map(({ label, options }) => make("select",
    { "aria-label": label, onchange: () => redraw() },
    ...options.map(([value, text]) => make("option", { value }, text))));
  const redraw = () => {
    const drawn = draw(...selects.map((select) => select.value));
    place.replaceChildren(...[drawn ?? make("p", {}, "No numbers for this choice.")].flat());
  };
  section(id, title, make("div", { class: "controls" }, ...selects, legend()), place);
  redraws.push(redraw);
  redraw();
}

function legend() {
  return make("span", { class: "legend" }, ...names.map((name) => {
    const patch = make("i");
    patch.style.background = colour(name);
    return make("button", { type: "button", "data-target": name, "aria-pressed": "true",
      onclick: () => {
        if (!hidden.delete(name)) hidden.add(name);
        for (const each of document.querySelectorAll("[data-target]"))
          each.setAttribute("aria-pressed", String(!hidden.has(each.dataset.target)));
        redraws.forEach((redraw) => redraw());
      } }, patch, name);
  }));
}

const shown = () => names.filter((name) => !hidden.has(name));
const single = (value) => ({ value, low: value, high: value, count: 1 });

// A ratio to the reference as text, with its interval if it has one.
const ratioText = (ratio) => `×${ratio.value.toFixed(2)}` +
  (ratio.count > 1 ? ` (${ratio.low.toFixed(2)}…${ratio.high.toFixed(2)})` : "");
const words = (figure) => figure.replaceAll("_", " ");

function figuresThere(wanted) {
  const there = new Set(data.results.flatMap((each) => Object.keys(each.figures)));
  return wanted ? wanted.filter(([figure]) => there.has(figure)) : [...there].sort().map((each) => [each, words(each)]);
}

// The values of a figure by case. `relative`: as multiples of the reference's value, so that cases
// of different size fit one picture; cases without a value of the reference are left out.
function byCase(figure, relative) {
  const unit = unitOf(figure);
  return data.cases.map((each) => {
    const base = relative ? result(each.id, data.reference)?.figures[figure]?.value : 1;
    return { label: each.label, values: !base ? [] : shown().flatMap((name) => {
      const found = result(each.id, name), spread = found?.figures[figure], ratio = found?.ratios[figure];
      if (!spread) return [];
      const beside = ratio ? `${ratioText(ratio)} · ` : relative ? "×1.00 · " : "";
      const drawn = !relative ? spread : ratio ?? single(spread.value / base);
      const tip = `${beside}${spreadText(spread, unit)}`;
      return [{ name, colour: colour(name), spread: drawn, text: (relative ? beside : "") + format(spread.value, unit), tip }];
    }) };
  }).filter((group) => group.values.length);
}

// A chart with a group of bars for each case, relative to the reference or as measured.
function caseChart(id, title, figures) {
  const scales = [["relative", `× ${data.reference}`], ["", "as measured"]];
  const choices = [{ label: "figure", options: figures }];
  if (names.length > 1) choices.push({ label: "scale", options: scales });
  chart(id, title, choices, (figure, scale) => {
    const all = byCase(figure), groups = scale ? byCase(figure, true) : all;
    if (!all.length) return null;
    const better = { higher: "More is better. ", lower: "Less is better. " }[data.kinds[figure]?.better] ?? "";
    const missing = all.length - groups.length;
    const stands = figure.endsWith("_per_transaction") ? "means over all transactions" : "medians";
    const note = better + `Bars: ${scale ? "ratios" : stands}; whiskers and parentheses: intervals of 95 %.` +
      (missing ? ` ${missing} of ${all.length} cases have no number of ${data.reference} above zero: choose “as measured”.` : "");
    const drawn = make("p", { class: "note" }, note);
    return groups.length ? [drawn, barChart(groups, scale ? "×" : unitOf(figure), id, Boolean(scale))] : drawn;
  });
}

function about() {
  const { run } = data, machine = run.machine, budget = run.budget;
  document.getElementById("about").textContent = [
    `${run.started_at.slice(0, 16).replace("T", " ")} UTC: ${run.status}${run.message ? ", " + run.message : ""}`,
    `${machine.processor ?? "?"}, ${machine.cores ?? "?"} cores, ${format(machine.memory_bytes ?? 0, "B")}`,
    `${machine.system ?? ""} ${machine.kernel ?? ""}`.trim(), machine.file_system ?? "",
    `${format(budget.memory_bytes, "B")} for each engine, ` +
      (budget.durable ? "a sync for each commit" : "a sync a second") +
      (budget.direct_io ? ", past the page cache" : ", through the page cache") +
      (budget.thread_pool ? ", MariaDB's thread pool" : "") +
      (budget.new_servers ? ", a new server for each round" : ""),
    machine.busy_cores === undefined ? "" : `${machine.busy_cores.toFixed(1)} cores at other work before it`,
    "ratios of short rounds next to each other; intervals of 95 %",
  ].filter(Boolean).join(" · ");
}

const COMMON = [
  ["tps", "transactions/s"], ["qps", "queries/s"], ["latency_average_ms", "latency: average"],
  ["latency_p50_ms", "latency: 50 %"], ["latency_p95_ms", "latency: 95 %"], ["latency_p99_ms", "latency: 99 %"],
  ["latency_p999_ms", "latency: 99.9 %"],
  ["latency_max_ms", "latency: largest"], ["seconds", "seconds"],
];
const RESOURCES = [
  ["settled_device_written_bytes_per_transaction", "written to the device, a transaction, until at rest"],
  ["device_written_bytes_per_transaction", "written to the device, a transaction, within the round"],
  ["settled_device_read_bytes_per_transaction", "read from the device, a transaction, until at rest"],
  ["device_read_bytes_per_transaction", "read from the device, a transaction, within the round"],
  ["device_written_bytes", "written by the server, a round"], ["device_read_bytes", "read by the server, a round"],
  ["disk_written_bytes", "the device's own count of writes"], ["disk_read_bytes", "the device's own count of reads"],
  ["disk_writes_per_transaction", "write requests of the device, a transaction"],
  ["disk_reads_per_transaction", "read requests of the device, a transaction"],
  ["settled_cpu_us_per_transaction", "processor time of the server, a transaction, until at rest"],
  ["cpu_us_per_transaction", "processor time of the server, a transaction"],
  ["switches_per_transaction", "context switches of the server, a transaction"],
  ["forced_switches_per_transaction", "context switches that were forced upon it, a transaction"],
  ["client_cpu_seconds", "processor time of the load driver, a round"],
  ["resident_bytes", "resident memory"], ["resident_peak_bytes", "resident memory, largest"],
  ["other_cores", "processors at other work within the round"],
];

// The figures that the result chart offers. The headline of most cases comes first.
function resultFigures() {
  const heads = data.cases.map((each) => each.headline);
  const often = (figure) => heads.filter((each) => each === figure).length;
  const known = new Map([...COMMON, ...heads.filter((each) => !COMMON.some(([c]) => c === each)).map((each) => [each, words(each)])]);
  const ordered = [...known].sort(([a], [b]) => often(b) - often(a));
  const others = figuresThere().filter(([figure]) => !known.has(figure) && !RESOURCES.some(([r]) => r === figure));
  return figuresThere([...ordered, ...others]);
}

function performanceCharts() {
  const figures = resultFigures();
  if (!figures.length) return;
  caseChart("results", "Results", figures);
  const families = new Map();
  for (const each of data.cases) families.set(each.family, [...(families.get(each.family) ?? []), each]);
  const sweeps = [...families].filter(([, cases]) => new Set(cases.map((each) => each.threads)).size > 1);
  if (sweeps.length) chart("threads", "By threads",
    [{ label: "cases", options: sweeps.map(([family]) => [family, family]) }, { label: "figure", options: figures }],
    (family, figure) => {
      const cases = [...families.get(family)].sort((a, b) => a.threads - b.threads);
      const curves = shown().map((name) => ({
        name, colour: colour(name),
        points: cases.flatMap((each) => {
          const spread = result(each.id, name)?.figures[figure];
          return spread ? [{ x: each.threads, y: spread.value, low: spread.low, high: spread.high }] : [];
        }),
      })).filter((curve) => curve.points.length);
      return curves.length ? lineChart(curves, unitOf(figure), "threads", family, cases.map((each) => each.threads)) : null;
    });
}

// A chart of a figure block by block (a round on each target), which shows drifts and outliers.
function blockChart() {
  const there = data.cases.filter((each) => names.some((name) => result(each.id, name)?.good > 2));
  if (!there.length) return;
  const figures = [["", "each case's headline"], ["cpu_us_per_transaction", "processor time, a transaction"],
    ["switches_per_transaction", "context switches, a transaction"], ["other_cores", "processors at other work"]];
  chart("blocks", "Block by block", [{ label: "case", options: there.map((each) => [each.id, each.label]) },
    { label: "figure", options: figures }], (id, chosen) => {
    const of = data.cases.find((each) => each.id === Number(id)), figure = chosen || of.headline;
    const curves = shown().map((name) => ({ name, colour: colour(name), faint: true,
      points: (result(of.id, name)?.rounds ?? []).filter((round) => figure in round.figures)
        .map((round) => ({ x: round.number + 1, y: round.figures[figure] })) })).filter((curve) => curve.points.length);
    return curves.length ? lineChart(curves, unitOf(figure), "block", of.label) : null;
  });
}

function seriesChart() {
  const there = [...new Set(data.results.flatMap((each) => each.rounds.flatMap((round) => Object.keys(round.series))))];
  const first = ["tps", "p95_ms", "qps"].filter((each) => there.includes(each));
  const series = [...first, ...there.filter((each) => !first.includes(each)).sort()];
  if (!series.length) return;
  const numbers = [...new Set(data.results.flatMap((each) => each.rounds.map((round) => round.number)))].sort((a, b) => a - b);
  chart("seconds", "Second by second", [
    { label: "case", options: data.cases.map((each) => [each.id, each.label]) },
    { label: "series", options: series.map((each) => [each, each]) },
    { label: "round", options: [["", "all blocks"], ...numbers.map((n) => [n, `block ${n + 1}`])] },
  ], (id, name, number) => {
    const curves = shown().flatMap((target) => (result(Number(id), target)?.rounds ?? [])
      .filter((round) => (number === "" || round.number === Number(number)) && round.series[name])
      .map((round) => ({ name: `${target}, block ${round.number + 1}`, colour: colour(target), faint: number === "",
        points: round.series[name].map(([x, y]) => ({ x, y })) })));
    const unit = name === "tps" || name === "qps" ? "1/s" : name === "p95_ms" ? "ms" : unitOf(name);
    return curves.length ? lineChart(curves, unit, "second", "second by second") : null;
  });
}

function latencyChart() {
  const parts = ["average", "p50", "p95", "p99"];
  const cases = data.cases.filter((each) => names.some((name) => result(each.id, name)?.figures.latency_p95_ms));
  if (cases.length) chart("latency", "Latency", [{ label: "case", options: cases.map((each) => [each.id, each.label]) },
    // The maximum is optional, because one long wait would shrink all other bars.
    { label: "part", options: [["", "up to 99 %"], ["max", "with the largest"]] }], (id, most) => {
    const groups = [...parts, ...(most ? [most] : [])].map((part) => ({
      label: { average: "average", p50: "50 %", p95: "95 %", p99: "99 %", max: "largest" }[part],
      values: shown().flatMap((name) => {
        const found = result(Number(id), name), figure = `latency_${part}_ms`, spread = found?.figures[figure];
        return spread ? [{ name, colour: colour(name), spread, text: format(spread.value, "ms"),
          tip: spreadText(spread, "ms") }] : [];
      }),
    })).filter((group) => group.values.length);
    return groups.length ? barChart(groups, "ms", "latency") : null;
  });
}

function resourceChart() {
  const figures = figuresThere(RESOURCES);
  if (figures.length) caseChart("resources", "Device, processor, memory", figures);
}

const SPACES = {
  data_bytes: "tables with their indexes", files_bytes: "all files, with logs",
  ssd_4k_bytes: "all files on an SSD that compresses 4 KiB blocks", ssd_8k_bytes: "… 8 KiB blocks",
  ssd_16k_bytes: "… 16 KiB blocks", csv_bytes: "CSV export of the rows, plain", csv_lz4_bytes: "… under lz4",
  csv_gzip_bytes: "… under gzip", csv_zstd_bytes: "… under zstd", load_seconds: "time to load",
  rest_seconds: "time to come to rest",
};

const APPORTIONED = "MyRocks tells what its tables take before compression only: the bytes of its files are shared out " +
  "in that proportion, no table of its was measured by itself.";
const TABLES_NOTE = "Tables without logs. Rows that an engine has only in memory and in its log are in no table yet: " +
  "a size that stays the same may belong to data that grew. All files, with logs, are behind it and a figure of their own.";

// The text of a table size with the size of all files at the same moment.
function withFiles(each) {
  const same = (other) => ["dataset", "target", "moment"].every((key) => other[key] === each[key]);
  const files = data.state.find((other) => other.name === "files_bytes" && same(other));
  return format(each.value, "B") + (files ? ` · all files ${format(files.value, "B")}` : "");
}

// Groups of bars for sizes and times of loads. `labelOf` returns the group of such a figure, or
// null to leave it out; `textOf` returns the text at its bar.
function stateGroups(labelOf, textOf = (each) => format(each.value, each.unit)) {
  const groups = new Map();
  for (const each of data.state) {
    const label = hidden.has(each.target) ? null : labelOf(each);
    if (label === null) continue;
    const value = { name: each.target, colour: colour(each.target), spread: single(each.value), text: textOf(each) };
    groups.set(label, [...(groups.get(label) ?? []), value]);
  }
  const place = (value) => names.indexOf(value.name);
  return [...groups].map(([label, values]) => ({ label, values: values.sort((a, b) => place(a) - place(b)) }));
}

function space() {
  const there = new Set(data.state.map((each) => each.name));
  const kinds = [...new Set([...Object.keys(SPACES), ...there])].filter((each) => there.has(each) && !each.includes("."));
  if (!kinds.length) return;
  const moment = (each) => (MOMENTS[each.moment] ?? each.moment) + (each.unlike && ` (${each.unlike})`);
  const place = (each) => `${each.dataset}, ${moment(each)}`;
  chart("space", "Space, loads", [{ label: "figure", options: kinds.map((each) => [each, SPACES[each] ?? words(each)]) }], (figure) => {
    const groups = stateGroups((each) => each.name === figure ? place(each) : null, figure === "data_bytes" ? withFiles : undefined);
    const drawn = groups.length ? barChart(groups, unitOf(figure), "space") : null;
    return drawn && figure === "data_bytes" ? [make("p", { class: "note" }, TABLES_NOTE), drawn] : drawn;
  });
  const tables = [...new Set(data.state.filter((each) => each.name.startsWith("table_bytes.")).map(place))];
  if (tables.length) chart("tables", "Space by table", [{ label: "data", options: tables.map((each) => [each, each]) }], (which) => {
    const groups = stateGroups((each) => each.name.startsWith("table_bytes.") && place(each) === which
      ? each.name.slice("table_bytes.".length) : null);
    const drawn = groups.length ? barChart(groups, "B", "space by table") : null;
    return drawn && data.targets.some((each) => each.spec === "engine:rocksdb")
      ? [make("p", { class: "note" }, APPORTIONED), drawn] : drawn;
  });
  const rows = data.state.map((each) => [each.dataset, each.target, moment(each),
    each.name, { text: format(each.value, each.unit), value: each.value }]);
  const heads = [{ text: "data" }, { text: "engine" }, { text: "when" }, { text: "figure" }, { text: "value", number: true }];
  document.getElementById("space").append(make("details", {}, make("summary", {}, "All figures, each table too"), sortable(heads, rows)));
}

// The main table, with the ratios to the reference.
function ratioTable() {
  if (!data.conclusions.length) return;
  const heads = [{ text: "case" }, { text: "engine" }, { text: "figure" }, { text: `÷ ${data.reference}`, number: true },
    { text: "95 % interval", number: true }, { text: "±", number: true }, { text: "" }, { text: "blocks", number: true },
    { text: "all transactions", number: true }, { text: "processor time", number: true }, { text: "switches", number: true }];
  const published = data.conclusions.some((each) => each.published);
  if (published) heads.push({ text: "published", number: true });
  const cell = (ratio) => ratio ? { text: ratioText(ratio), value: ratio.value } : null;
  const wanted = `±${(100 * data.within).toFixed(1)} %`;
  section("ratios", "Ratios", make("p", {}, "In a typical block; all transactions: of all blocks, with every stall in them. " +
    "Processor time and context switches are the server's, for a transaction, the first with what was put off until after the last block." +
    (published ? ` Published: ${data.publishedBy}, on other machines.` : "")),
    sortable(heads, data.conclusions.map((each) => {
      const { ratio } = each, half = ratio.count > 2 ? (ratio.high - ratio.low) / 2 / ratio.value : null;
      return [each.case, each.target, words(each.figure), { text: `×${ratio.value.toFixed(3)}`, value: ratio.value },
        { text: ratio.count > 1 ? `${ratio.low.toFixed(3)}…${ratio.high.toFixed(3)}` : "–", value: ratio.low },
        { text: half === null ? "–" : `±${(100 * half).toFixed(1)} %`, value: half },
        each.concluded ? `concluded at ${wanted}` : `not concluded at ${wanted}`, { text: String(ratio.count), value: ratio.count },
        cell(each.whole), cell(each.cpu), cell(each.switches),
        ...(published ? [each.published ? { text: `×${each.published.toFixed(2)}`, value: each.published } : null] : [])];
    })));
}

// The table of all results. The compared figures and the errors come first, so that they are
// visible without scrolling.
function resultTable() {
  const latencies = [["latency_average_ms", "average, ms"], ["latency_p95_ms", "95 %, ms"], ["latency_p99_ms", "99 %, ms"]];
  const others = [["latency_p999_ms", "99.9 %, ms"], ["tps", "transactions/s"], ["transactions"], ["queries"], ["seconds", "time, s"], ["threads"]];
  const columns = (figures) => figures.map(([name, text]) => ({ text: text ?? name, number: true }));
  const heads = [{ text: "case" }, { text: "engine" }, { text: "headline" }, { text: "median", number: true },
    { text: "95 % interval", number: true }, { text: `to ${data.reference}`, number: true },
    ...columns([...latencies, ["errors"], ["retries"], ["rounds"], ...others])];
  const rows = data.cases.flatMap((each) => names.flatMap((name) => {
    const found = result(each.id, name);
    if (!found) return [];
    const number = (value, unit) => ({ text: format(value, unit), value: value ?? null });
    const main = found.figures[each.headline], ratio = found.ratios[each.headline];
    const figureCell = (figure) => number(figure === "threads" ? each.threads : found.figures[figure]?.value);
    return [[each.label, name,
      words(each.headline), number(main?.value, unitOf(each.headline)),
      main ? { text: `${format(main.low)}…${format(main.high)}`, value: main.high - main.low } : null,
      { text: ratio ? `×${ratio.value.toFixed(2)}` : "–", value: ratio?.value ?? null },
      ...latencies.map(([figure]) => figureCell(figure)),
      number(found.errors), number(found.retries), number(found.good),
      ...others.map(([figure]) => figureCell(figure))]];
  }));
  section("table", "Table", make("p", {}, "Medians and their intervals; how far two may be told apart is in the ratios."), sortable(heads, rows));
}

function partTable() {
  const rows = data.results.flatMap((each) => {
    const label = data.cases.find((one) => one.id === each.case).label;
    return each.rounds.flatMap((round) => round.parts.map((part) => [label, each.target, part.name,
      { text: String(round.number + 1), value: round.number },
      ...["count", "average_ms", "p95_ms", "p99_ms", "max_ms", "errors", "retries"].map((key) => ({
        text: format(part[key]), value: part[key] }))]));
  });
  if (!rows.length) return;
  const heads = [{ text: "case" }, { text: "engine" }, { text: "part" }, { text: "block", number: true },
    ...["count", "average, ms", "95 %, ms", "99 %, ms", "largest, ms", "errors", "retries"].map((text) => ({ text, number: true }))];
  section("parts", "Parts", make("p", {}, "Kinds of transactions or statements, block by block."), sortable(heads, rows));
}

function prices() {
  if (!data.costs.length) return;
  const kinds = [["per_million", "a million transactions"],
    ["per_tb_month", `a TB (as ${data.reference} stores it) for a month`]];
  const offers = [...new Set(data.costs.map((each) => each.offer))];
  chart("price", "Price", [{ label: "offer", options: offers.map((each) => [each, each]) },
    { label: "price", options: kinds }], (offer, kind) => {
    const rows = data.costs.filter((each) => each.offer === offer && each[kind] !== null && !hidden.has(each.target));
    const groups = [...new Set(rows.map((each) => each.case))].map((label) => ({ label,
      values: rows.filter((each) => each.case === label).map((each) => ({ name: each.target,
        colour: colour(each.target), spread: single(each[kind]) })) }));
    return groups.length ? barChart(groups, rows[0].currency, "price") : null;
  });
  const heads = [{ text: "offer" }, { text: "case" }, { text: "engine" },
    ...kinds.map(([, text]) => ({ text, number: true })), { text: "break-even" }];
  const money = (value, currency) => ({ text: value === null ? "–" : `${value.toPrecision(4)} ${currency}`, value });
  document.getElementById("price").append(sortable(heads, data.costs.map((each) => [each.offer, each.case, each.target,
    money(each.per_million, each.currency), money(each.per_tb_month, each.currency), each.break_even])));
}

function settings() {
  const all = [...new Set(data.targets.flatMap((target) => Object.keys(target.settings)))].sort();
  const first = [
    ["version", ...data.targets.map((target) => target.version)],
    ["memory", ...data.targets.map((target) => format(target.memory_bytes, "B"))],
    ["a sync for each commit", ...data.targets.map((target) => ({ true: "yes", false: "no" })[target.durable] ?? "unknown")],
    ["target", ...data.targets.map((target) => target.spec)],
  ];
  const rows = all.map((name) => [name, ...data.targets.map((target) => target.settings[name] ?? null)]);
  const place = make("div");
  const differs = (row) => new Set(row.slice(1).filter((each) => each !== null)).size > 1;
  const search = make("input", { type: "search", placeholder: "part of a name", "aria-label": "part of a name",
    oninput: () => fill() });
  const fill = () => place.replaceChildren(sortable([{ text: "setting" }, ...names.map((text) => ({ text }))],
    [...first, ...rows].filter((row) => row[0].includes(search.value.toLowerCase())), differs));
  section("settings", "Settings", make("div", { class: "controls" }, search, "bold: servers differ"), place);
  fill();
}

function repeat() {
  const lines = Object.entries(data.commands).flatMap(([name, command]) => [make("div", {}, name), make("pre", {}, command)]);
  section("repeat", "Repeat it", ...lines);
}

about();
box("red", "Not a fair comparison", data.breaches);
box("red", "Failed", data.failures);
box("amber", "Bounded by the load driver", data.bounds);
box("amber", "Not concluded", data.open);
box("amber", "Lumps", data.lumps);
box("neutral", "Not run", data.unsupported);
ratioTable();
performanceCharts();
blockChart();
seriesChart();
latencyChart();
resourceChart();
space();
resultTable();
partTable();
prices();
settings();
repeat();
document.documentElement.dataset.ready = "yes";
