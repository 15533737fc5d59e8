"use strict";
// The page of a run: sections of controls, a chart and a table.

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

// A chart that is drawn anew when a choice or a target changes.
function chart(id, title, choices, draw) {
  const place = make("div", { class: "chart" });
  const selects = choices.map(({ label, options }) => make("select",
    { "aria-label": label, onchange: () => redraw() },
    ...options.map(([value, text]) => make("option", { value }, text))));
  const redraw = () => {
    const drawn = draw(...selects.map((select) => select.value));
    place.replaceChildren(drawn ?? make("p", {}, "No numbers for this choice."));
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
const single = (value) => ({ median: value, low: value, high: value, count: 1 });

function figuresThere(wanted) {
  const there = new Set(data.results.flatMap((each) => Object.keys(each.figures)));
  const list = wanted ? wanted.filter(([figure]) => there.has(figure)) : [...there].sort().map((each) => [each, each]);
  return list;
}

function byCase(figure, cases = data.cases) {
  return cases.map((each) => ({
    label: each.label,
    values: shown().flatMap((name) => {
      const spread = result(each.id, name)?.figures[figure];
      return spread ? [{ name, colour: colour(name), spread }] : [];
    }),
  })).filter((group) => group.values.length);
}

function about() {
  const { run } = data, machine = run.machine, budget = run.budget;
  document.getElementById("about").textContent = [
    `${run.started_at.slice(0, 16).replace("T", " ")} UTC: ${run.status}${run.message ? ", " + run.message : ""}`,
    `${machine.processor ?? "?"}, ${machine.cores ?? "?"} cores, ${format(machine.memory_bytes ?? 0, "B")}`,
    `${machine.system ?? ""} ${machine.kernel ?? ""}`, machine.file_system ?? "",
    `${format(budget.memory_bytes, "B")} for each engine, ` +
      (budget.durable ? "a sync for each commit" : "a sync a second") +
      (budget.direct_io ? ", past the page cache" : ", through the page cache"),
    `${run.rounds} rounds: medians, whiskers from the smallest to the largest`,
  ].filter(Boolean).join(" · ");
}

function performanceCharts() {
  const common = [
    ["tps", "transactions/s"], ["qps", "queries/s"], ["latency_average_ms", "latency: average"],
    ["latency_p50_ms", "latency: 50 %"], ["latency_p95_ms", "latency: 95 %"], ["latency_p99_ms", "latency: 99 %"],
    ["latency_max_ms", "latency: largest"], ["seconds", "seconds"],
  ];
  const own = [...new Set(data.cases.map((each) => each.headline))].filter((each) => !common.some(([c]) => c === each));
  const figures = figuresThere([...own.map((each) => [each, each]), ...common]);
  if (!figures.length) return;
  chart("results", "Results", [{ label: "figure", options: figures }], (figure) => {
    const groups = byCase(figure);
    return groups.length ? barChart(groups, unitOf(figure), "results") : null;
  });
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
          return spread ? [{ x: each.threads, y: spread.median, low: spread.low, high: spread.high }] : [];
        }),
      })).filter((curve) => curve.points.length);
      return curves.length ? lineChart(curves, unitOf(figure), "threads", family, cases.map((each) => each.threads)) : null;
    });
}

function seriesChart() {
  const there = [...new Set(data.results.flatMap((each) => each.rounds.flatMap((round) => Object.keys(round.series))))];
  const first = ["tps", "p95_ms", "qps"].filter((each) => there.includes(each));
  const series = [...first, ...there.filter((each) => !first.includes(each)).sort()];
  if (!series.length) return;
  chart("seconds", "Second by second", [
    { label: "case", options: data.cases.map((each) => [each.id, each.label]) },
    { label: "series", options: series.map((each) => [each, each]) },
    { label: "round", options: [["", "all rounds"], ...Array.from({ length: data.run.rounds }, (_, n) => [n, `round ${n + 1}`])] },
  ], (id, name, number) => {
    const curves = shown().flatMap((target) => (result(Number(id), target)?.rounds ?? [])
      .filter((round) => (number === "" || round.number === Number(number)) && round.series[name])
      .map((round) => ({ name: `${target}, round ${round.number + 1}`, colour: colour(target), faint: number === "",
        points: round.series[name].map(([x, y]) => ({ x, y })) })));
    const unit = name === "tps" || name === "qps" ? "1/s" : name === "p95_ms" ? "ms" : unitOf(name);
    return curves.length ? lineChart(curves, unit, "second", "second by second") : null;
  });
}

function latencyChart() {
  const parts = ["average", "p50", "p95", "p99", "max"];
  const cases = data.cases.filter((each) => names.some((name) => result(each.id, name)?.figures.latency_p95_ms));
  if (cases.length) chart("latency", "Latency", [{ label: "case", options: cases.map((each) => [each.id, each.label]) }], (id) => {
    const groups = parts.map((part) => ({
      label: { average: "average", p50: "50 %", p95: "95 %", p99: "99 %", max: "largest" }[part],
      values: shown().flatMap((name) => {
        const spread = result(Number(id), name)?.figures[`latency_${part}_ms`];
        return spread ? [{ name, colour: colour(name), spread }] : [];
      }),
    })).filter((group) => group.values.length);
    return groups.length ? barChart(groups, "ms", "latency") : null;
  });
}

