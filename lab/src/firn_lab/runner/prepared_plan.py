"""The workloads and targets of a plan, created before anything starts: mistakes show at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firn_lab.errors import LabError, UsageError
from firn_lab.measures.measure import STATE_MEASURES
from firn_lab.plan.case import Plan, replace_params
from firn_lab.targets.target import Target, make_target
from firn_lab.workloads.workload import Workload, make_workload


@dataclass(frozen=True)
class PreparedPlan:
    """Workloads and targets in the order of the plan."""

    workloads: list[Workload]
    targets: list[Target]


def prepare_plan(plan: Plan, scratch: Path) -> PreparedPlan:
    """Creates workloads and targets. Raises a LabError for the first mistake."""
    memory = {"memory_bytes": plan.budget.memory_bytes}
    workloads = [
        make_workload(case.workload, replace_params(case.params, memory, case.params.options))
        for case in plan.cases
    ]
    targets = [make_target(spec, plan.budget, scratch) for spec in plan.targets]
    _require_once("the plan holds a case", [workload.label for workload in workloads])
    _require_once("a target is named", [target.name for target in targets])
    _require_measures(plan.measures)
    return PreparedPlan(workloads, targets)


# Time that a round takes beyond its lead and its measured seconds: for waking the server, for
# measures and for writing to the store.
ROUND_EXTRA_SECONDS = 0.15
# Assumed time of a round without a time limit.
UNKNOWN_SECONDS = 20.0


def round_seconds(workload: Workload) -> float:
    """Approximate time of a round."""
    if not workload.timed:
        return UNKNOWN_SECONDS
    params = workload.params
    return params.lead_seconds + params.seconds + ROUND_EXTRA_SECONDS


def case_seconds(plan: Plan, workload: Workload, targets: int) -> float:
    """Limit on the seconds in which a case is measured, if the run as a whole has no limit."""
    return min(plan.case_seconds, plan.blocks * targets * round_seconds(workload))


def require_installed(targets: Sequence[Target]) -> None:
    """Raises UsageError with everything that the targets lack, and how to install it."""
    lacks = {target.spec: target.lacks() for target in targets}
    said = [f"{spec}: {lack}" for spec, lack in lacks.items() if lack]
    if said:
        raise UsageError(f"{'; '.join(said)}; or choose others with --targets")


def _require_once(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LabError(f"{what} twice: {', '.join(twice)}")


def _require_measures(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is no costly measure.

    A run takes all other measures anyway.
    """
    known = [name for name in STATE_MEASURES if STATE_MEASURES[name]().costly]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(
            f"there is no costly measure {', '.join(map(repr, unknown))}; known: {', '.join(known)}"
        )
