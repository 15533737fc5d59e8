"""Compares two runs: figures that became better, worse, or cannot be told apart.

  firn-lab compare 3 4                     # runs of one store
  firn-lab compare old/lab.sqlite:last last

Exit status 1 when a figure became worse by more than --allow percent and the two intervals do not
overlap. The machine may have changed between the runs: to compare two builds, measure both in one
run and use `judge`. Times that were measured only once (loads) are shown as `single` and prove
nothing.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from rich.table import Table
from rich.text import Text

from firn_lab.cli.common import add_store, wide_console
from firn_lab.intervals import Interval
from firn_lab.report.comparison import Change, changes, differences
from firn_lab.report.report_data import Report, collect
from firn_lab.report.units import figure_text, number_text
from firn_lab.store import Reader

NAME = "compare"
HELP = "regressions between two runs"
STYLES = {"worse": "red", "better": "green", "unclear": "dim", "same": "dim", "single": "dim"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="RUN", help="an id, last, or FILE:RUN of another store")
    parser.add_argument("after", metavar="RUN")
    parser.add_argument("--all", action="store_true", help="every figure, and what did not change")
    parser.add_argument(
        "--allow", type=float, default=5.0, metavar="PERCENT", help="smaller changes (%(default)s)"
    )
    add_store(parser)


def main(chosen: argparse.Namespace) -> int:
    with ExitStack() as stack:
        before, after = (_open(stack, text, chosen.store) for text in (chosen.before, chosen.after))
        found = changes(before, after, chosen.allow / 100, every=chosen.all)
        notes = differences(before, after)
    console = wide_console()
    for note in notes:
        console.print(Text(note, style="red"), soft_wrap=True)
    table = Table("case", "engine", "figure", "before", "after", "change", "", box=None)
    for each in found:
        if chosen.all or each.verdict != "same":
            _row(table, each)
    console.print(table)
    counts = {verdict: sum(each.verdict == verdict for each in found) for verdict in STYLES}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["worse"] else 0


def _open(stack: ExitStack, text: str, store: Path) -> Report:
    file, colon, run = text.rpartition(":")
    return collect(stack.enter_context(Reader(Path(file) if colon else store)), run)


def _row(table: Table, change: Change) -> None:
    factor = "–" if change.ratio is None else f"×{change.ratio:.3f}"
    table.add_row(
        change.case,
        change.target,
        change.figure,
        _interval(change.before, change.unit),
        _interval(change.after, change.unit),
        factor,
        Text(change.verdict, style=STYLES[change.verdict]),
    )


def _interval(value: Interval, unit: str) -> str:
    text = figure_text(value.value, unit)
    if value.count < 2:
        return text
    if unit == "B":
        return f"{text} ({figure_text(value.low, unit)}…{figure_text(value.high, unit)})"
    return f"{text} ({number_text(value.low)}…{number_text(value.high)})"
