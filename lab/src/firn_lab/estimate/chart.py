"""Draws an estimate: InnoDB's bytes beside FIRN's, with the error bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from firn_lab.errors import UsageError
from firn_lab.estimate.run import TableEstimate
from firn_lab.report.colours import COLOURS

matplotlib.use("Agg")
from matplotlib import pyplot

TABLES_MAX = 30


def draw(found: Sequence[TableEstimate], path: Path) -> None:
    """Draws the largest tables as PNG or SVG, depending on the file name."""
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"{path}: a chart is .png or .svg")
    shown = [each for each in found if not (each.problem or each.stale)][:TABLES_MAX]
    figure, axes = pyplot.subplots(figsize=(8, 1.4 + 0.5 * len(shown)), layout="constrained")
    places = range(len(shown))
    axes.barh(
        [place - 0.2 for place in places], [each.innodb_bytes / 2**20 for each in shown], 0.38,
        label="InnoDB now", color=COLOURS[0],
    )  # fmt: skip
    axes.barh(
        [place + 0.2 for place in places], [each.firn.bytes / 2**20 for each in shown], 0.38,
        xerr=[each.firn.error / 2**20 for each in shown], capsize=3,
        label="FIRN, predicted, with the bound of error", color=COLOURS[1],
    )  # fmt: skip
    axes.set_yticks(places, [each.name for each in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("MiB on disk")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
