#!/usr/bin/env python3
"""FIRN, InnoDB and MyRocks under stock sysbench: durable commits, interleaved rounds, medians.

    make && scripts/bench-sysbench.py --out build/cached.md
    scripts/bench-sysbench.py --rows 2500000 --memory 256 --threads 16 --direct --rounds 1 --seconds 60

Each engine has a server of its own, with the same cache memory and one sync for every commit. Only
one server runs at a time; the others are frozen with warm caches. A round runs one workload on
every engine in turn, so that noise of the machine affects all alike. The table shows medians, and
ratios to InnoDB within the same rounds. After each run the server gets time for its deferred work
(compactions, dirty pages): that time is not measured, but its bytes and processor time are.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from bench_process import Used, used  # noqa: E402
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


# Group commits with one sync of the binary log each, and one of the engine's log at prepare.
BINLOG = ["--log-bin=binlog", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]


def options(engine: str, memory: int, direct: bool, binlog: bool) -> list[str]:
    """Server options that give the engine `memory` bytes of cache and durable commits.

    With `direct` the engine bypasses the page cache; with `binlog` the server writes a binary log.
    """
    # Keep the pool of an unused InnoDB small, so that it takes no memory from the tested engine.
    pool = memory if engine == "InnoDB" else 32 << 20
    shared = [
        f"--innodb-buffer-pool-size={pool}",
        "--innodb-log-file-size=2G",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-flush-method=O_DIRECT",
        "--max-prepared-stmt-count=100000",
        "--performance-schema=OFF",
        *(BINLOG if binlog else []),
    ]
    if engine == "FIRN":
        return [
            *shared,
            f"--firn-memory-limit={memory}",
            "--firn-flush-log-at-trx-commit=1",
            *(["--firn-direct-reads=ON"] if direct else []),
        ]
    if engine == "ROCKSDB":
        # The usual tuning of MyRocks: LZ4 in the upper levels, ZSTD in the last one, filters.
        return [
            *shared,
            f"--rocksdb-block-cache-size={memory}",
            "--rocksdb-flush-log-at-trx-commit=1",
            "--rocksdb-default-cf-options=compression=kLZ4Compression;"
            "bottommost_compression=kZSTD;block_based_table_factory={block_size=16384;"
            "filter_policy=bloomfilter:10:false;cache_index_and_filter_blocks=0}",
            *(
                ["--rocksdb-use-direct-reads=ON"] + ["--rocksdb-use-direct-io-for-flush-and-compaction=ON"]
                if direct
                else []
            ),
        ]
    return shared


READS = {"oltp_point_select", "oltp_read_only"}
SETTLE_SECONDS_MAX = 240


@dataclass(frozen=True)
class Run:
    """One run of one workload: transactions per second, and costs per transaction."""

    speed: float
    processor_us: float
    written_kib: float
    settle_seconds: float


class Engine:
    """One engine's server with loaded tables."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        memory = arguments.memory << 20
        self.server = Server(options(name, memory, arguments.direct, arguments.binlog), engine=name)
        self.server.start()
        self.server.query("CREATE DATABASE sbtest")
        self.load = Load(self.server.socket, "sbtest", name, arguments.tables, arguments.rows)
        self.busy_bytes = 0
        began = time.monotonic()
        self.load.prepare(threads=2)
        self.prepare_seconds = time.monotonic() - began
        self.loaded_bytes = self.data_bytes()
        self._rest(arguments.tables)
        self.rest_bytes = self.data_bytes()

    def data_bytes(self) -> int:
        """Bytes on disk of the sysbench tables, without the engine's log."""
        if self.name == "FIRN":
            levels = "SELECT SUM(stored_bytes) FROM information_schema.firn_levels"
            return int(self.server.query(levels)[0][0])
        innodb = self.name == "InnoDB"
        files = self.server.data.glob("sbtest/*.ibd" if innodb else "#rocksdb/*.sst")
        return sum(path.stat().st_blocks * 512 for path in files)

    def _rest(self, tables: int) -> None:
        """Brings the tables to rest. FIRN does so by itself; MyRocks needs OPTIMIZE."""
        for number in range(1, tables + 1):
            if self.name == "ROCKSDB":
                self.server.query(f"OPTIMIZE TABLE sbtest.sbtest{number}")
            self.server.query(f"ANALYZE TABLE sbtest.sbtest{number}")
            self.server.query(f"SELECT SUM(LENGTH(c)) FROM sbtest.sbtest{number}")
        self.settle()

    def _pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    def freeze(self) -> None:
        """Freezes the server with SIGSTOP; its caches stay warm."""
        os.kill(self._pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Resumes the frozen server."""
        os.kill(self._pid(), signal.SIGCONT)

    def used(self) -> Used:
        """Resources that the server has used so far."""
        return used(self._pid())

    def settle(self) -> float:
        """Makes the server write its dirty data, and waits a few minutes at most until it rests.

        Returns the seconds that this took. FIRN reaches its resting state by itself.
        """
        began = time.monotonic()
        if self.name == "InnoDB":
            self.server.query("SET GLOBAL innodb_max_dirty_pages_pct = 0")
        elif self.name == "ROCKSDB":
            self.server.query("SET GLOBAL rocksdb_force_flush_memtable_now = 1")
        quiet = 0
        while quiet < 4 and time.monotonic() - began < SETTLE_SECONDS_MAX:
            before = self.used().processor_seconds
            time.sleep(1)
            quiet = quiet + 1 if self.used().processor_seconds - before < 0.1 else 0
        if self.name == "InnoDB":
            self.server.query("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")
        return time.monotonic() - began

    def run(self, workload: str, threads: int, seconds: int) -> Run:
        """Runs a workload; its costs include the work that it leaves behind."""
        before = self.used()
        speed = self.load.run(workload, threads, seconds)
        if workload not in READS:
            self.busy_bytes = self.data_bytes()
        debt = self.settle()
        used = self.used()
        count = speed * seconds
        return Run(
            speed,
            (used.processor_seconds - before.processor_seconds) / count * 1e6,
            (used.written_bytes - before.written_bytes) / count / 1024,
            debt,
        )


def machine() -> str:
    """Processor and kernel in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        "unknown processor",
    )  # fmt: skip
    kernel = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout
    return f"{model}, Linux {kernel.strip()}"


