"""Loads much data into many tables, updates it, restarts and kills the server, and watches it.

  firn-lab volume --gb 30 --tables 10000
  firn-lab volume --gb 30 --tables 10000 --descriptors 512
  firn-lab volume --gb 0.3 --tables 300 --update-seconds 5        # two minutes

--gb are the user's bytes, 186 a row; what they take on disk is reported beside them. All tables but
--large have --small-rows rows. Each second memory, FIRN_MEMORY, descriptors, threads and files are
taken. All rows are counted in the end, and no answered update may be missing after the kill, else
the command fails. Samples, phases, a table and a picture of each target go to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from firn_lab.cli.common import STORE
from firn_lab.cli.hot_row import private_mysql
from firn_lab.cli.numbers import above, at_least, new_directory
from firn_lab.cli.run import MEMORY_MIB_MIN, SCRATCH, remove_stale
from firn_lab.errors import UsageError
from firn_lab.runner.disk_watch import DiskWatch
from firn_lab.runner.machine import machine, require_space
from firn_lab.runner.prepared_plan import require_installed
from firn_lab.targets import Budget
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.volume.life import Life
from firn_lab.volume.page import draw, page
from firn_lab.volume.rows import Tables, plan_tables

NAME = "volume"
HELP = "much data in many tables: load, updates, restarts, a kill"
GB = 1e9
# The most that the tables of an engine take for each of the user's bytes, with what is written
# before old files are removed. InnoDB takes 1.73 after a load in order.
DISK_FACTORS = {"innodb": 2.0}
DISK_FACTOR = 1.2
# The most that logs take.
LOG_BYTES = 2 << 30


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gb", type=above(0.0), default=30.0, help="10^9 bytes (%(default)s)")
    parser.add_argument("--tables", type=above(0), default=10_000, help="(%(default)s)")
    parser.add_argument("--large", type=above(0), default=10, help="tables (%(default)s)")
    parser.add_argument("--small-rows", type=above(0), default=1000, help="(%(default)s)")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", default=["engine:firn"])
    parser.add_argument("--threads", type=above(0), default=8, help="that update (%(default)s)")
    parser.add_argument("--update-seconds", type=above(0.0), default=120.0, help="(%(default)s)")
    parser.add_argument(
        "--descriptors", type=above(0), help="limit on open files of the server (ulimit -n)"
    )
    parser.add_argument("--memory", type=at_least(MEMORY_MIB_MIN), default=1024, metavar="MIB")
    parser.add_argument("--dir", type=new_directory, default=SCRATCH)
    parser.add_argument(
        "--free", type=at_least(0), default=2048, metavar="MIB",
        help="stop when less is free (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=STORE.parent / "volume", metavar="DIR")


def main(chosen: argparse.Namespace) -> int:
    tables = plan_tables(chosen.gb * GB, chosen.tables, chosen.large, chosen.small_rows)
    scratch = (chosen.dir / f"run-{os.getpid()}").resolve()
    budget = Budget(chosen.memory << 20, descriptors=chosen.descriptors)
    targets = [private_mysql(spec, budget, scratch) for spec in chosen.targets]
    require_installed(targets)
    remove_stale(chosen.dir)
    scratch.mkdir(parents=True)
    try:
        needed = max(disk_bytes(target.engine, tables) for target in targets)
        require_room(scratch, needed + (chosen.free << 20))
        print(
            f"{len(tables.all):,} tables, {tables.rows:,} rows, {tables.user_bytes / GB:.2f} GB of "
            f"the user's; up to {needed / GB:.0f} GB on disk"
        )
        with DiskWatch(lambda: require_space(scratch, chosen.free << 20)):
            for target in targets:
                _live(target, tables, chosen)
    finally:
        for target in targets:
            target.destroy()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _live(target: MySqlTarget, tables: Tables, chosen: argparse.Namespace) -> None:
    """Runs the life of one target, and writes what is known of it whatever happens."""
    name = target.name + (f"-{chosen.descriptors}" if chosen.descriptors else "")
    chosen.out.mkdir(parents=True, exist_ok=True)
    life = Life(target, tables, chosen.threads, chosen.update_seconds, print)
    raw = chosen.out / f"{name}.samples.jsonl"
    print(f"{name}:")
    try:
        life.run(raw)
    finally:
        target.destroy()
        lines = raw.read_text().splitlines() if raw.exists() else []
        samples = [json.loads(line) for line in lines]
        title = (
            f"{name}: {len(tables.all):,} tables, {tables.user_bytes / GB:.2f} GB of the user's, "
            f"{chosen.memory} MiB"
        )
        about = {
            "title": title,
            "machine": machine(chosen.dir),
            "tables": len(tables.all),
            "rows": tables.rows,
            "user_bytes": tables.user_bytes,
            "phases": [phase.raw() for phase in life.phases],
        }
        (chosen.out / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
        text = f"{title}\n\n{page(life.phases, samples)}"
        (chosen.out / f"{name}.md").write_text(text, encoding="utf-8")
        limits = {"descriptors": float(chosen.descriptors)} if chosen.descriptors else {}
        draw(title, life.phases, samples, limits, chosen.out / f"{name}.svg")
    print(text)


def disk_bytes(engine: str, tables: Tables) -> int:
    """The most that the engine's files will take."""
    return int(tables.user_bytes * DISK_FACTORS.get(engine, DISK_FACTOR)) + LOG_BYTES


def require_room(directory: Path, bytes_min: int) -> None:
    """Raises UsageError if the data will not fit."""
    free = shutil.disk_usage(directory).free
    if free < bytes_min:
        raise UsageError(
            f"{bytes_min / GB:.0f} GB may be needed, {free / GB:.0f} GB are free in {directory}: "
            "name another place with --dir, or less with --gb"
        )
