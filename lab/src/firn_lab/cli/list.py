"""Lists plans, workloads with their options, targets and measures."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from firn_lab.measures import ROUND_MEASURES, STATE_MEASURES
from firn_lab.plan import PLANS
from firn_lab.targets import TARGETS
from firn_lab.workloads import WORKLOADS

NAME = "list"
HELP = "plans, workloads, targets and measures"


def arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def main(chosen: argparse.Namespace) -> int:
    console = Console(highlight=False)
    plans = Table("plan", "cases", "what", box=None)
    for name in PLANS:
        plan = PLANS[name]
        plans.add_row(name, str(len(plan.cases)), plan.summary)
    workloads = Table("workload", "what", "options", box=None)
    for name in WORKLOADS:
        kind = WORKLOADS[name]
        options = " ".join(f"{k}={v}" for k, v in getattr(kind, "options", {}).items())
        workloads.add_row(name, getattr(kind, "summary", ""), options)
    targets = Table("target", "what", box=None)
    for name in TARGETS:
        text = (TARGETS[name].__doc__ or "").strip().splitlines()
        targets.add_row(name, text[0] if text else "")
    measures = Table("measure", "figures", box=None)
    for registry in (ROUND_MEASURES, STATE_MEASURES):
        for name in registry:
            measure = registry[name]()
            costly = " (with --measure only)" if getattr(measure, "costly", False) else ""
            measures.add_row(name + costly, ", ".join(measure.figures))
    for table in (plans, workloads, targets, measures):
        console.print(table, "")
    return 0
