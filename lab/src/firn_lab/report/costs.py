"""Costs of a run's results at given prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firn_lab.price import break_even, cost
from firn_lab.store import unclear
from firn_lab.store.rows import TargetRow

if TYPE_CHECKING:
    from firn_lab.report.data import Report, Result

# Space is taken at rest, else as early as it was taken at all.
_MOMENTS = ("rest", "update", "load")


def space(report: Report, dataset: str, target: TargetRow) -> float | None:
    """Bytes on disk of the tables."""
    found = {
        each.moment: each.value
        for each in report.store.state(report.run.id)
        if (each.target, each.dataset, each.name) == (target.id, dataset, "data_bytes")
    }
    return next((found[moment] for moment in _MOMENTS if moment in found), None)


def _device_bytes(result: Result) -> float | None:
    """Read and written for a transaction."""
    values = [
        result.figures.get(f"device_{verb}_bytes_per_transaction") for verb in ("read", "written")
    ]
    known = [value.median for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def costs(report: Report) -> list[dict[str, Any]]:
    """A row for each offer, case and target: cost of work and space, and the break-even."""
    base = report.reference
    found: list[dict[str, Any]] = []
    if base is None:
        return found
    for prices in report.prices:
        for case in report.cases:
            whole = space(report, case.dataset, base)
            against = None
            throughput = None
            # The reference first: the others are compared with it.
            for target in sorted(report.targets, key=lambda each: each.id != base.id):
                result = report.result(case, target)
                tps = result.figures.get("tps") if result else None
                if result is None or tps is None:
                    continue
                size = space(report, case.dataset, target)
                ratio = size / whole if size is not None and whole else None
                each = cost(prices, tps.median, _device_bytes(result), ratio)
                words = ""
                if target.id == base.id:
                    against, throughput = each, tps
                elif against is not None and throughput is not None:
                    even = break_even(each, against)
                    words = even.words(target.name, base.name) if even else ""
                    if words and unclear(tps, throughput):
                        words += "; but their throughputs cannot be told apart"
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
