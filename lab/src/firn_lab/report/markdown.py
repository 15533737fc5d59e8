"""The run as Markdown, with the usual columns: threads, transactions, queries, time, latencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firn_lab.intervals import Interval
from firn_lab.report.conclusions import (
    CPU,
    SWITCHES,
    conclusions,
    published_text,
    ratio_text,
)
from firn_lab.report.costs import HEAD, cells, costs
from firn_lab.report.pool import HEAD as POOL_HEAD
from firn_lab.report.pool import NOTE as POOL_NOTE
from firn_lab.report.pool import pool_rows
from firn_lab.report.remarks import (
    bounds,
    breaches,
    commands,
    failures,
    lumps,
    open_questions,
    unsupported,
)
from firn_lab.report.report_data import UNLIKE, Report, Result, threads_of
from firn_lab.report.units import bytes_text, number_text

LATENCIES = ("latency_average_ms", "latency_p95_ms", "latency_p99_ms", "latency_p999_ms")
_SPACES = {
    "data_bytes": "tables",
    "files_bytes": "all files",
    "ssd_4k_bytes": "SSD, 4 KiB",
    "ssd_8k_bytes": "8 KiB",
    "ssd_16k_bytes": "16 KiB",
    "csv_bytes": "CSV",
    "csv_lz4_bytes": "lz4",
    "csv_gzip_bytes": "gzip",
    "csv_zstd_bytes": "zstd",
}
_RATIO_NOTE = (
    "The ratio is that of a typical block; all transactions are those of all blocks, with every "
    "stall in them. Processor time and context switches are the server's, for a transaction; the "
    "first with what was put off until after the last block."
)
_SPACE_NOTE = (
    "Tables are without logs: what an engine has only in memory and in its log is in no table yet; "
    "all files are with logs."
)


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole page; `pictures` are names of files in the same directory."""
    run = report.run
    lines = [
        f"# {run.title}, run {run.id}",
        "",
        f"{run.started_at[:16]} UTC, {run.status}{': ' * bool(run.message)}{run.message}. "
        f"{_machine(report)}. Ratios are of blocks of short rounds that stand next to each other; "
        "in parentheses are intervals of 95 %.",
        "",
    ]
    lines += _box("Unfair", breaches(report))
    lines += _box("Bounded by the load driver", bounds(report))
    lines += _box("Failed", failures(report))
    lines += _box("Not concluded", open_questions(report))
    lines += _box("Lumps", lumps(report))
    lines += _box("Not run", unsupported(report))
    lines += _ratios(report)
    lines += _pool(report)
    for workload in dict.fromkeys(case.workload for case in report.cases):
        lines += [f"## {workload}", ""]
        lines += _performance(report, workload)
    lines += _space(report)
    for name in pictures:
        lines += [f"![{name.removesuffix('.png')}]({name})", ""]
    lines += _costs(report)
    lines += ["## Repeat it", "", "```", *commands(report).values(), "```", ""]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table. Pipes in cells are escaped, because they would end the cell."""
    shape = ["---" if n == 0 else "--:" for n in range(len(head))]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([*head], shape, *cells)] + [""]


def _box(title: str, lines: Sequence[str]) -> list[str]:
    return [f"**{title}**", "", *(f"- {line}" for line in lines), ""] if lines else []


def _machine(report: Report) -> str:
    machine, budget = report.run.machine, report.run.budget
    durable = "a sync for each commit" if budget["durable"] else "a sync a second"
    more = ", MariaDB's thread pool" if budget["thread_pool"] else ""
    more += ", a new server for each round" if budget.get("new_servers") else ""
    return (
        f"{machine.get('processor', '')}, {machine.get('cores', '?')} cores, "
        f"{bytes_text(float(machine.get('memory_bytes', 0)))} of memory; "
        f"{bytes_text(float(budget['memory_bytes']))} for each engine, {durable}{more}"
    )


def _ratios(report: Report) -> list[str]:
    """The main table: ratios to the reference."""

    def cell(value: Interval | None) -> str:
        return "–" if value is None else ratio_text(value)

    rows = [
        [
            each.result.case.label,
            each.result.target.name,
            each.result.case.headline,
            ratio_text(each.ratio),
            f"±{each.ratio.half_width:.1%}" if each.ratio.half_width < float("inf") else "–",
            f"concluded at ±{each.within:.1%}" if each.concluded else "not concluded",
            str(each.ratio.count),
            cell(each.whole),
            cell(each.cpu),
            cell(each.switches),
            *([published_text(each.published)] if report.published else []),
        ]
        for each in conclusions(report)
    ]
    if not rows:
        return []
    name = report.reference.name if report.reference else ""
    head = ["case", "engine", "figure", f"÷ {name}", "±", "", "blocks", "all transactions",
            "processor time", "switches", *(["published"] if report.published else [])]  # fmt: skip
    by = f"Published: {report.published_by}, on other machines."
    note = [_RATIO_NOTE, "", *([by, ""] if report.published else [])]
    return ["## Ratios", "", *note, *table(head, rows)]


def _pool(report: Report) -> list[str]:
    rows = pool_rows(report)
    return ["## Reads", "", POOL_NOTE, "", *table(POOL_HEAD, rows)] if rows else []


def _performance(report: Report, workload: str) -> list[str]:
    head = ["case", "engine", "threads", "transactions", "queries", "time, s", "transactions/s",
            "average, ms", "95 %, ms", "99 %, ms", "99.9 %, ms", "processor, µs", "switches",
            "resident", "errors", "retries", "rounds"]  # fmt: skip
    cases = [case for case in report.cases if case.workload == workload]
    extra = [case.headline for case in cases if case.headline not in ("tps", "seconds")]
    extra = list(dict.fromkeys(extra))
    rows = [
        _row(each, extra)
        for case in cases
        for target in report.targets
        if (each := report.result(case, target)) is not None
    ]
    return table(head + extra, rows)


def _row(result: Result, extra: Sequence[str]) -> list[str]:
    figures = result.figures
    resident = figures.get("resident_peak_bytes")

    def plain(name: str) -> str:
        return number_text(figures[name].value) if name in figures else "–"

    return [
        result.case.label,
        result.target.name,
        str(threads_of(result.case)),
        plain("transactions"),
        plain("queries"),
        plain("seconds"),
        _interval(figures.get("tps")),
        *(plain(name) for name in (*LATENCIES, CPU, SWITCHES)),
        bytes_text(resident.value) if resident is not None else "–",
        f"{result.total('errors'):,.0f}",
        f"{result.total('retries'):,.0f}",
        str(len(result.good)),
        *(_interval(figures.get(name)) for name in extra),
    ]


def _interval(value: Interval | None) -> str:
    if value is None:
        return "–"
    low, high = number_text(value.low), number_text(value.high)
    return f"{number_text(value.value)} ({low}…{high})"


def _space(report: Report) -> list[str]:
    names = {target.id: target.name for target in report.targets}
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for each in report.store.state(report.run.id):
        values.setdefault((each.dataset, each.moment, each.target), {})[each.name] = each.value
    taken = [name for name in _SPACES if any(name in found for found in values.values())]
    rows = [
        [dataset, moment + f" ({UNLIKE})" * (not report.comparable(dataset, moment)), names[target]]
        + [bytes_text(found[name]) if name in found else "–" for name in taken]
        + [number_text(found["load_seconds"]) if "load_seconds" in found else "–"]
        for (dataset, moment, target), found in values.items()
        if target in names
    ]
    head = ["data", "when", "engine", *(_SPACES[name] for name in taken), "load, s"]
    return ["## Space", "", _SPACE_NOTE, "", *table(head, rows)] if rows else []


def _costs(report: Report) -> list[str]:
    rows = costs(report)
    return ["## Price", "", *table(HEAD, map(cells, rows))] if rows else []
