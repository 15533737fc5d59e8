#!/usr/bin/env python3
"""FIRN beside InnoDB and MyRocks: cached sysbench, durable commits, interleaved rounds, medians.

    make && scripts/bench-sysbench.py --out docs/benchmarks.md

Each engine has a server of its own, with the same cache memory and one sync for every commit; only
one server runs at a time while it is measured, the others wait with warm caches. A round runs one
workload on every engine in turn, so that a noisy machine hits all alike; the table shows medians
and ratios to InnoDB of the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from server import Server, remove_scratch  # noqa: E402
from sysbench import Load  # noqa: E402

WORKLOADS = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "oltp_write_only",
    "oltp_read_write",
]


def options(engine: str, memory: int) -> list[str]:
    """Server options that give the engine `memory` bytes of cache and durable commits."""
    # What an engine does not use is kept small, so that the machine's memory serves the one tested.
    pool = memory if engine == "InnoDB" else 32 << 20
    shared = [
        f"--innodb-buffer-pool-size={pool}",
        "--innodb-log-file-size=2G",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-flush-method=O_DIRECT",
        "--max-prepared-stmt-count=100000",
        "--performance-schema=OFF",
    ]
    if engine == "FIRN":
        # Both caches and memtables come out of the same memory as InnoDB's pool.
        memtable = min(64 << 20, memory // 8)
        return [
            *shared,
            f"--firn-block-cache-size={memory - 3 * memtable}",
            f"--firn-memtable-size={memtable}",
            "--firn-flush-log-at-trx-commit=1",
        ]
    if engine == "ROCKSDB":
        return [
            *shared,
            f"--rocksdb-block-cache-size={memory}",
            "--rocksdb-flush-log-at-trx-commit=1",
        ]
    return shared


def data_bytes(server: Server, engine: str) -> int:
    """Bytes on disk of the sysbench tables, without the engine's log."""
    if engine == "InnoDB":
        files = list((server.data / "sbtest").glob("*.ibd"))
    elif engine == "ROCKSDB":
        files = list((server.data / "#rocksdb").glob("*.sst"))
    else:
        return int(server.query("SELECT SUM(stored_bytes) FROM information_schema.firn_levels")[0][0])
    return sum(path.stat().st_blocks * 512 for path in files)


class Engine:
    """One engine's server with loaded tables."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        memory = arguments.memory << 20
        self.server = Server(options(name, memory), engine=name)
        self.server.start()
        self.server.query("CREATE DATABASE sbtest")
        self.load = Load(self.server.socket, "sbtest", name, arguments.tables, arguments.rows)
        began = time.monotonic()
        self.load.prepare(threads=2)
        self.prepare_seconds = time.monotonic() - began
        self._settle(arguments.tables)
        self.bytes = data_bytes(self.server, name)

    def _settle(self, tables: int) -> None:
        """Brings the tables to rest: statistics, and one sorted run where there are runs."""
        for number in range(1, tables + 1):
            if self.name != "InnoDB":
                self.server.query(f"OPTIMIZE TABLE sbtest.sbtest{number}")
            self.server.query(f"ANALYZE TABLE sbtest.sbtest{number}")
            self.server.query(f"SELECT SUM(LENGTH(c)) FROM sbtest.sbtest{number}")


def machine() -> str:
    """Processor and kernel, in a line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        "unknown processor",
    )  # fmt: skip
    kernel = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout
    return f"{model}, Linux {kernel.strip()}"


def table(
    engines: list[Engine],
    results: dict[tuple[str, str], list[float]],
    arguments: argparse.Namespace,
) -> str:
    """The results as Markdown."""
    names = [engine.name for engine in engines]
    others = [name for name in names if name != "InnoDB"]
    has_innodb = "InnoDB" in names
    head = ["transactions/s", *names, *(f"{name} / InnoDB" for name in others if has_innodb)]
    lines = [
        f"sysbench, {arguments.tables} tables × {arguments.rows:,} rows, {arguments.threads} "
        f"threads, {arguments.memory} MiB cache each, {arguments.seconds} s × "
        f"{arguments.rounds} rounds (median), one sync per commit, binary log off.",
        f"{machine()}.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
    ]
    for workload in arguments.workloads:
        medians = {name: statistics.median(results[name, workload]) for name in names}
        cells = [workload, *(f"{medians[name]:,.0f}" for name in names)]
        if has_innodb:
            cells += [f"{medians[name] / medians['InnoDB']:.2f}" for name in others]
        lines.append("| " + " | ".join(cells) + " |")
    for what, value, form in (
        ("disk after load, MiB", lambda engine: engine.bytes / 2**20, ",.0f"),
        ("load, s", lambda engine: engine.prepare_seconds, ".1f"),
    ):
        cells = [what, *(format(value(engine), form) for engine in engines)]
        if has_innodb:
            base = value(next(engine for engine in engines if engine.name == "InnoDB"))
            cells += [f"{value(e) / base:.2f}" for e in engines if e.name != "InnoDB"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", default=["InnoDB", "FIRN", "ROCKSDB"])
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--tables", type=int, default=4)
    parser.add_argument("--rows", type=int, default=500_000, help="in each table")
    parser.add_argument("--seconds", type=int, default=15, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=2048, help="cache of each engine, MiB")
    parser.add_argument("--out", type=Path, help="also write the table here")
    return parser.parse_args()


def main() -> None:
    """Loads, measures, prints."""
    chosen = arguments()
    engines: list[Engine] = []
    try:
        for name in chosen.engines:
            engines.append(Engine(name, chosen))
            print(f"{name}: loaded in {engines[-1].prepare_seconds:.1f} s", flush=True)
        results: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number in range(chosen.rounds):
            for workload in chosen.workloads:
                # Turn the order round by round: nobody always comes after the same neighbour.
                for engine in engines[number % len(engines) :] + engines[: number % len(engines)]:
                    speed = engine.load.run(workload, chosen.threads, chosen.seconds)
                    results[engine.name, workload].append(speed)
                    print(f"round {number} {workload} {engine.name}: {speed:.0f}/s", flush=True)
        text = table(engines, results, chosen)
        print(text)
        if chosen.out:
            chosen.out.write_text(text)
    finally:
        for engine in engines:
            engine.server.destroy()
        remove_scratch()


if __name__ == "__main__":
    main()
