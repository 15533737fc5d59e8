"""Texts of the break-evens of memory pool, memory and bucket."""

from __future__ import annotations

from firn_lab.price import Prices, Sizes, choices
from firn_lab.price.keeping import more_gb_month, node_gb_month

# The two numbers say how much more the first place costs than the second one.
HEAD = ("thing", "place", "a million reads", "a million kept a month", "break-even", "as a rate")


def break_evens(prices: Prices, sizes: Sizes) -> list[tuple[str, ...]]:
    """A row for each choice that the prices allow, in the order of HEAD."""
    return [
        (
            each.thing,
            each.places,
            f"{each.read * 1e6:+,.4g}",
            f"{each.month * 1e6:+,.4g}",
            each.words(),
            each.rate_words(),
        )
        for each in choices(prices, sizes)
    ]


def priced(prices: Prices) -> str:
    """The prices that break-evens rest on, a GB for a month each, and of a million requests."""
    spaces = (
        ("volume", prices.gb_month or None),
        ("nodes", node_gb_month(prices)),
        ("more memory", more_gb_month(prices)),
        ("bucket", prices.bucket_gb_month),
    )
    spaces_words = ", ".join(f"{name} {value:,.4g}" for name, value in spaces if value is not None)
    text = f"a GB for a month: {spaces_words}; a million I/Os: {prices.io * 1e6:,.4g}"
    if prices.bucket_gb_month is not None:
        text += f", GETs: {prices.million_gets:,.4g}, PUTs: {prices.million_puts:,.4g}"
    return f"{text} ({prices.currency})"
