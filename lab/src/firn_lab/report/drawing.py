"""Drawing functions: grouped bars, curves, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from firn_lab.intervals import Interval
from firn_lab.report.colours import COLOURS

matplotlib.use("Agg")
from matplotlib import patheffects, pyplot

# A white outline around texts, so that grid lines do not cross them.
_HALO = [patheffects.withStroke(linewidth=2.5, foreground="white")]


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    `ratio`: the value relative to the reference, with an interval of its own. `note`: text behind
    the printed number.
    """

    value: Interval
    ratio: Interval | None = None
    note: str = ""


# Bars by label of the group, then by name of the target.
Groups = Mapping[str, Mapping[str, Bar]]


def bars(
    groups: Groups, names: Sequence[str], reference: str, words: str, scale: float, path: Path
) -> Path:
    """Draws a group of bars per label, one bar per target, with intervals.

    If the reference has a positive value in every group, bars show ratios to it, so that cases of a
    hundred and of a hundred thousand a second fit one picture. The number is printed at the bar.
    """
    beside = all(reference in g and g[reference].value.value > 0 for g in groups.values())
    height = 1.2 + len(groups) * (0.25 + 0.22 * len(names))
    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        colour = COLOURS[index % len(COLOURS)]
        for row, group in enumerate(groups.values()):
            if name not in group:
                continue
            place = row + (index - (len(names) - 1) / 2) * width
            bar = group[name]
            drawn = _drawn(bar, group[reference].value.value) if beside else _by(bar.value, scale)
            text = number(bar.value.value / scale) + bar.note
            if beside and bar.ratio is not None and bar.ratio.count > 1:
                text += f"  ×{bar.ratio.value:.2f} ({bar.ratio.low:.2f}…{bar.ratio.high:.2f})"
            whiskers = [[drawn.value - drawn.low], [drawn.high - drawn.value]]
            axes.barh(
                place, drawn.value, width * 0.92, capsize=2, color=colour,
                xerr=whiskers if drawn.low < drawn.high else None, error_kw={"elinewidth": 0.8},
            )  # fmt: skip
            axes.annotate(
                text, (drawn.high, place), (4, 0), fontsize=7, textcoords="offset points",
                va="center", path_effects=_HALO,
            )  # fmt: skip
        axes.barh([0], [0], color=colour, label=name)
    axes.set_yticks(range(len(groups)), list(groups), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(right=axes.get_xlim()[1] * 1.35)  # Leave room for the longest bar's number.
    figure.supxlabel(f"bars: × {reference}; numbers: " * beside + words, fontsize=9)
    return _save(figure, axes, path)


def _drawn(bar: Bar, reference: float) -> Interval:
    """The value relative to the reference, without an interval unless the bar has a ratio."""
    if bar.ratio is not None:
        return bar.ratio
    value = bar.value.value / reference
    return Interval(value, value, value, 1)


def _by(value: Interval, scale: float) -> Interval:
    return Interval(value.value / scale, value.low / scale, value.high / scale, value.count)


def number(value: float) -> str:
    """A number with at least three digits; values below 0.001 are not printed exactly."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def curves(
    found: Mapping[str, Sequence[tuple[int, Interval]]],
    threads: Sequence[int],
    title: str,
    words: str,
    path: Path,
) -> Path:
    """Draws a figure by thread count: a curve per target. `words` label its axis."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for index, (name, points) in enumerate(found.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [place for place, _ in points]
        axes.plot(places, [v.value for _, v in points], "o-", color=colour, label=name)
        axes.fill_between(
            places, [v.low for _, v in points], [v.high for _, v in points], color=colour,
            alpha=0.15,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(threads, [str(tick) for tick in threads])
    axes.set_xlabel("threads")
    axes.set_ylabel(f"{words} (median, 95 % interval)")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    return _save(figure, axes, path)


def _save(figure: Any, axes: Any, path: Path) -> Path:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def intervals(title: str, found: Sequence[Interval], marks: Sequence[float], path: Path) -> Path:
    """Draws intervals side by side as vertical lines; `marks` are horizontal lines."""
    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for mark in marks:
        axes.axhline(mark, color="black", linewidth=0.8, linestyle=":")
    middles = [each.value for each in found]
    ends = [[each.value - each.low for each in found], [each.high - each.value for each in found]]
    places = range(1, len(found) + 1)
    axes.errorbar(places, middles, yerr=ends, fmt="o", capsize=3, color=COLOURS[0], label="ratio")
    axes.set_xlabel("run")
    axes.set_xticks(places)
    axes.set_ylabel("ratio of a typical block, 95 % interval")
    axes.set_title(title, fontsize=10)
    return _save(figure, axes, path)
