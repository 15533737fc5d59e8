"""Measures which differences the lab can detect, on servers whose true ratio is known.

  firn-lab prove same                      # InnoDB beside itself: twenty runs of four minutes
  firn-lab prove slower --before build/plugin/ha_firn.so --after build/spin/ha_firn.so

`slower` takes two builds of the plugin. `scripts/lab.sh spin` makes the second one, which spins in
each statement so long that a transaction takes --percent longer. Raw data, a page and a picture go
to --out after each run, and an interrupted command continues after its last finished run. Exit
status 1 when the proof fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

from firn_lab.cli.common import add_store
from firn_lab.cli.numbers import above
from firn_lab.cli.run import SCRATCH, measure
from firn_lab.errors import LabError, UsageError
from firn_lab.plan import Case, Plan, parse_case
from firn_lab.plan.case import replace_params
from firn_lab.proof.record import ProofRun, append, read
from firn_lab.proof.summary import draw, page, passed
from firn_lab.report.conclusions import ratio_text
from firn_lab.report.report_data import collect
from firn_lab.store import Reader
from firn_lab.targets import Budget
from firn_lab.workloads import Params

NAME = "prove"
HELP = "what the lab can tell apart: servers beside themselves, and a slower build"
OUT = Path("docs/results/proofs")
SPIN = "FIRN_LAB_SPIN_NS"
# By kind of proof: the number of runs, and the measured case. The slower build of the plugin spins
# for a fixed time in each statement. The case of `slower` has one statement in a transaction, so
# each transaction takes longer by exactly that time.
DEFAULTS = {
    "same": (20, "oltp_read_write:tables=4,rows=100000"),
    "slower": (5, "oltp_point_select:tables=4,rows=100000"),
}
# Number of blocks (a round on each target) of the calibration, a run that measures how much
# processor time a transaction takes.
CALIBRATION_BLOCKS = 60
BASE = Params(threads=8, seconds=0.5, lead_seconds=0.05, warm_seconds=5)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=sorted(DEFAULTS))
    parser.add_argument("--runs", type=above(0), help="20, or 5")
    parser.add_argument("--minutes", type=above(0.0), default=4.0, help="of a run (%(default)s)")
    parser.add_argument("--case", help="NAME[:key=value,…] (oltp_read_write, oltp_point_select)")
    parser.add_argument("--before", type=Path, metavar="PLUGIN", help="of slower")
    parser.add_argument("--after", type=Path, metavar="PLUGIN", help="of slower")
    parser.add_argument("--percent", type=above(0.0), default=5.0, help="of slower (%(default)s)")
    parser.add_argument("--memory", type=above(0), default=256, metavar="MIB")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    parser.add_argument("--dir", type=Path, default=SCRATCH)
    parser.set_defaults(free=1024, slice_minutes=None)
    add_store(parser)


def main(chosen: argparse.Namespace) -> int:
    runs, case = DEFAULTS[chosen.what]
    runs, found = chosen.runs or runs, parse_case(chosen.case or case, BASE)
    raw = chosen.out / f"{chosen.what}.csv"
    done = read(raw)
    truth, targets = 1.0, ("engine:innodb@a", "engine:innodb@b")
    if chosen.what == "slower":
        truth, targets = 1 / (1 + chosen.percent / 100), _builds(chosen)
        if len(done) < runs:
            os.environ[SPIN] = str(_spin_ns(chosen, found, targets[0]))
    for number in range(len(done), runs):
        plan = _plan(chosen, found, targets, number)
        run = _measured(plan, chosen)
        with Reader(chosen.store) as store:
            append(raw, number, truth, collect(store, run))
        done = read(raw)
        last = done[-1]
        words = "holds" if last.holds else "does not hold"
        print(f"run {number + 1} of {runs}: {ratio_text(last.ratio)} {words} {truth:.3f}")
        _report(chosen, found, done)
    return 0 if passed(done) else 1


def _builds(chosen: argparse.Namespace) -> tuple[str, str]:
    if chosen.before is None or chosen.after is None:
        raise UsageError("slower takes two builds: --before PLUGIN --after PLUGIN")
    return f"engine:firn@1={chosen.before.resolve()}", f"engine:firn@2={chosen.after.resolve()}"


def _plan(chosen: argparse.Namespace, case: Case, targets: tuple[str, ...], number: int) -> Plan:
    """The plan of one run of the proof, which lasts until its time is over.

    Each run has a seed of its own, hence rows of its own.
    """
    fields = {"seed": case.params.seed + number}
    case = Case(case.workload, replace_params(case.params, fields, case.params.options))
    return Plan(
        f"prove {chosen.what}",
        "",
        (case,),
        targets,
        within=0.0,
        blocks=10_000,
        minutes=chosen.minutes,
        budget=Budget(memory_bytes=chosen.memory << 20),
    )


def _measured(plan: Plan, chosen: argparse.Namespace) -> int:
    run, status, message = measure(plan, chosen)
    if status == "interrupted":
        raise KeyboardInterrupt
    if status != "ok":
        raise LabError(f"run {run} counts for nothing: {message}")
    return run


def _spin_ns(chosen: argparse.Namespace, case: Case, target: str) -> int:
    """Nanoseconds that the slower build spins in each transaction.

    They are a percentage of the processor time that server and load driver use per transaction:
    eight sessions leave no processor idle, so processor time determines throughput. Other load on
    the machine does not change processor time.
    """
    plan = dataclasses.replace(_plan(chosen, case, (target,), 0), blocks=CALIBRATION_BLOCKS)
    run = _measured(plan, chosen)
    with Reader(chosen.store) as store:
        (result,) = collect(store, run).results
    server_us = result.figures["cpu_us_per_transaction"].value
    share = result.total("client_cpu_seconds") / result.total("cpu_seconds")
    each_us = server_us * (1 + share)
    found: int = round(each_us * 1e3 * chosen.percent / 100)
    print(f"{each_us:.1f} µs a transaction: {chosen.percent:g} % are {found} ns of spinning each")
    return found


def _report(chosen: argparse.Namespace, case: Case, done: list[ProofRun]) -> None:
    """Writes the page and the picture of the runs so far."""
    titles = {
        "same": "InnoDB beside itself",
        "slower": f"A build that spins {chosen.percent:g} % longer",
    }
    title, picture = titles[chosen.what], f"{chosen.what}.png"
    about = (
        f"Runs of {chosen.minutes:g} minutes with loads and warm-up, each with servers, rows and "
        f"draws of its own: {case.workload}, {case.params.threads} threads, rounds of "
        f"{case.params.seconds:g} s after a lead of {case.params.lead_seconds:g} s. "
        f"Raw data: [{chosen.what}.csv]({chosen.what}.csv)."
    )
    draw(title, done, chosen.out / picture)
    (chosen.out / f"{chosen.what}.md").write_text(page(title, about, done, picture))
