"""What changed from one run to another: cases by label, targets by name."""

from __future__ import annotations

from dataclasses import dataclass

from firn_lab.errors import LabError
from firn_lab.report.data import Report
from firn_lab.store import Spread, unclear
from firn_lab.workloads.base import FigureKind

# Compared besides each case's headline. Others are looked at with `every`.
FIGURES = (
    "latency_p95_ms",
    "device_written_bytes_per_transaction",
    "device_read_bytes_per_transaction",
    "cpu_us_per_transaction",
)
STATES = ("data_bytes", "load_seconds")


@dataclass(frozen=True)
class Change:
    """verdict: better, worse, same (within what is allowed) or unclear (within the spread)."""

    case: str
    target: str
    figure: str
    unit: str
    before: Spread
    after: Spread
    verdict: str

    @property
    def ratio(self) -> float | None:
        return self.after.median / self.before.median if self.before.median else None


def verdict(before: Spread, after: Spread, better: str, allow: float) -> str:
    """`allow`: as a part of the value before."""
    difference = after.median - before.median
    if abs(difference) <= allow * abs(before.median):
        return "same"
    if unclear(before, after):
        return "unclear"
    return "better" if (difference > 0) == (better == "higher") else "worse"


def changes(before: Report, after: Report, allow: float, every: bool = False) -> list[Change]:
    """In the order of the later run."""
    kinds = after.store.figure_kinds(after.run.id)
    kinds_before = before.store.figure_kinds(before.run.id)
    old = {(each.case.label, each.target.name): each for each in before.results}
    found = []
    for each in after.results:
        against = old.get((each.case.label, each.target.name))
        if against is None:
            continue
        names = list(dict.fromkeys((each.case.headline, *FIGURES)))
        names += sorted(set(each.figures) - set(names)) if every else []
        for name in names:
            one, other = against.figures.get(name), each.figures.get(name)
            # What is counted over a round depends on its length and on what was done in it.
            if one is None or other is None or kinds_before.get(name) != kinds[name]:
                continue
            found.append(
                _change(each.case.label, each.target.name, name, kinds[name], one, other, allow)
            )
    found += _states(before, after, allow, every)
    if not found:
        raise LabError("the runs have no case on the same target in common")
    return found


def _change(
    case: str,
    target: str,
    name: str,
    kind: FigureKind,
    one: Spread,
    other: Spread,
    allow: float,
) -> Change:
    return Change(
        case, target, name, kind.unit, one, other, verdict(one, other, kind.better, allow)
    )


def _states(before: Report, after: Report, allow: float, every: bool) -> list[Change]:
    """Space and load times: one value each, so the spread is unknown."""
    old = {}
    names = {target.id: target.name for target in before.targets}
    for each in before.store.state(before.run.id):
        old[(each.dataset, names[each.target], each.moment, each.name)] = each.value
    found = []
    names = {target.id: target.name for target in after.targets}
    for each in after.store.state(after.run.id):
        value = old.get((each.dataset, names[each.target], each.moment, each.name))
        if value is None or not (every or each.name in STATES):
            continue
        one, other = Spread(value, value, value, 1), Spread(each.value, each.value, each.value, 1)
        figure = f"{each.name}, {each.moment}"
        kind = FigureKind(each.unit, each.better)
        found.append(_change(each.dataset, names[each.target], figure, kind, one, other, allow))
    return found


def differences(before: Report, after: Report) -> list[str]:
    """Why the runs may not be comparable at all, and what one of them lacks."""
    found = []
    one, other = before.run, after.run
    for name in ("processor", "cores", "memory_bytes", "file_system"):
        if one.machine.get(name) != other.machine.get(name):
            found.append(
                f"another machine: {name} {one.machine.get(name)}, then {other.machine.get(name)}"
            )
    for name in sorted(set(one.budget) | set(other.budget)):
        if one.budget.get(name) != other.budget.get(name):
            found.append(
                f"another budget: {name} {one.budget.get(name)}, then {other.budget.get(name)}"
            )
    params = {case.label: case.params for case in before.cases}
    for case in after.cases:
        if case.label in params:
            for name in ("seconds", "warm_seconds", "seed"):
                if params[case.label].get(name) != case.params.get(name):
                    found.append(
                        f"{case.label}: {name} {params[case.label].get(name)}, "
                        f"then {case.params.get(name)}"
                    )
    pairs = [
        {(r.case.label, r.target.name) for r in report.results if r.figures}
        for report in (before, after)
    ]
    for label, target in sorted(pairs[0] - pairs[1]):
        found.append(f"only in run {one.id}, or failed since: {label} on {target}")
    for label, target in sorted(pairs[1] - pairs[0]):
        found.append(f"only in run {other.id}: {label} on {target}")
    return found
