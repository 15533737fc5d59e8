// Clicks through the report like a reader and logs the changes; the test then reads the log.
const log = {};
const cells = (n) => [...document.querySelectorAll("#table tbody tr")].map((row) => row.children[n].textContent);
const head = [...document.querySelectorAll("#table th")].findIndex((th) => th.textContent === "median");
log.before = cells(head);
document.querySelectorAll("#table th button")[head].click();
log.ascending = cells(head);
document.querySelectorAll("#table th button")[head].click();
log.descending = cells(head);
for (const id of ["results", "threads", "blocks", "seconds", "latency", "resources", "space", "tables", "price"]) {
  const chart = document.querySelector(`#${id} .chart`);
  log[id] = { bars: chart.querySelectorAll("rect.bar").length, curves: chart.querySelectorAll("polyline.curve").length,
    bad: (chart.innerHTML.match(/NaN|undefined|Infinity/g) ?? []).length };
}
log.ratios = [...document.querySelectorAll("#ratios tbody tr")].map((row) => row.textContent);
log.latencies = [...document.querySelectorAll("#latency svg text.label")].map((each) => each.textContent);
log.halo = getComputedStyle(document.querySelector("#results svg text.label")).paintOrder;
const edge = document.querySelector("#table").getBoundingClientRect().right;
log.seen = [...document.querySelectorAll("#table th")].filter((each) => each.getBoundingClientRect().right <= edge)
  .map((each) => each.textContent);
log.notes = Object.fromEntries(["space", "tables"].map((id) => [id, document.querySelector(`#${id} .note`)?.textContent ?? ""]));
const select = document.querySelector("#results select");
const texts = () => document.querySelector("#results .chart").textContent;
const first = texts();
log.relative = first;
const scale = document.querySelectorAll("#results select")[1];
scale.value = "";
scale.dispatchEvent(new Event("change"));
log.measured = texts();
select.value = "latency_p95_ms";
select.dispatchEvent(new Event("change"));
log.redrawn = texts() !== first;
document.querySelector('#results [data-target="firn"]').click();
log.without = document.querySelectorAll("#results rect.bar").length;
for (const each of document.querySelectorAll("select"))
  for (const option of each.options) { each.value = option.value; each.dispatchEvent(new Event("change")); }
const setting = document.querySelector("#settings input");
setting.value = "own";
setting.dispatchEvent(new Event("input"));
log.settings = [...document.querySelectorAll("#settings tbody tr")].map((row) => [row.className, row.textContent]);
const out = document.createElement("pre");
out.id = "log";
out.textContent = JSON.stringify(log);
document.body.append(out);
