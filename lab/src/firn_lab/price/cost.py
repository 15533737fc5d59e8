"""The cost of work and of space, and where two engines cost the same.

Work: the machine is paid while it is busy, at the throughput measured, and its I/Os.
Space: a TB (10^12 bytes) is what the tables take in the engine that others are compared with; an
engine that stores them in a third pays a third.

An application with D GB of data (as the reference stores it) and T transactions a second pays, for
a month, T × (cost of a second's work) + D × ratio × (GB-month). Both cost the same at one D/T.
"""

from __future__ import annotations

from dataclasses import dataclass

from firn_lab.price.catalogue import Prices

HOUR_SECONDS = 3600
MONTH_SECONDS = 730 * HOUR_SECONDS
TB_GB = 1000


@dataclass(frozen=True)
class Cost:
    """None: not measured. `per_tb_month` is that of a TB as the reference stores it."""

    per_million: float | None
    per_tb_month: float | None


@dataclass(frozen=True)
class BreakEven:
    """verdict: always, never, above, below, equal. For `above` and `below`, `gb_per_tps` is the
    data (as the reference stores it) for each transaction a second at which the costs are equal."""

    verdict: str
    gb_per_tps: float | None = None

    def words(self, name: str, reference: str) -> str:
        """In a sentence."""
        match self.verdict:
            case "always":
                return f"{name} costs less than {reference} at any size and load"
            case "never":
                return f"{name} costs more than {reference} at any size and load"
            case "equal":
                return f"{name} and {reference} cost the same"
        return (
            f"{name} costs less than {reference} {self.verdict} {_size(self.gb_per_tps or 0.0)} of "
            "data for each transaction a second that is sustained"
        )


def _size(gb: float) -> str:
    """As providers count, by thousands."""
    for unit, each in (("TB", 1e3), ("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6)):
        if float(f"{gb / each:.2g}") >= 1:
            return f"{float(f'{gb / each:.2g}'):,.4g} {unit}"
    return f"{gb * 1e9:.2g} bytes"


def ios(prices: Prices, requests: float, size: float) -> float:
    """I/Os as a provider counts them: one for every request, more for those above io_kib. For
    requests of mixed sizes this is a lower bound."""
    return max(requests, size / (prices.io_kib * 1024))


def cost(
    prices: Prices, tps: float | None, ios_each: float | None, space_ratio: float | None
) -> Cost:
    """`ios_each`: of a transaction; `space_ratio`: bytes on disk to those of the reference. I/O
    that is charged for and was not measured leaves the cost of work unknown."""
    per_million = None
    if tps and (ios_each is not None or not prices.million_ios):
        machine = prices.hour / HOUR_SECONDS / tps * 1e6
        per_million = machine + (ios_each or 0.0) * prices.million_ios
    per_tb = None if space_ratio is None else space_ratio * TB_GB * prices.gb_month
    return Cost(per_million, per_tb)


def break_even(one: Cost, reference: Cost) -> BreakEven | None:
    """Where `one` begins or ceases to be cheaper; None where something was not measured."""
    if one.per_million is None or reference.per_million is None:
        return None
    if one.per_tb_month is None or reference.per_tb_month is None:
        return None
    # For a month: of one transaction a second, and of a GB.
    work = (one.per_million - reference.per_million) / 1e6 * MONTH_SECONDS
    space = (one.per_tb_month - reference.per_tb_month) / TB_GB
    if work == 0 and space == 0:
        return BreakEven("equal")
    if work <= 0 and space <= 0:
        return BreakEven("always")
    if work >= 0 and space >= 0:
        return BreakEven("never")
    return BreakEven("above" if work > 0 else "below", -work / space)
