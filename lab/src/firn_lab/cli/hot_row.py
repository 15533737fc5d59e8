"""Measures thousands of sessions that update one row, some of which time out or are killed.

  firn-lab hot-row --sessions 100 1000 10000 --thread-pool
  firn-lab hot-row --sessions 10 50 --seconds 2 --blocks 2          # a look

Each session sends its next UPDATE of the same row when it has an answer. A twentieth of them wait
for a second at most, another twentieth meet KILL QUERY and KILL. Afterwards the count must be
exact, else the command fails. Rounds of the engines stand next to each other; a table, a picture
and a line for each round go to --out. The client takes one processor at most, and a small part of
it unless an engine commits tens of thousands of times a second: `client_cpu_seconds` tells.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from firn_lab.cli.common import STORE
from firn_lab.cli.numbers import above, at_least, new_directory
from firn_lab.cli.run import MEMORY_MIB_MIN, OTHER_CONNECTIONS, SCRATCH, remove_stale
from firn_lab.errors import UsageError
from firn_lab.hot_row.page import draw, page
from firn_lab.hot_row.record import Result, Times, measure
from firn_lab.hot_row.sessions import Mix
from firn_lab.plan import Plan
from firn_lab.processes import OTHER_DESCRIPTORS, allow_descriptors
from firn_lab.runner.prepared_plan import require_installed
from firn_lab.targets import Budget, make_target
from firn_lab.targets.mysql import MySqlTarget

NAME = "hot-row"
HELP = "thousands of sessions that update one row"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--targets", nargs="+", metavar="TARGET", default=list(Plan.targets))
    parser.add_argument(
        "--sessions", type=above(0), nargs="+", default=[100, 1000, 10_000], help="(%(default)s)"
    )
    parser.add_argument("--blocks", type=above(0), default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=above(0.0), default=10.0, help="of a round (%(default)s)")
    parser.add_argument("--lead-seconds", type=at_least(0.0), default=3.0, help="(%(default)s)")
    parser.add_argument(
        "--hasty",
        type=at_least(0.0),
        default=Mix.hasty,
        help="fraction that times out (%(default)s)",
    )
    parser.add_argument(
        "--killed", type=at_least(0.0), default=Mix.killed, help="fraction to kill (%(default)s)"
    )
    parser.add_argument(
        "--kills", type=at_least(0.0), default=Mix.kills_per_second, help="a second (%(default)s)"
    )
    parser.add_argument(
        "--thread-pool", action="store_true", help="thread_handling=pool-of-threads"
    )
    parser.add_argument("--memory", type=at_least(MEMORY_MIB_MIN), default=256, metavar="MIB")
    parser.add_argument("--dir", type=new_directory, default=SCRATCH)
    parser.add_argument("--out", type=Path, default=STORE.parent / "hot-row", metavar="DIR")


def main(chosen: argparse.Namespace) -> int:
    mixes = [
        Mix(count, chosen.hasty, chosen.killed, chosen.kills) for count in sorted(chosen.sessions)
    ]
    if chosen.hasty + chosen.killed > 1:
        raise UsageError("--hasty and --killed are fractions of all sessions")
    most = mixes[-1].sessions
    allow_descriptors(most + OTHER_DESCRIPTORS)
    scratch = (chosen.dir / f"run-{os.getpid()}").resolve()
    budget = Budget(
        chosen.memory << 20,
        thread_pool=chosen.thread_pool,
        connections=most + OTHER_CONNECTIONS,
    )
    targets = [private_mysql(spec, budget, scratch) for spec in chosen.targets]
    require_installed(targets)
    remove_stale(chosen.dir)
    scratch.mkdir(parents=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    try:
        for target in targets:
            target.start()
            target.create_database()
        times = Times(chosen.blocks, chosen.lead_seconds, chosen.seconds)
        with (chosen.out / "rounds.jsonl").open("w") as raw:
            for result in measure(targets, mixes, times, print):
                results.append(result)
                raw.write(json.dumps(result.raw()) + "\n")
                raw.flush()
                print(
                    f"block {result.block}  {result.target:10} {result.sessions:,} sessions: "
                    f"{result.commits_per_second:,.0f} commits/s, "
                    f"{result.cpu_us_per_commit:,.0f} µs each, at most "
                    f"{result.latency_max_ms:,.0f} ms"
                )
    finally:
        for target in targets:
            target.destroy()
        shutil.rmtree(scratch, ignore_errors=True)
        if results:
            (chosen.out / "hot-row.md").write_text(page(results), encoding="utf-8")
            draw(results, chosen.out / "hot-row.svg")
    print(page(results))
    return 0


def private_mysql(spec: str, budget: Budget, scratch: Path) -> MySqlTarget:
    """Makes a target of a private MariaDB. Raises UsageError for any other."""
    target = make_target(spec, budget, scratch)
    if not isinstance(target, MySqlTarget) or target.data_dir is None:
        raise UsageError(f"{spec}: only engines of a private MariaDB (engine:…) can be measured")
    return target
