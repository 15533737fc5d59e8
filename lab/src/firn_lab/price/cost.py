"""The cost of work and of space, and the point where two engines cost the same.

Work: the price of the machine while it is busy at the measured throughput, and of its I/Os. I/Os
that are provisioned by the month cost their share of it, as if they were used all the time.
Space: a TB (10^12 bytes) is measured in the reference engine; an engine that stores the same tables
in a third of the space pays a third.

An application with D GB of data (as the reference stores them) and T transactions a second pays per
month T × (monthly cost of one transaction a second) + D × ratio × (price of a GB-month). The costs
of two engines are equal at one value of D/T.
"""

from __future__ import annotations

from dataclasses import dataclass

from firn_lab.price.catalogue import HOUR_SECONDS, MONTH_SECONDS, Prices

TB_GB = 1000


@dataclass(frozen=True)
class Cost:
    """Costs of one target; None if not measured.

    `per_tb_month` is the price of a TB as the reference stores it.
    """

    per_million: float | None
    per_tb_month: float | None


@dataclass(frozen=True)
class BreakEven:
    """The comparison of two costs; `verdict` is always, never, above, below or equal.

    For `above` and `below`, `gb_per_tps` is the data size (as the reference stores it) per
    transaction a second at which the costs are equal.
    """

    verdict: str
    gb_per_tps: float | None = None

    def words(self, name: str, reference: str) -> str:
        """The verdict as a sentence."""
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
    """A size in decimal units, as providers count."""
    for unit, each in (("TB", 1e3), ("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6)):
        if float(f"{gb / each:.2g}") >= 1:
            return f"{float(f'{gb / each:.2g}'):,.4g} {unit}"
    return f"{gb * 1e9:.2g} bytes"


def ios(prices: Prices, requests: float, size: float) -> float:
    """Number of I/Os that a provider charges for.

    Every request counts at least once, and more if it exceeds io_kib. For requests of mixed sizes
    the result is a lower bound.
    """
    return max(requests, size / (prices.io_kib * 1024))


def cost(
    prices: Prices, tps: float | None, ios_each: float | None, space_ratio: float | None
) -> Cost:
    """Cost at these prices.

    `ios_each`: I/Os of a transaction. `space_ratio`: bytes on disk divided by those of the
    reference. If I/O has a price but was not measured, the cost of work is unknown.
    """
    per_million = None
    if tps and (ios_each is not None or not prices.io):
        machine = prices.hour / HOUR_SECONDS / tps
        per_million = (machine + (ios_each or 0.0) * prices.io) * 1e6
    per_tb = None if space_ratio is None else space_ratio * TB_GB * prices.gb_month
    return Cost(per_million, per_tb)


def break_even(one: Cost, reference: Cost) -> BreakEven | None:
    """The point where `one` becomes cheaper or more expensive; None if a cost is missing."""
    if one.per_million is None or reference.per_million is None:
        return None
    if one.per_tb_month is None or reference.per_tb_month is None:
        return None
    # Compare the monthly costs of the two servers. `work`: how much more `one` costs than
    # `reference` for a load of one transaction a second. `space`: how much more `one` costs for a
    # GB of data.
    work = (one.per_million - reference.per_million) / 1e6 * MONTH_SECONDS
    space = (one.per_tb_month - reference.per_tb_month) / TB_GB
    return BreakEven(*crossing(work, space))


def crossing(work: float, space: float) -> tuple[str, float | None]:
    """Where work and space together cost as much with one choice as with another.

    `work`: how much more the choice costs for a unit of work. `space`: how much more it costs for
    a unit of space in the same time. The verdict is as in `BreakEven`, the number is the space for
    a unit of work.
    """
    if work == 0 and space == 0:
        return "equal", None
    if work <= 0 and space <= 0:
        return "always", None
    if work >= 0 and space >= 0:
        return "never", None
    return "above" if work > 0 else "below", -work / space
