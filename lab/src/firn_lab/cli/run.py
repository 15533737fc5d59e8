"""Runs a plan, or workloads given one by one, and appends the results to the store.

  firn-lab run quick
  firn-lab run oltp_read_write oltp_point_select:threads=16,zipf=0.9 --targets engine:firn dsn:mysql://host
  firn-lab run oltp_read_write:cache=3 --memory 512 --within 1 --blocks 100
  firn-lab run oltp_read_write tpcc --threads 2 4 8 16 32
  firn-lab run oltp_point_select --targets engine:firn@before=/tmp/ha_firn.so engine:firn@after
  until firn-lab run full --resume; [ $? -ne 75 ]; do :; done     # slices of two hours

A workload is NAME[:key=value,…]. The keys are scale, threads, seconds, lead_seconds, warm_seconds,
seed, disk and the workload's own (firn-lab list). A case is measured in blocks, one short round on
each target, until its ratios are known to --within percent, or its time is over. Exit status 75
reports that a slice of a run is over and --resume continues it. Options of the command line
override those of a plan.
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
from firn_lab.cli.run_display import RunDisplay, summary
from firn_lab.clock import SystemClock
from firn_lab.disks import parse_disk
from firn_lab.errors import UsageError
from firn_lab.plan import PLANS, Case, Plan, parse_case
from firn_lab.plan.case import replace_params
from firn_lab.processes import OTHER_DESCRIPTORS, allow_descriptors
from firn_lab.runner.prepared_plan import (
    PreparedPlan,
    case_seconds,
    prepare_plan,
    require_installed,
)
from firn_lab.runner.resume import before
from firn_lab.runner.run import Runner
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget
from firn_lab.targets.dsn import redacted
from firn_lab.workloads import Params

NAME = "run"
HELP = "measure a plan or workloads"
SCRATCH = Path("lab-run")
MEMORY_MIB_MIN = 16
EXIT = {"ok": 0, "failed": 1, "aborted": 1, "paused": 75, "interrupted": 130}
SLICE_MINUTES = 120.0
# Connections that a server accepts besides those of a case's threads.
OTHER_CONNECTIONS = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", metavar="PLAN|WORKLOAD")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", help="such as engine:firn")
    add_measuring(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the plan's last run")
    parser.add_argument(
        "--slice-minutes", type=above(0.0), metavar="MINUTES", default=SLICE_MINUTES,
        help="a run with --resume pauses by then (%(default)s)",
    )  # fmt: skip
    add_store(parser)


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Adds the options that every measuring command takes."""
    parser.add_argument(
        "--within", type=above(0.0), metavar="PERCENT", help="a ratio known so well is enough (2.5)"
    )
    parser.add_argument("--blocks", type=above(0), help="of a case, at most (400)")
    parser.add_argument(
        "--minutes", type=above(0.0), help="of the whole run, with loads; none: 4 for each case"
    )
    parser.add_argument("--seconds", type=above(0.0), help="of each round")
    parser.add_argument(
        "--lead-seconds", type=at_least(0.0), help="of load in each round before it is measured"
    )
    parser.add_argument("--warm-seconds", type=at_least(0.0), help="before the first round")
    parser.add_argument("--threads", type=above(0), nargs="+", help="several: each case with each")
    parser.add_argument(
        "--disk", type=_disk, metavar="SPEED",
        help="of the tables in rounds, FIRN only: 120us, 500us/3000iops/125MBps",
    )  # fmt: skip
    parser.add_argument("--scale", type=above(0.0))
    parser.add_argument("--seed", type=at_least(0))
    parser.add_argument(
        "--memory", type=at_least(MEMORY_MIB_MIN), metavar="MIB", help="of each target's cache"
    )
    parser.add_argument("--not-durable", action="store_true", help="a sync a second, not a commit")
    parser.add_argument("--page-cache", action="store_true", help="no direct I/O")
    parser.add_argument(
        "--thread-pool", action="store_true", help="MariaDB with thread_handling=pool-of-threads"
    )
    parser.add_argument(
        "--new-servers", action="store_true", help="start each server anew for each round"
    )
    parser.add_argument("--measure", nargs="+", default=[], help="costly measures: ssd, csv")
    parser.add_argument(
        "--dir", type=new_directory, default=SCRATCH, help="data of servers (%(default)s)"
    )
    parser.add_argument(
        "--free", type=at_least(0), default=1024, metavar="MIB",
        help="stop when less is free (%(default)s)",
    )  # fmt: skip


