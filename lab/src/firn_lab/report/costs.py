"""Costs of a run's results at given prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firn_lab.intervals import Interval, single
from firn_lab.price import Cost, Prices, break_even, cost, ios
from firn_lab.report.report_data import Report, Result
from firn_lab.store.rows import TargetRow

# Moments at which the space of two targets may be compared, best first. A later moment does not
# count if a server did not come to rest, or if the rounds have changed the numbers of rows: the
# targets must hold the same rows.
_MOMENTS = ("rest", "update", "load")


def space_ratio(report: Report, dataset: str, one: TargetRow, other: TargetRow) -> float | None:
    """Table bytes of one target divided by the other's, for the same rows at the same moment."""
    found: dict[tuple[int, str], float] = {
        (each.target, each.moment): each.value
        for each in report.store.state(report.run.id)
        if (each.dataset, each.name) == (dataset, "data_bytes")
    }
    for moment in _MOMENTS:
        sizes = found.get((one.id, moment)), found.get((other.id, moment))
        if sizes[0] and sizes[1] and report.comparable(dataset, moment):
            return sizes[0] / sizes[1]
    return None


def transaction_ios(result: Result, prices: Prices) -> float | None:
    """I/Os of a transaction, including those that the engine deferred until after the rounds.

    The device's own counters include the writes that page cache and file system do for a server.
    Without them, the bytes of the server's processes are the substitute.
    """

    def found(name: str) -> Interval | None:
        return result.figures.get(result.settled(f"{name}_per_transaction"))

    total = 0.0
    for verb, requests in (("read", "disk_reads"), ("written", "disk_writes")):
        size = found(f"disk_{verb}_bytes") or found(f"device_{verb}_bytes")
        if size is None:
            return None
        total += ios(prices, (found(requests) or single(0.0)).value, size.value)
    return total


def doubt(report: Report, result: Result, prices: Prices) -> str:
    """A remark for a break-even that rests on throughputs whose difference is not significant."""
    ratio = report.ratio(result, "tps")
    if not prices.hour or ratio is None or not ratio.holds(1.0):
        return ""
    return "; but their throughputs cannot be told apart"


HEAD = ("offer", "case", "engine", "a million transactions", "a TB for a month", "break-even")


def cells(row: Mapping[str, Any]) -> list[str]:
    """Texts of a row of `costs`, in the order of HEAD."""
    money = [
        "–" if row[name] is None else f"{row[name]:.4g} {row['currency']}"
        for name in ("per_million", "per_tb_month")
    ]
    return [row["offer"], row["case"], row["target"], *money, row["break_even"]]


def costs(report: Report) -> list[dict[str, Any]]:
    """A row for each offer, case and target: cost of work and space, and the break-even."""
    base = report.reference
    found: list[dict[str, Any]] = []
    if base is None:
        return found
    for prices in report.prices:
        for case in report.cases:
            against: Cost | None = None
            # The reference target must come first, because the costs of the others are compared
            # with its costs.
            for target in sorted(report.targets, key=lambda each: each.id != base.id):
                result = report.result(case, target)
                tps = result.figures.get("tps") if result else None
                if result is None or tps is None:
                    continue
                ratio = space_ratio(report, case.dataset, target, base)
                each = cost(prices, tps.value, transaction_ios(result, prices), ratio)
                words = ""
                if target.id == base.id:
                    against = each
                elif against is not None and (even := break_even(each, against)):
                    words = even.words(target.name, base.name) + doubt(report, result, prices)
                found.append(
                    {
                        "offer": prices.name,
                        "currency": prices.currency,
                        "case": case.label,
                        "target": target.name,
                        "per_million": each.per_million,
                        "per_tb_month": each.per_tb_month,
                        "break_even": words,
                    }
                )
    return found