def row(what: str, engines: list[Engine], form: str, value: Callable[[Engine], float | None]) -> str:
    """A row of the results in Markdown: a value for each engine, then the ratios to InnoDB."""
    values = {engine.name: value(engine) for engine in engines}
    base = values.get("InnoDB")
    cells = [what, *("" if v is None else format(v, form) for v in values.values())]
    for name, v in values.items():
        if base is not None and name != "InnoDB":
            cells.append("" if v is None or base == 0 else f"{v / base:.2f}")
    return "| " + " | ".join(cells) + " |"


def table(
    engines: list[Engine],
    results: dict[tuple[str, str], list[Run]],
    arguments: argparse.Namespace,
) -> str:
    """The results as Markdown."""
    names = [engine.name for engine in engines]
    others = [name for name in names if name != "InnoDB" and "InnoDB" in names]
    ratios = [f"{name} / InnoDB" for name in others]
    io = ", direct I/O" if arguments.direct else ""
    lines = [
        f"sysbench, {arguments.tables} tables × {arguments.rows:,} rows, {arguments.threads} "
        f"threads, {arguments.memory} MiB of memory each{io}, {arguments.seconds} s × "
        f"{arguments.rounds} rounds (median), one sync per commit, "
        f"{'a synced binary log' if arguments.binlog else 'binary log off'}.",
        f"{machine()}.",
    ]

    def part(title: str, form: str, value: Callable[[Run], float]) -> None:
        head = [title, *names, *ratios]
        lines.extend(["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"])
        for workload in arguments.workloads:
            lines.append(
                row(
                    workload,
                    engines,
                    form,
                    lambda e, w=workload: statistics.median(value(run) for run in results[e.name, w]),
                )
            )

    part("transactions/s", ",.0f", lambda run: run.speed)
    part("processor time, µs/transaction", ",.0f", lambda run: run.processor_us)
    part("KiB written/transaction", ",.1f", lambda run: run.written_kib)
    part("s to rest afterwards", ",.0f", lambda run: run.settle_seconds)
    head = ["", *names, *ratios]
    lines.extend(["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"])
    mib = 2**20
    lines += [
        row("load, s", engines, ".1f", lambda e: e.prepare_seconds),
        row("disk after load, MiB", engines, ",.0f", lambda e: e.loaded_bytes / mib),
        row("disk at rest, MiB", engines, ",.0f", lambda e: e.rest_bytes / mib),
        row(
            "disk right after the last workload that writes, MiB",
            engines,
            ",.0f",
            lambda e: e.busy_bytes / mib if e.busy_bytes else None,
        ),
        row("disk at rest in the end, MiB", engines, ",.0f", lambda e: e.data_bytes() / mib),
    ]
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
    parser.add_argument("--memory", type=int, default=2048, help="of each engine, MiB")
    parser.add_argument("--direct", action="store_true", help="read and write past the page cache")
    parser.add_argument("--binlog", action="store_true", help="with a binary log, synced")
    parser.add_argument("--out", type=Path, help="also write the table here")
    return parser.parse_args()


def main() -> None:
    """Loads the engines, measures them, and prints the results."""
    chosen = arguments()
    engines: list[Engine] = []
    try:
        for name in chosen.engines:
            engines.append(Engine(name, chosen))
            print(f"{name}: loaded in {engines[-1].prepare_seconds:.1f} s", flush=True)
            engines[-1].freeze()
        results: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for number in range(chosen.rounds):
            for workload in chosen.workloads:
                # Rotate the order by round, so that no engine always follows the same neighbour.
                for engine in engines[number % len(engines) :] + engines[: number % len(engines)]:
                    engine.thaw()
                    run = engine.run(workload, chosen.threads, chosen.seconds)
                    engine.freeze()
                    results[engine.name, workload].append(run)
                    print(
                        f"round {number} {workload} {engine.name}: {run.speed:.0f}/s, "
                        f"{run.processor_us:.0f} µs, {run.written_kib:.1f} KiB, "
                        f"at rest after {run.settle_seconds:.0f} s",
                        flush=True,
                    )
        for engine in engines:
            engine.thaw()
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
