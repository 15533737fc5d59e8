"""How pictures are drawn: bars in groups, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from firn_lab.report.colours import COLOURS
from firn_lab.store import Spread

matplotlib.use("Agg")
from matplotlib import patheffects, pyplot

# Behind words: lines of the chart do not cross them.
_HALO = [patheffects.withStroke(linewidth=2.5, foreground="white")]


@dataclass(frozen=True)
class Bar:
    """`note` stands behind its number."""

    value: Spread
    note: str = ""


# By label of the group and name of the target.
Groups = Mapping[str, Mapping[str, Bar]]


def bars(
    groups: Groups, names: Sequence[str], reference: str, words: str, scale: float, path: Path
) -> Path:
    """A group of bars for each label, one a target, whiskers from the smallest to the largest.

    Beside the reference's, which is 1, where it has a figure in every group: cases of a hundred and
    of a hundred thousand a second are one picture then. The number stands at the bar.
    """
    beside = all(reference in g and g[reference].value.median > 0 for g in groups.values())
    height = 1.2 + len(groups) * (0.25 + 0.22 * len(names))
    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        colour = COLOURS[index % len(COLOURS)]
        for row, group in enumerate(groups.values()):
            if name not in group:
                continue
            one = group[reference].value.median if beside else scale
            place = row + (index - (len(names) - 1) / 2) * width
            value, text = group[name].value, number(group[name].value.median / scale)
            whiskers = [[(value.median - value.low) / one], [(value.high - value.median) / one]]
            axes.barh(
                place, value.median / one, width * 0.92, capsize=2, color=colour,
                xerr=whiskers if value.low < value.high else None, error_kw={"elinewidth": 0.8},
            )  # fmt: skip
            axes.annotate(
                text + group[name].note, (value.high / one, place), (4, 0), fontsize=7,
                textcoords="offset points", va="center", path_effects=_HALO,
            )  # fmt: skip
        axes.barh([0], [0], color=colour, label=name)
    axes.set_yticks(range(len(groups)), list(groups), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(right=axes.get_xlim()[1] * 1.2)  # For the numbers at the longest.
    figure.supxlabel(f"bars: × {reference}; numbers: " * beside + words, fontsize=9)
    return _save(figure, axes, path)


def number(value: float) -> str:
    """Three digits at least; none of what is next to nothing."""
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def curves(
    found: Mapping[str, Sequence[tuple[int, Spread]]],
    threads: Sequence[int],
    title: str,
    path: Path,
) -> Path:
    """Throughput by threads: a curve for each target."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for index, (name, points) in enumerate(found.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [place for place, _ in points]
        axes.plot(places, [v.median for _, v in points], "o-", color=colour, label=name)
        axes.fill_between(
            places, [v.low for _, v in points], [v.high for _, v in points], color=colour,
            alpha=0.15,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(threads, [str(tick) for tick in threads])
    axes.set_xlabel("threads")
    axes.set_ylabel("transactions/s (median, smallest to largest)")
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
