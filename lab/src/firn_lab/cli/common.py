"""Options that several commands share."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from firn_lab.cli.numbers import above, at_least
from firn_lab.errors import UsageError
from firn_lab.price import PRICES, Prices, load_catalogue

# Width in characters of output to a file or a pipe; wide enough that no cell of a table is cut.
WIDTH = 240
STORE = Path("lab-results/lab.sqlite")


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, default=STORE, help="the results (%(default)s)")


def wide_console() -> Console:
    """A console as wide as the terminal, or `WIDTH` columns without a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def add_prices(parser: argparse.ArgumentParser, space_alone: bool = False) -> None:
    """Adds the price options; `space_alone` omits the prices of the machine and of I/O."""
    group = parser.add_argument_group("prices")
    price, size = at_least(0.0), above(0.0)
    if not space_alone:
        group.add_argument("--hour", type=price, metavar="PRICE", help="of the machine")
        group.add_argument("--million-ios", type=price, metavar="PRICE")
        group.add_argument(
            "--iops-month", type=price, metavar="PRICE", help="of one I/O a second, provisioned"
        )
        group.add_argument("--io-kib", type=size, metavar="KIB", help="the most an I/O moves (16)")
    group.add_argument("--gb-month", type=price, metavar="PRICE", help="of 10^9 bytes for a month")
    group.add_argument("--currency", metavar="NAME", help="USD by default")
    group.add_argument("--catalogue", type=Path, metavar="FILE", help="offers, TOML (docs/lab.md)")


def prices_of(chosen: argparse.Namespace) -> list[Prices]:
    """The offers of the price catalogue, and one more offer for prices given as options.

    The list is empty if the command line names neither.
    """
    offers = load_catalogue(chosen.catalogue) if chosen.catalogue else []
    names = [field.name for field in dataclasses.fields(Prices) if field.name != "name"]
    values = {name: getattr(chosen, name, None) for name in names}
    given = {name: value for name, value in values.items() if value is not None}
    if set(given) & set(PRICES):
        offers.append(Prices(**given))
    elif given:
        raise UsageError(f"{options(given)} belong to a price: {options(PRICES)}")
    return offers


def options(names: Iterable[str]) -> str:
    """The options that set these attributes, as they are written."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