function resourceChart() {
  const figures = figuresThere([
    ["device_written_bytes_per_transaction", "written to the device, a transaction"],
    ["device_read_bytes_per_transaction", "read from the device, a transaction"],
    ["device_written_bytes", "written by the server, a round"], ["device_read_bytes", "read by the server, a round"],
    ["disk_written_bytes", "the device's own count of writes"], ["disk_read_bytes", "the device's own count of reads"],
    ["disk_writes_per_transaction", "write requests of the device, a transaction"],
    ["disk_reads_per_transaction", "read requests of the device, a transaction"],
    ["cpu_us_per_transaction", "processor time, a transaction"],
    ["resident_bytes", "resident memory"], ["resident_peak_bytes", "resident memory, largest"],
  ]);
  if (figures.length) chart("resources", "Device, processor, memory", [{ label: "figure", options: figures }], (figure) => {
    const groups = byCase(figure);
    return groups.length ? barChart(groups, unitOf(figure), "resources") : null;
  });
}

function space() {
  const kinds = [...new Set(data.state.map((each) => each.name).filter((each) => !each.includes(".")))];
  if (!kinds.length) return;
  const first = kinds.includes("data_bytes") ? ["data_bytes"] : [];
  const order = [...first, ...kinds.filter((each) => each !== "data_bytes")];
  chart("space", "Space", [{ label: "figure", options: order.map((each) => [each, each.replaceAll("_", " ")]) }], (figure) => {
    const groups = new Map();
    for (const each of data.state) {
      if (each.name !== figure || hidden.has(each.target)) continue;
      const label = `${each.dataset}, ${MOMENTS[each.moment] ?? each.moment}`;
      groups.set(label, [...(groups.get(label) ?? []), { name: each.target, colour: colour(each.target), spread: single(each.value) }]);
    }
    const list = [...groups].map(([label, values]) => ({ label, values }));
    return list.length ? barChart(list, unitOf(figure), "space") : null;
  });
  const rows = data.state.map((each) => [each.dataset, each.target, MOMENTS[each.moment] ?? each.moment,
    each.name, { text: format(each.value, each.unit), value: each.value }]);
  const heads = [{ text: "data" }, { text: "engine" }, { text: "when" }, { text: "figure" }, { text: "value", number: true }];
  document.getElementById("space").append(make("details", {}, make("summary", {}, "All figures, each table too"), sortable(heads, rows)));
}

// Of the table's columns those that a reader compares; the others are sizes of the work.
const COMPARED = /^tps$|^latency_/;

function resultTable() {
  const figures = [["threads"], ["transactions"], ["queries"], ["seconds", "s"], ["tps", "1/s"],
    ["latency_average_ms", "average, ms"], ["latency_p95_ms", "95 %, ms"], ["latency_p99_ms", "99 %, ms"]];
  const heads = [{ text: "case" }, { text: "engine" },
    ...figures.map(([name, words]) => ({ text: words ?? name, number: true })),
    { text: "headline" }, { text: "median", number: true }, { text: "smallest…largest", number: true },
    { text: `to ${data.reference}`, number: true }, { text: "errors", number: true },
    { text: "retries", number: true }, { text: "rounds", number: true }];
  const rows = data.cases.flatMap((each) => names.flatMap((name) => {
    const found = result(each.id, name);
    if (!found) return [];
    const number = (value, unit) => ({ text: format(value, unit), value: value ?? null });
    const main = found.figures[each.headline], base = result(each.id, data.reference)?.figures[each.headline];
    const ratio = main && base && base.median ? main.median / base.median : null;
    const doubt = (figure) => found.doubts.includes(figure) ? " ?" : "";
    const good = found.rounds.filter((round) => round.status === "ok").length;
    const figureCell = (figure) => {
      const value = figure === "threads" ? each.threads : found.figures[figure]?.median;
      return { text: format(value) + (COMPARED.test(figure) ? doubt(figure) : ""), value: value ?? null };
    };
    return [[each.label, name,
      ...figures.map(([figure]) => figureCell(figure)),
      each.headline, number(main?.median, unitOf(each.headline)),
      main ? { text: `${format(main.low)}…${format(main.high)}`, value: main.high - main.low } : null,
      { text: ratio === null ? "–" : `×${ratio.toFixed(2)}${doubt(each.headline)}`, value: ratio },
      number(found.errors), number(found.retries), { text: `${good} of ${data.run.rounds}`, value: good }]];
  }));
  section("table", "Table", make("p", {}, "Medians. “?”: too few rounds, or they spread wider than the difference; conclude nothing."), sortable(heads, rows));
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
  const heads = [{ text: "case" }, { text: "engine" }, { text: "part" }, { text: "round", number: true },
    ...["count", "average, ms", "95 %, ms", "99 %, ms", "largest, ms", "errors", "retries"].map((text) => ({ text, number: true }))];
  section("parts", "Parts", make("p", {}, "Kinds of transactions or statements, round by round."), sortable(heads, rows));
}

function priceTable() {
  if (!data.costs.length) return;
  const heads = [{ text: "offer" }, { text: "case" }, { text: "engine" }, { text: "a million transactions", number: true },
    { text: `a TB (as ${data.reference} stores it) for a month`, number: true }, { text: "break-even" }];
  const money = (value, currency) => ({ text: value === null ? "–" : `${value.toPrecision(4)} ${currency}`, value });
  section("price", "Price", sortable(heads, data.costs.map((each) => [each.offer, each.case, each.target,
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
box("red", "Not a fair comparison", data.warnings.map((each) => `${each.rule}: ${each.message}`));
box("red", "Fewer rounds count than show the spread", data.shortages);
box("red", "Failed", data.failures);
box("amber", "Conclude nothing", data.doubts);
box("neutral", "Not run", data.unsupported);
performanceCharts();
seriesChart();
latencyChart();
resourceChart();
space();
resultTable();
partTable();
priceTable();
settings();
repeat();
document.documentElement.dataset.ready = "yes";
