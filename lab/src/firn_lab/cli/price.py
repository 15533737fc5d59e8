"""Prices the results of a run: a million transactions, a TB stored, the break-even.

firn-lab price --hour 0.10 --gb-month 0.08 --million-ios 0.20
firn-lab price 3 --catalogue prices.toml

Or says, without a run, when a memory pool, a machine with more memory, or a bucket pays:

firn-lab price --break-evens --catalogue docs/results/break-evens.toml
firn-lab price --break-evens --million-ios 0.20 --memory-gb-month 5 --stored 0.3
firn-lab price --break-evens --gb-month 0.08 --bucket-gb-month 0.023 --million-gets 0.40
"""

from __future__ import annotations

import argparse
import dataclasses

from rich.table import Table

from firn_lab.cli.common import STORE, add_prices, add_store, options, prices_of, wide_console
from firn_lab.cli.numbers import above, at_least
from firn_lab.errors import LabError, UsageError
from firn_lab.price import PRICES, Prices, Sizes
from firn_lab.report.break_evens import HEAD as BREAK_EVENS_HEAD
from firn_lab.report.break_evens import break_evens, priced
from firn_lab.report.costs import HEAD, cells, costs
from firn_lab.report.report_data import collect
from firn_lab.store import Reader

NAME = "price"
HELP = "what the results of a run cost at given prices, and when a memory pool or a bucket pays"

# Prices of break-evens alone, with the texts of --help.
_FURTHER = {
    "more_hour": "of an hour: how much more a machine with more memory costs",
    "memory_gb_month": "of a GB of the pool's nodes for a month",
    "node_hour": "of an hour of a node of the pool",
    "node_traffic_gb": "of a GB between server and nodes",
    "bucket_gb_month": "of a GB in the bucket for a month",
    "million_gets": "of a million reads of the bucket",
    "million_puts": "of a million writes of the bucket",
    "traffic_gb": "of a GB read from the bucket",
}
_COUNTS = {
    "cores": "of the machine: processor time counts",
    "more_gib": "how much more memory this machine has",
    "node_gib": "memory of the node, as memcached's -m has it",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="an id, or last (the default)")
    add_store(parser)
    add_prices(parser)
    group = parser.add_argument_group("break-evens")
    group.add_argument(
        "--break-evens",
        action="store_true",
        help="when a memory pool, more memory, or a bucket pays; needs no run",
    )
    for name, text in _FURTHER.items():
        group.add_argument(options([name]), type=at_least(0.0), metavar="PRICE", help=text)
    for name, text in _COUNTS.items():
        group.add_argument(options([name]), type=above(0.0), metavar="NUMBER", help=text)
    sizes, size = Sizes(), above(0.0)
    group.add_argument(
        "--block-kib", type=size, metavar="KIB", help=f"a block in memory ({sizes.block_kib:g})"
    )
    group.add_argument(
        "--stored",
        type=size,
        metavar="SHARE",
        help=f"the share of it that its file has ({sizes.stored:g})",
    )
    group.add_argument(
        "--file-mib", type=size, metavar="MIB", help=f"a file of tables ({sizes.file_mib:g})"
    )


def main(chosen: argparse.Namespace) -> int:
    if chosen.break_evens:
        if chosen.run is not None or chosen.store != STORE:
            raise UsageError("--break-evens needs no run and no store: leave them out")
        show_break_evens(_offers(chosen), _sizes(chosen))
        return 0
    named = (*_FURTHER, *_COUNTS, *_size_names())
    alone = [name for name in named if getattr(chosen, name) is not None]
    if alone:
        raise UsageError(f"{options(alone)}: that is for --break-evens alone")
    prices = _offers(chosen)
    with Reader(chosen.store) as store:
        rows = costs(collect(store, chosen.run or "last", prices))
    if not rows:
        raise LabError("the run has no round that could be priced")
    table = Table(*HEAD, box=None)
    for row in rows:
        table.add_row(*cells(row))
    wide_console().print(table)
    return 0


def _offers(chosen: argparse.Namespace) -> list[Prices]:
    prices = prices_of(chosen)
    if not prices:
        raise UsageError(f"give {options(PRICES)}, or a --catalogue")
    return prices


def _size_names() -> list[str]:
    return [field.name for field in dataclasses.fields(Sizes)]


def _sizes(chosen: argparse.Namespace) -> Sizes:
    values = {name: getattr(chosen, name) for name in _size_names()}
    return Sizes(**{name: value for name, value in values.items() if value is not None})


def show_break_evens(prices: list[Prices], sizes: Sizes) -> None:
    """Prints a table for each offer."""
    found = [(offer, break_evens(offer, sizes)) for offer in prices]
    if not any(rows for _, rows in found):
        raise UsageError(
            "no offer has a price of nodes (memory_gb_month, or node_hour and node_gib), of more "
            "memory (more_hour and more_gib) or of a bucket (bucket_gb_month)"
        )
    console = wide_console()
    for at, (offer, rows) in enumerate(found):
        if at:
            console.print()
        console.print(f"{offer.name}: {priced(offer)}", markup=False, soft_wrap=True)
        table = Table(*BREAK_EVENS_HEAD, box=None)
        for row in rows:
            table.add_row(*row)
        if rows:
            console.print(table)
        else:
            console.print("no price of nodes, of more memory or of a bucket")
