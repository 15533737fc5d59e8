"""Pictures for documents: throughput by threads, throughput, latency, device bytes, space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from firn_lab.report.colours import COLOURS
from firn_lab.report.data import Report, family, threads_of
from firn_lab.store import Spread
from firn_lab.store.rows import CaseRow

matplotlib.use("Agg")
from matplotlib import pyplot

_MOMENTS = {"load": "after load", "update": "after updates", "rest": "at rest"}
_BARS = (
    ("throughput", "tps", "transactions/s", 1.0),
    ("latency", "latency_p95_ms", "95 % latency, ms", 1.0),
    ("device-written", "device_written_bytes_per_transaction", "KiB written a transaction", 1024.0),
    ("device-read", "device_read_bytes_per_transaction", "KiB read a transaction", 1024.0),
)


def pictures(report: Report, directory: Path) -> list[Path]:
    """Writes what the run has numbers for; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for name, figure, words, scale in _BARS:
        groups = {
            case.label: {
                target.name: value
                for target in report.targets
                if (value := _figure(report, case, target.id, figure)) is not None
            }
            for case in report.cases
        }
        groups = {label: values for label, values in groups.items() if values}
        if any(value.high for values in groups.values() for value in values.values()):
            made.append(_bars(report, groups, words, scale, directory / f"{name}.png"))
    for number, (name, cases) in enumerate(sweeps(report).items()):
        made.append(_lines(report, name, cases, directory / f"threads-{number + 1}.png"))
    groups = spaces(report)
    if groups:
        made.append(_bars(report, groups, "MiB on disk", 2.0**20, directory / "space.png"))
    return made


def sweeps(report: Report) -> dict[str, list[CaseRow]]:
    """Cases with a throughput that differ by threads only, where there are several."""
    found: dict[str, list[CaseRow]] = {}
    for case in report.cases:
        if any(_figure(report, case, target.id, "tps") for target in report.targets):
            found.setdefault(family(case), []).append(case)
    return {name: sorted(cases, key=threads_of) for name, cases in found.items() if len(cases) > 1}


def _figure(report: Report, case: CaseRow, target: int, name: str) -> Spread | None:
    for each in report.results:
        if (each.case.id, each.target.id) == (case.id, target):
            return each.figures.get(name)
    return None


def spaces(report: Report) -> dict[str, dict[str, Spread]]:
    """Sizes that can be compared, by dataset and moment."""
    names = {target.id: target.name for target in report.targets}
    groups: dict[str, dict[str, Spread]] = {}
    for each in report.store.state(report.run.id):
        if (
            each.name == "data_bytes"
            and each.target in names
            and report.comparable(each.dataset, each.moment)
        ):
            label = f"{each.dataset}, {_MOMENTS.get(each.moment, each.moment)}"
            one = Spread(each.value, each.value, each.value, 1)
            groups.setdefault(label, {})[names[each.target]] = one
    return groups


def _bars(
    report: Report, groups: dict[str, dict[str, Spread]], words: str, scale: float, path: Path
) -> Path:
    """A group of bars for each label, one a target, whiskers from the smallest to the largest.

    Beside the reference's, which is 1, where it has a figure in every group: cases of a hundred and
    of a hundred thousand a second are one picture then. The median stands at the bar.
    """
    names = [target.name for target in report.targets]
    reference = report.reference.name if report.reference is not None else ""
    beside = all(reference in v and v[reference].median > 0 for v in groups.values())
    height = 1.2 + len(groups) * (0.25 + 0.22 * len(names))
    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        for row, values in enumerate(groups.values()):
            if name not in values:
                continue
            value, one = values[name], values[reference].median if beside else scale
            place = row + (index - (len(names) - 1) / 2) * width
            whiskers = [[(value.median - value.low) / one], [(value.high - value.median) / one]]
            axes.barh(
                place, value.median / one, width * 0.92, capsize=2,
                xerr=whiskers if value.low < value.high else None,
                color=COLOURS[index % len(COLOURS)], error_kw={"elinewidth": 0.8},
            )  # fmt: skip
            axes.annotate(
                _number(value.median / scale), (value.high / one, place), (4, 0), fontsize=7,
                textcoords="offset points", va="center",
            )  # fmt: skip
        axes.barh([0], [0], color=COLOURS[index % len(COLOURS)], label=name)
    axes.set_yticks(range(len(groups)), list(groups), fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    spread = any(v.low < v.high for values in groups.values() for v in values.values())
    words += " (median, smallest to largest)" * spread + f", × {reference}" * beside
    figure.supxlabel(words, fontsize=10)
    return _save(figure, axes, path)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _lines(report: Report, name: str, cases: list[CaseRow], path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for index, target in enumerate(report.targets):
        found = [
            (threads_of(case), value)
            for case in cases
            if (value := _figure(report, case, target.id, "tps")) is not None
        ]
        colour = COLOURS[index % len(COLOURS)]
        threads = [each for each, _ in found]
        axes.plot(threads, [v.median for _, v in found], "o-", color=colour, label=target.name)
        axes.fill_between(
            threads, [v.low for _, v in found], [v.high for _, v in found], color=colour, alpha=0.15
        )
    axes.set_xscale("log", base=2)
    ticks = [threads_of(case) for case in cases]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("threads")
    axes.set_ylabel("transactions/s (median, smallest to largest)")
    axes.set_ylim(bottom=0)
    axes.set_title(name, fontsize=10)
    return _save(figure, axes, path)


def _save(figure: Any, axes: Any, path: Path) -> Path:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
