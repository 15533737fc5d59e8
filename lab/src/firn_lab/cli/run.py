"""Runs a plan, or workloads given one by one, and appends the results to the store.

  firn-lab run quick
  firn-lab run oltp_read_write oltp_point_select:threads=16,zipf=0.9 --targets engine:firn dsn:mysql://host
  firn-lab run oltp_read_write:cache=3 --memory 512 --rounds 5 --seconds 30
  firn-lab run oltp_read_write tpcc --threads 2 4 8 16 32

A workload is NAME[:key=value,…]; keys are scale, threads, seconds, warm_seconds, seed and the
workload's own (firn-lab list). Options of the command line override those of a plan.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from math import inf
from pathlib import Path

from firn_lab.cli.common import add_store
from firn_lab.cli.numbers import above, at_least, new_directory
from firn_lab.cli.view import View, summary
from firn_lab.clock import SystemClock
from firn_lab.errors import UsageError
from firn_lab.plan import PLANS, Case, Plan, parse_case
from firn_lab.plan.base import replace_params
from firn_lab.runner.parts import Parts, parts_of, planned_seconds, require_installed
from firn_lab.runner.run import Runner
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget
from firn_lab.targets.dsn import redacted
from firn_lab.workloads import Params

NAME = "run"
HELP = "measure a plan or workloads"
SCRATCH = Path("lab-run")
MEMORY_MIB_MIN = 16
EXIT = {"ok": 0, "failed": 1, "aborted": 1, "interrupted": 130}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", metavar="PLAN|WORKLOAD")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", help="such as engine:firn")
    parser.add_argument("--rounds", type=above(0))
    parser.add_argument("--seconds", type=above(0.0), help="of each round")
    parser.add_argument("--warm-seconds", type=at_least(0.0))
    parser.add_argument("--threads", type=above(0), nargs="+", help="several: each case with each")
    parser.add_argument("--scale", type=above(0.0))
    parser.add_argument("--seed", type=at_least(0))
    parser.add_argument(
        "--memory", type=at_least(MEMORY_MIB_MIN), metavar="MIB", help="of each target's cache"
    )
    parser.add_argument("--not-durable", action="store_true", help="a sync a second, not a commit")
    parser.add_argument("--page-cache", action="store_true", help="no direct I/O")
    parser.add_argument("--measure", nargs="+", default=[], help="costly measures: ssd, csv")
    add_store(parser)
    parser.add_argument(
        "--dir", type=new_directory, default=SCRATCH, help="data of servers (%(default)s)"
    )
    parser.add_argument(
        "--free", type=at_least(0), default=1024, metavar="MIB",
        help="stop when less is free (%(default)s)",
    )  # fmt: skip


def make_plan(chosen: argparse.Namespace) -> Plan:
    """The plan that the command line asks for."""
    names = ("seconds", "warm_seconds", "scale", "seed")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    sweep = [{**given, "threads": threads} for threads in chosen.threads or ()] or [given]
    if len(chosen.what) == 1 and chosen.what[0] in PLANS:
        plan = PLANS[chosen.what[0]]
        found = [
            Case(case.workload, replace_params(case.params, fields, case.params.options))
            for case in plan.cases
            for fields in sweep
        ]
    else:
        # What a workload of the command line says of itself goes before the options.
        bases = [replace_params(Params(), fields, {}) for fields in sweep]
        found = [_case(text, base) for text in chosen.what for base in bases]
        plan = Plan("custom", "", ())
    # A case that names its threads is one for all of a sweep.
    cases = tuple(case for n, case in enumerate(found) if len(sweep) == 1 or case not in found[:n])
    budget = Budget(
        memory_bytes=(chosen.memory or plan.budget.memory_bytes >> 20) << 20,
        durable=plan.budget.durable and not chosen.not_durable,
        direct_io=plan.budget.direct_io and not chosen.page_cache,
    )
    plan = dataclasses.replace(
        plan,
        cases=cases,
        targets=tuple(chosen.targets or plan.targets),
        rounds=plan.rounds if chosen.rounds is None else chosen.rounds,
        budget=budget,
        measures=tuple(chosen.measure) or plan.measures,
    )
    _require_sense(plan)
    return plan


def _require_sense(plan: Plan) -> None:
    """Numbers that a case brings along."""
    for case in plan.cases:
        params = case.params
        if params.threads < 1 or not (0 < params.seconds < inf and 0 < params.scale < inf):
            raise UsageError(f"{case.workload}: threads, seconds and scale must be above zero")
        if not 0 <= params.warm_seconds < inf:
            raise UsageError(f"{case.workload}: warm_seconds must be zero or above")


def _case(text: str, base: Params) -> Case:
    if text in PLANS:
        raise UsageError(f"{text} is a plan, which stands alone: no workload beside it")
    return parse_case(text, base)


def main(chosen: argparse.Namespace) -> int:
    plan = make_plan(chosen)
    scratch = (chosen.dir / f"run-{os.getpid()}").resolve()
    # Before there is a store: what cannot run leaves nothing in it.
    parts = parts_of(plan, scratch)
    require_installed(parts.targets)
    clock = SystemClock()
    writer = Writer(chosen.store.resolve(), clock)
    chosen.dir.mkdir(parents=True, exist_ok=True)
    remove_stale(chosen.dir)
    print(promise(plan, parts))
    command = ["firn-lab", *map(redacted, sys.argv[1:])]
    try:
        with View() as view:
            runner = Runner(plan, writer, view.event, clock, scratch, command, chosen.free << 20)
            status, message = runner.run()
    finally:
        writer.close()
    with Reader(chosen.store) as store:
        summary(store, runner.id)
    print(f"run {runner.id} in {chosen.store}: {status}{': ' if message else ''}{message}")
    return EXIT[status]


def promise(plan: Plan, parts: Parts) -> str:
    """How long it takes at least, and the room for the largest data, as InnoDB stores it."""
    minutes = planned_seconds(plan, parts) / 60
    time = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    largest = max(each.about_bytes for each in parts.workloads) * len(parts.targets)
    return (
        f"{len(parts.workloads)} cases on {len(parts.targets)} targets, {plan.rounds} rounds: "
        f"{time} of rounds and warm-up, loads and rests come on top; "
        f"up to {largest / 2**30:.1f} GiB of data"
    )


def remove_stale(directory: Path) -> None:
    """Data of labs that were killed: their servers were ended by the guard."""
    for path in directory.glob("run-*"):
        number = path.name.removeprefix("run-")
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(path, ignore_errors=True)
