"""Shows where processor time goes: a case under perf on each target, side by side.

  firn-lab profile oltp_point_select:tables=4,rows=100000
  firn-lab profile oltp_read_write --targets engine:firn@before=/tmp/ha_firn.so engine:firn@after

The unit is server microseconds per transaction, split into the server itself, the engine by layer,
shared libraries, and the kernel by cause (switch, sync, read, write, memory, network). A table, a
picture and the numbers go to --out. It needs perf (apt-get install linux-perf) and permission to
use it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from firn_lab.cli.common import STORE
from firn_lab.cli.numbers import above, new_directory
from firn_lab.cli.run import SCRATCH, remove_stale
from firn_lab.clock import SystemClock
from firn_lab.errors import UsageError
from firn_lab.plan import Plan, parse_case
from firn_lab.profile import page
from firn_lab.profile.perf import require
from firn_lab.profile.record import profile
from firn_lab.runner.prepared_plan import prepare_plan, require_installed
from firn_lab.targets import Budget
from firn_lab.workloads import Params

NAME = "profile"
HELP = "where processor time goes, engine beside engine (perf)"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="WORKLOAD", help="NAME[:key=value,…]")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", default=list(Plan.targets))
    parser.add_argument("--seconds", type=above(0.0), default=5.0, help="of a round (%(default)s)")
    parser.add_argument("--threads", type=above(0), default=8)
    parser.add_argument("--memory", type=above(0), default=512, metavar="MIB")
    parser.add_argument("--dir", type=new_directory, default=SCRATCH)
    parser.add_argument("--out", type=Path, default=STORE.parent / "profile", metavar="DIR")


def main(chosen: argparse.Namespace) -> int:
    require()
    base = Params(threads=chosen.threads, seconds=chosen.seconds, lead_seconds=1, warm_seconds=2)
    case = parse_case(chosen.case, base)
    plan = Plan("profile", "", (case,), tuple(chosen.targets), budget=Budget(chosen.memory << 20))
    scratch = (chosen.dir / f"run-{os.getpid()}").resolve()
    parts = prepare_plan(plan, scratch)
    require_installed(parts.targets)
    (workload,) = parts.workloads
    for target in parts.targets:
        lacks = workload.supports(target) or ("" if target.data_dir else "it is not ours to watch")
        if lacks:
            raise UsageError(f"{workload.label} on {target.name}: {lacks}")
    remove_stale(chosen.dir)
    scratch.mkdir(parents=True)
    try:
        found = profile(parts.targets, workload, SystemClock(), scratch, print)
    finally:
        for target in parts.targets:
            target.destroy()
        shutil.rmtree(scratch, ignore_errors=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    name = workload.name
    page.draw(workload.label, found, chosen.out / f"{name}.png")
    text = page.page(workload.label, found, f"{name}.png")
    (chosen.out / f"{name}.md").write_text(text, encoding="utf-8")
    numbers = json.dumps(page.to_json(workload.label, found), indent=1)
    (chosen.out / f"{name}.json").write_text(numbers + "\n")
    print(text.partition("## ")[0])
    for ending in ("md", "png", "json"):
        print(chosen.out / f"{name}.{ending}")
    return 0