def make_plan(chosen: argparse.Namespace) -> Plan:
    """Builds the plan that the command line requests."""
    names = ("seconds", "lead_seconds", "warm_seconds", "scale", "seed", "disk")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    sweep = [{**given, "threads": threads} for threads in chosen.threads or ()] or [given]
    if len(chosen.what) == 1 and chosen.what[0] in PLANS:
        plan = PLANS[chosen.what[0]]
        found = [
            dataclasses.replace(
                case, params=replace_params(case.params, fields, case.params.options)
            )
            for case in plan.cases
            for fields in sweep
        ]
    else:
        # A workload's text (NAME:key=value,…) overrides the options of the command line, so these
        # options form the base that the text is applied to.
        bases = [replace_params(Params(), fields, {}) for fields in sweep]
        found = [_case(text, base) for text in chosen.what for base in bases]
        plan = Plan("custom", "", ())
    # With a sweep over thread counts, a case that sets its own thread count would appear once for
    # each count; keep it once. So would cases of a plan of which an option replaces what they
    # differ in.
    repeats = len(sweep) > 1 or plan.name != "custom"
    cases = tuple(case for n, case in enumerate(found) if not repeats or case not in found[:n])
    threads = max((case.params.threads for case in cases), default=0)
    budget = Budget(
        memory_bytes=(chosen.memory or plan.budget.memory_bytes >> 20) << 20,
        durable=plan.budget.durable and not chosen.not_durable,
        direct_io=plan.budget.direct_io and not chosen.page_cache,
        thread_pool=plan.budget.thread_pool or chosen.thread_pool,
        new_servers=plan.budget.new_servers or chosen.new_servers,
        connections=max(plan.budget.connections, threads + OTHER_CONNECTIONS),
    )
    plan = dataclasses.replace(
        plan,
        cases=cases,
        targets=tuple(chosen.targets or plan.targets),
        within=plan.within if chosen.within is None else chosen.within / 100,
        blocks=plan.blocks if chosen.blocks is None else chosen.blocks,
        minutes=plan.minutes if chosen.minutes is None else chosen.minutes,
        budget=budget,
        measures=tuple(chosen.measure) or plan.measures,
    )
    _require_sense(plan)
    return plan


def _disk(text: str) -> str:
    """A parser of speeds for argparse."""
    try:
        return parse_disk(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _require_sense(plan: Plan) -> None:
    """Raises UsageError if a case of the plan has parameters out of range."""
    for case in plan.cases:
        params = case.params
        if params.threads < 1 or not (0 < params.seconds < inf and 0 < params.scale < inf):
            raise UsageError(f"{case.workload}: threads, seconds and scale must be above zero")
        if not (0 <= params.warm_seconds < inf and 0 <= params.lead_seconds < inf):
            raise UsageError(
                f"{case.workload}: warm_seconds and lead_seconds must be zero or above"
            )


def _case(text: str, base: Params) -> Case:
    if text in PLANS:
        raise UsageError(f"{text} is a plan, which stands alone: no workload beside it")
    return parse_case(text, base)


def main(chosen: argparse.Namespace) -> int:
    run, status, message = measure(make_plan(chosen), chosen, chosen.resume)
    with Reader(chosen.store) as store:
        summary(store, run)
    print(f"run {run} in {chosen.store}: {status}{': ' if message else ''}{message}")
    return EXIT[status]


def measure(plan: Plan, chosen: argparse.Namespace, resume: bool = False) -> tuple[int, str, str]:
    """Runs the plan; returns the run's id in the store, its status and a message."""
    scratch = (chosen.dir / f"run-{os.getpid()}").resolve()
    # Check everything before the store exists: a plan that cannot run leaves no trace in it.
    parts = prepare_plan(plan, scratch)
    require_installed(parts.targets)
    threads = max(each.params.threads for each in parts.workloads)
    allow_descriptors(threads + OTHER_DESCRIPTORS)
    store = chosen.store.resolve()
    found = before(store, plan, parts) if resume else None
    clock = SystemClock()
    writer = Writer(store, clock)
    chosen.dir.mkdir(parents=True, exist_ok=True)
    remove_stale(chosen.dir)
    print(promise(plan, parts) if found is None else f"run {found.run} goes on")
    command = ["firn-lab", *map(redacted, sys.argv[1:])]
    try:
        with RunDisplay() as view:
            runner = Runner(
                plan,
                writer,
                view.event,
                clock,
                scratch,
                command,
                chosen.free << 20,
                found,
                chosen.slice_minutes * 60 if resume else None,
            )
            status, message = runner.run()
            return runner.id, status, message
    finally:
        writer.close()


def promise(plan: Plan, parts: PreparedPlan) -> str:
    """Text with the expected time and the space of the largest data set on all targets."""
    count = len(parts.targets)
    minutes = plan.minutes or sum(case_seconds(plan, w, count) for w in parts.workloads) / 60
    time = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    extra = "" if plan.minutes else " of blocks at most, loads and rests come on top"
    largest = max(each.about_bytes for each in parts.workloads) * count
    return (
        f"{len(parts.workloads)} cases on {count} targets, to ±{plan.within:.1%}: {time}{extra}; "
        f"up to {largest / 2**30:.1f} GiB of data"
    )


def remove_stale(directory: Path) -> None:
    """Removes the data directories that killed labs left behind.

    The servers of these labs do not run any more, because the guard process ended them.
    """
    for path in directory.glob("run-*"):
        number = path.name.removeprefix("run-")
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(path, ignore_errors=True)
