"""Changes between two runs. Cases match by label, targets by name."""

from __future__ import annotations

from dataclasses import dataclass

from firn_lab.errors import LabError
from firn_lab.intervals import INTERVAL_MIN, Interval, single
from firn_lab.report.report_data import Report

# Figures that are compared beside each case's headline. If both runs have the settled form of a
# figure, which includes deferred work, that form is compared.
FIGURES = (
    "latency_p95_ms",
    "device_written_bytes_per_transaction",
    "device_read_bytes_per_transaction",
    "cpu_us_per_transaction",
)
STATES = ("data_bytes", "load_seconds")


@dataclass(frozen=True)
class Change:
    """The change of one figure.

    `verdict`: better, worse, same (the change is within the allowance), unclear (the intervals
    overlap, or a size whose number of rows depends on throughput), or single (a time that was
    measured once, so its spread is unknown).
    """

    case: str
    target: str
    figure: str
    unit: str
    before: Interval
    after: Interval
    verdict: str

    @property
    def ratio(self) -> float | None:
        return self.after.value / self.before.value if self.before.value else None


def verdict(before: Interval, after: Interval, better: str, allow: float) -> str:
    """The verdict on the change between two estimates.

    `allow`: the tolerated change, as a fraction of the value before.
    """
    plain = exact(before.value, after.value, better, allow)
    few = min(before.count, after.count) < INTERVAL_MIN
    meet = before.low <= after.high and after.low <= before.high
    return "unclear" if plain != "same" and (few or meet) else plain


def exact(before: float, after: float, better: str, allow: float) -> str:
    """The verdict on a figure without spread, such as bytes of files."""
    difference = after - before
    if abs(difference) <= allow * abs(before):
        return "same"
    return "better" if (difference > 0) == (better == "higher") else "worse"


def changes(before: Report, after: Report, allow: float, every: bool = False) -> list[Change]:
    """The changes from one run to another, in the order of the later run."""
    kinds = after.store.figure_kinds(after.run.id)
    kinds_before = before.store.figure_kinds(before.run.id)
    old = {(each.case.label, each.target.name): each for each in before.results}
    found = []
    for each in after.results:
        against = old.get((each.case.label, each.target.name))
        if against is None:
            continue
        # Take the settled form of a figure only if both runs have it.
        wanted = [each.settled(name) for name in FIGURES if each.settled(name) in against.figures]
        names = list(dict.fromkeys((each.case.headline, *wanted)))
        names += sorted(set(each.figures) - set(names)) if every else []
        for name in names:
            one, other = against.figures.get(name), each.figures.get(name)
            # Skip a figure that one run lacks, or for which the two runs have recorded different
            # units or disagree whether higher or lower is better.
            if one is None or other is None or kinds_before.get(name) != kinds[name]:
                continue
            better = kinds[name].better
            # A settled figure has one value for all rounds and the work after them, so it has no
            # interval.
            words = (
                exact(one.value, other.value, better, allow)
                if name.startswith("settled_")
                else verdict(one, other, better, allow)
            )
            place = (each.case.label, each.target.name, name, kinds[name].unit)
            found.append(Change(*place, one, other, words))
    found += _states(before, after, allow, every)
    if not found:
        raise LabError("the runs have no case on the same target in common")
    return found


def _states(before: Report, after: Report, allow: float, every: bool) -> list[Change]:
    """Changes of sizes and load times, which have one value per run."""
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
        one, other = single(value), single(each.value)
        figure = f"{each.name}, {each.moment}"
        words = exact(value, each.value, each.better, allow)
        if words != "same" and each.unit != "B":
            words = "single"
        elif words != "same" and not after.comparable(each.dataset, each.moment):
            words = "unclear"
        found.append(Change(each.dataset, names[each.target], figure, each.unit, one, other, words))
    return found


def differences(before: Report, after: Report) -> list[str]:
    """Differences that may make the runs incomparable, and cases that only one run has."""
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
            for name in ("seconds", "lead_seconds", "warm_seconds", "seed"):
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
