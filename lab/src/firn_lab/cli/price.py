"""Prices the results of a run: a million transactions, a TB stored, the break-even.

firn-lab price --hour 0.10 --gb-month 0.08 --million-ios 0.20
firn-lab price 3 --catalogue prices.toml
"""

from __future__ import annotations

import argparse

from rich.table import Table

from firn_lab.cli.common import add_prices, add_store, prices_of, wide_console
from firn_lab.errors import LabError, UsageError
from firn_lab.report.costs import HEAD, cells, costs
from firn_lab.report.report_data import collect
from firn_lab.store import Reader

NAME = "price"
HELP = "what the results of a run cost at given prices"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last", metavar="RUN", help="an id, or last")
    add_store(parser)
    add_prices(parser)


def main(chosen: argparse.Namespace) -> int:
    prices = prices_of(chosen)
    if not prices:
        raise UsageError("give --hour, --gb-month, --million-ios, or a --catalogue")
    with Reader(chosen.store) as store:
        rows = costs(collect(store, chosen.run, prices))
    if not rows:
        raise LabError("the run has no round that could be priced")
    table = Table(*HEAD, box=None)
    for row in rows:
        table.add_row(*cells(row))
    wide_console().print(table)
    return 0
