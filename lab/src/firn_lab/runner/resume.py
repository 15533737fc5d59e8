"""Resumes a run that several calls with `--resume` execute, one slice of it each.

This module reads the results of the earlier slices from the store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from firn_lab.errors import UsageError
from firn_lab.plan.case import Plan
from firn_lab.runner.prepared_plan import PreparedPlan
from firn_lab.store import Reader
from firn_lab.store.rows import Run

# A run without an event for this many seconds is presumed dead.
SILENT_SECONDS = 120
# Statuses from which a run can be resumed. A run stays `running` if its lab was killed; then it can
# be resumed once its lab is presumed dead.
OPEN = ("paused", "interrupted", "aborted", "running")


@dataclass(frozen=True)
class EarlierSlices:
    """The stored results of a run's earlier slices, that is, of earlier calls with `--resume`.

    `targets` and `cases`: ids by target name and by case label. `finished`: labels of finished
    cases. `values`: headline figures by case, target and block number.
    """

    run: int
    targets: Mapping[str, int] = field(default_factory=dict)
    cases: Mapping[str, int] = field(default_factory=dict)
    finished: frozenset[str] = frozenset()
    values: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    warnings: frozenset[tuple[str, str]] = frozenset()


def before(store: Path, plan: Plan, parts: PreparedPlan) -> EarlierSlices | None:
    """The results of the plan's last run so far; None if a new run must begin.

    Raises UsageError if that run has other cases, targets or another budget.
    """
    if not store.is_file():
        return None
    with Reader(store) as reader:
        run = next((run for run in reversed(reader.runs()) if run.title == plan.name), None)
        if run is None or run.status not in OPEN:
            return None
        _require_over(reader, run)
        _require_same(reader, run, plan, parts)
        return _read(reader, run)


def _require_over(reader: Reader, run: Run) -> None:
    events = reader.events(run.id)
    if run.status == "running" and events and time.time() - events[-1].at < SILENT_SECONDS:
        raise UsageError(f"run {run.id} seems to be going on: it told something a moment ago")


def _require_same(reader: Reader, run: Run, plan: Plan, parts: PreparedPlan) -> None:
    targets = [target.spec for target in reader.targets(run.id)]
    cases = [(case.label, case.params["seconds"]) for case in reader.cases(run.id)]
    wanted = [(each.label, each.params.seconds) for each in parts.workloads]
    known = {target.spec for target in parts.targets}
    if (
        (cases and cases != wanted)
        or not known.issuperset(targets)
        or dict(run.budget) != asdict(plan.budget)
    ):
        raise UsageError(
            f"run {run.id}, which is not finished, has other cases, targets or another budget: "
            "give the options that it had, or begin a new one without --resume"
        )


def _read(reader: Reader, run: Run) -> EarlierSlices:
    targets = {target.name: target.id for target in reader.targets(run.id)}
    cases = {case.label: case for case in reader.cases(run.id)}
    names = {number: name for name, number in targets.items()}
    labels = {case.id: label for label, case in cases.items()}
    values: dict[str, dict[str, dict[int, float]]] = {}
    failures = []
    for each in reader.rounds(run.id):
        label, name = labels[each.case], names[each.target]
        value = each.figures.get(cases[label].headline)
        if each.status != "ok":
            failures.append(f"{label} on {name}: {each.message}")
        elif value is not None:
            values.setdefault(label, {}).setdefault(name, {})[each.number] = value
    events = reader.events(run.id)
    failures += [e.data["message"] for e in events if e.kind == "failure"]
    return EarlierSlices(
        run.id,
        targets,
        {label: case.id for label, case in cases.items()},
        frozenset(event.data["case"] for event in events if event.kind == "case"),
        values,
        tuple(failures),
        frozenset((each.rule, each.message) for each in reader.warnings(run.id)),
    )
