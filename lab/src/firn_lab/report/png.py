"""Pictures for documents: throughput, latency, device bytes, space, curves by threads."""

from __future__ import annotations

from pathlib import Path

from firn_lab.intervals import Interval, single
from firn_lab.report.drawing import Bar, Groups, bars, curves, number
from firn_lab.report.report_data import Report, family, threads_of
from firn_lab.store.rows import CaseRow

_MIB = 2.0**20
_MOMENTS = {"load": "after load", "update": "after updates", "rest": "at rest"}
_MEDIAN, _MEAN = (f"({word}; whiskers: 95 % interval)" for word in ("median", "mean"))
_SPACE = (
    "MiB of tables with their indexes, without logs (in parentheses: all files, with logs)\n"
    "what an engine has only in memory and in its log is in no table yet"
)
# The bar charts. Each has the name of the file, the figure to draw, the label of the axis and the
# divisor of the values. For device bytes, `pictures` draws the settled figure, which includes
# deferred work, if there is one.
_BARS = (
    ("throughput", "tps", f"transactions/s {_MEDIAN}", 1.0),
    ("latency", "latency_p95_ms", f"95 % latency, ms {_MEDIAN}", 1.0),
    (
        "device-written",
        "device_written_bytes_per_transaction",
        f"KiB written a transaction, until at rest {_MEAN}",
        1024.0,
    ),
    (
        "device-read",
        "device_read_bytes_per_transaction",
        f"KiB read a transaction, until at rest {_MEAN}",
        1024.0,
    ),
)
# The curves by thread count: the name of the file, the figure, the label of the axis.
_CURVES = (
    ("threads", "tps", "transactions/s"),
    ("latency-threads", "latency_p999_ms", "99.9 % latency, ms"),
)


def pictures(report: Report, directory: Path) -> list[Path]:
    """Draws every picture for which the run has numbers; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [target.name for target in report.targets]
    reference = report.reference.name if report.reference is not None else ""
    made = []
    for name, figure, words, scale in _BARS:
        groups = performances(report, figure)
        if groups:
            path = directory / f"{name}.png"
            made.append(bars(groups, names, reference, words, scale, path))
    for sweep, (name, cases) in enumerate(sweeps(report).items(), start=1):
        threads = [threads_of(case) for case in cases]
        for file, figure, words in _CURVES:
            found = {
                target.name: [
                    (threads_of(case), value)
                    for case in cases
                    if (value := _figure(report, case, target.id, figure)) is not None
                ]
                for target in report.targets
            }
            if any(found.values()):
                path = directory / f"{file}-{sweep}.png"
                made.append(curves(found, threads, name, words, path))
    groups = spaces(report)
    if groups:
        path = directory / "space.png"
        made.append(bars(groups, names, reference, _SPACE, _MIB, path))
    return made


def performances(report: Report, figure: str) -> Groups:
    """A figure with its ratio, for the cases where it is above zero on any target."""
    groups: dict[str, dict[str, Bar]] = {}
    for each in report.results:
        name = each.settled(figure)
        if name in each.figures:
            bar = Bar(each.figures[name], report.ratio(each, name))
            groups.setdefault(each.case.label, {})[each.target.name] = bar
    return {
        label: group
        for label, group in groups.items()
        if any(each.value.high > 0 for each in group.values())
    }


def sweeps(report: Report) -> dict[str, list[CaseRow]]:
    """Families of several cases that differ only in their thread count and have a throughput."""
    found: dict[str, list[CaseRow]] = {}
    for case in report.cases:
        if any(_figure(report, case, target.id, "tps") for target in report.targets):
            found.setdefault(family(case), []).append(case)
    return {name: sorted(cases, key=threads_of) for name, cases in found.items() if len(cases) > 1}


def _figure(report: Report, case: CaseRow, target: int, name: str) -> Interval | None:
    for each in report.results:
        if (each.case.id, each.target.id) == (case.id, target):
            return each.figures.get(name)
    return None


def spaces(report: Report) -> Groups:
    """Comparable table sizes by dataset and moment, with the size of all files as a note.

    The note matters because rows that are only in a log are in no table yet.
    """
    names = {target.id: target.name for target in report.targets}
    groups: dict[str, dict[str, Bar]] = {}
    state = report.store.state(report.run.id)
    files = {(s.dataset, s.moment, s.target): s.value for s in state if s.name == "files_bytes"}
    for each in state:
        if (
            each.name == "data_bytes"
            and each.target in names
            and report.comparable(each.dataset, each.moment)
        ):
            label = f"{each.dataset}, {_MOMENTS.get(each.moment, each.moment)}"
            whole = files.get((each.dataset, each.moment, each.target))
            note = "" if whole is None else f" ({number(whole / _MIB)})"
            groups.setdefault(label, {})[names[each.target]] = Bar(single(each.value), note=note)
    return groups
