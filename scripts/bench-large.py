#!/usr/bin/env python3
"""Large objects on FIRN, InnoDB and MyRocks: loads, one huge transaction, large values.

    make && scripts/bench-large.py loads --rows 10000000
    scripts/bench-large.py transaction --rows 20000000 --engines InnoDB FIRN
    scripts/bench-large.py values --values 2000 --seconds 600 --engines InnoDB FIRN

Every step runs in a freshly started server that tests this one engine; if the engine is not InnoDB,
InnoDB has only a small buffer pool for its source tables. Times are wall-clock times. Written bytes
come from the device's counter, until the server rests after the step and everything is synced, so
nothing else may use the disk. Memory is the peak of the resident set.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from bench_process import allocated_bytes, device_written_bytes, forget_peak, resident_bytes, used  # noqa: E402
from server import SYSTEM_PLUGINS, Server, remove_scratch, scratch_root  # noqa: E402

MIB = 1 << 20
SETTLE_SECONDS_MAX = 600
SYSBENCH_TABLE = (
    "CREATE TABLE {name} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, "
    "c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)) ENGINE={engine}"
)


@dataclass(frozen=True)
class Step:
    """The costs of one statement: times, bytes written and memory."""

    seconds: float
    settle_seconds: float
    written: int
    peak: int
    stored: int

    def __str__(self) -> str:
        stored = max(1, self.stored)
        return (
            f"{self.seconds:8.1f} s, at rest after {self.settle_seconds:.0f} s more; peak {self.peak / MIB:,.0f} MiB; "
            f"written {self.written / MIB:,.0f} MiB, stored {self.stored / MIB:,.0f} MiB "
            f"({self.written / stored:.2f} bytes a byte)"
        )


class Bench:
    """A server with one data directory. Each step of the benchmark restarts it for one engine."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.memory = chosen.memory << 20
        self.server = Server(engine="InnoDB")

    def start(self, engine: str) -> None:
        """Starts the server for `engine` with the chosen memory."""
        self.server.stop()
        pool = self.memory if engine == "InnoDB" else 64 * MIB
        self.server.engine = engine
        self.server.options = [
            f"--innodb-buffer-pool-size={pool}",
            "--innodb-log-file-size=1G",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-flush-method=O_DIRECT",
            "--performance-schema=OFF",
            "--max-allowed-packet=64M",
            "--secure-file-priv=",
        ]
        if engine == "FIRN":
            self.server.options.append(f"--firn-memory-limit={self.memory}")
        if engine == "ROCKSDB":
            self.server.options += [
                f"--rocksdb-block-cache-size={self.memory}",
                "--rocksdb-flush-log-at-trx-commit=1",
                "--rocksdb-default-cf-options=compression=kLZ4Compression;bottommost_compression=kZSTD",
            ]
        self.server.start()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self.server.process is not None
        return self.server.process.pid

    def written(self) -> int:
        """Bytes that the device has written so far, after a sync of the page cache."""
        os.sync()
        return device_written_bytes(self.server.data)

    def execute(self, statement: str, engine: str) -> None:
        """Runs a statement that may take hours."""
        with contextlib.closing(self.server.connect("bench", read_timeout=36000)) as connection:
            with connection.cursor() as cursor:
                if engine == "ROCKSDB":
                    # MyRocks can execute a large transaction only with these settings, which commit
                    # parts of it early.
                    cursor.execute("SET rocksdb_bulk_load_allow_unsorted = 1, rocksdb_commit_in_the_middle = 1")
                cursor.execute(statement)
            connection.commit()

    def settle(self, engine: str) -> float:
        """Waits until the server rests; returns the seconds that this took."""
        began = time.monotonic()
        if engine == "InnoDB":
            self.server.query(
                "SET GLOBAL innodb_max_dirty_pages_pct = 0, innodb_max_dirty_pages_pct_lwm = 0, "
                "innodb_io_capacity_max = 20000, innodb_io_capacity = 10000"
            )
        elif engine == "ROCKSDB":
            self.server.query("SET GLOBAL rocksdb_force_flush_memtable_now = 1")
        quiet = 0
        while quiet < 4 and time.monotonic() - began < SETTLE_SECONDS_MAX:
            before, before_bytes = used(self.pid), allocated_bytes(self.server.data)
            time.sleep(1)
            after, after_bytes = used(self.pid), allocated_bytes(self.server.data)
            busy = (
                after.processor_seconds - before.processor_seconds > 0.1
                or after.written_bytes - before.written_bytes > MIB
                # An engine at rest has also finished deleting files, which it may do gradually.
                or abs(after_bytes - before_bytes) > MIB
            )
            quiet = 0 if busy else quiet + 1
        return time.monotonic() - began

    def stored(self, engine: str, *tables: str) -> int:
        """Bytes on disk of the tables, without the log."""
        data = self.server.data
        if engine == "FIRN":
            return allocated_bytes(*data.glob("#firn/*.sst"), *data.glob("#firn/*.blob"))
        if engine == "ROCKSDB":
            return allocated_bytes(*data.glob("#rocksdb/*.sst"))
        return allocated_bytes(*(data / "bench" / f"{table}.ibd" for table in tables))

    def step(self, what: str, engine: str, statement: str, table: str) -> Step:
        """Measures one statement."""
        forget_peak(self.pid)
        before = self.written()
        began = time.monotonic()
        self.execute(statement, engine)
        seconds = time.monotonic() - began
        settle = self.settle(engine)
        written = self.written() - before
        step = Step(seconds, settle, written, resident_bytes(self.pid, "VmHWM"), self.stored(engine, table))
        print(f"{what:34} {engine:8} {step}", flush=True)
        return step

    def destroy(self) -> None:
        """Ends the server and removes its files."""
        self.server.destroy()
        remove_scratch()


def digits(source: random.Random, count: int) -> str:
    """Random decimal digits."""
    table = bytes(48 + byte % 10 for byte in range(256))
    return source.randbytes(count).translate(table).decode()


def groups(text: str) -> str:
    """Groups of eleven digits, as in sysbench's columns."""
    return "-".join(text[at : at + 11] for at in range(0, len(text), 11))


def write_rows(path: Path, rows: int, seed: int) -> None:
    """Writes the rows of a sysbench table in key order to a file for LOAD DATA."""
    source = random.Random(seed)
    with path.open("w") as file:
        for number in range(1, rows + 1):
            text = digits(source, 165)
            k = source.randrange(1, rows + 1)
            file.write(f"{number}\t{k}\t{groups(text[:110])}\t{groups(text[110:])}\n")


def shuffle(path: Path, out: Path) -> None:
    """Writes the lines of `path` in random order to `out`; the order is the same in every run."""
    source = random.Random(2)
    lines = path.read_bytes().splitlines(keepends=True)
    source.shuffle(lines)
    with out.open("wb") as file:
        file.writelines(lines)


def loads(chosen: argparse.Namespace) -> None:
    """Measures loads in key order and shuffled, a change of the engine, and a new index."""
    bench = Bench(chosen)
    ordered, shuffled = scratch_root() / "ordered.tsv", scratch_root() / "shuffled.tsv"
    try:
        write_rows(ordered, chosen.rows, 1)
        shuffle(ordered, shuffled)
        bench.start("InnoDB")
        bench.server.query("CREATE DATABASE bench")
        for engine in chosen.engines if "load" in chosen.steps else ():
            for what, file in (("LOAD DATA in key order", ordered), ("LOAD DATA shuffled", shuffled)):
                bench.start(engine)
                bench.server.query(SYSBENCH_TABLE.format(name="bench.t", engine=engine))
                bench.step(what, engine, f"LOAD DATA INFILE '{file}' INTO TABLE t", "t")
                bench.server.query("DROP TABLE bench.t")
        if "alter" not in chosen.steps:
            return
        bench.start("InnoDB")
        bench.server.query(SYSBENCH_TABLE.format(name="bench.source", engine="InnoDB"))
        bench.execute(f"LOAD DATA INFILE '{ordered}' INTO TABLE source", "InnoDB")
        ordered.unlink()
        shuffled.unlink()
        for engine in chosen.engines:
            bench.start("InnoDB")
            bench.server.query("CREATE TABLE bench.t LIKE bench.source")
            bench.execute("INSERT INTO t SELECT * FROM source", "InnoDB")
            bench.start(engine)
            bench.step("ALTER from InnoDB, copying", engine, f"ALTER TABLE t ENGINE={engine}, ALGORITHM=COPY", "t")
            bench.step("ADD INDEX (k, c(20))", engine, "ALTER TABLE t ADD INDEX k_2 (k, c(20))", "t")
            bench.server.query("DROP TABLE bench.t")
    finally:
        bench.destroy()


def transaction(chosen: argparse.Namespace) -> None:
    """Measures huge transactions: INSERT … SELECT, and UPDATE of all rows.

    The UPDATE runs twice: it is rolled back, then committed.
    """
    bench = Bench(chosen)
    rows = scratch_root() / "rows.tsv"
    try:
        write_rows(rows, chosen.rows, 1)
        bench.start("InnoDB")
        bench.server.query("CREATE DATABASE bench")
        bench.server.query(SYSBENCH_TABLE.format(name="bench.source", engine="InnoDB"))
        bench.execute(f"LOAD DATA INFILE '{rows}' INTO TABLE source", "InnoDB")
        rows.unlink()
        for engine in chosen.engines:
            bench.start(engine)
            bench.server.query(SYSBENCH_TABLE.format(name="bench.t", engine=engine))
            bench.step("INSERT … SELECT", engine, "INSERT INTO t SELECT * FROM source", "t")
            with (
                contextlib.closing(bench.server.connect("bench", read_timeout=36000)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("BEGIN")
                began = time.monotonic()
                cursor.execute("UPDATE t SET c = REVERSE(c)")
                updated = time.monotonic()
                cursor.execute("ROLLBACK")
                print(
                    f"{'UPDATE of all, ROLLBACK':34} {engine:8} {updated - began:8.1f} s, rolled back in "
                    f"{time.monotonic() - updated:.2f} s; peak {resident_bytes(bench.pid, 'VmHWM') / MIB:,.0f} MiB",
                    flush=True,
                )
                same = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, k, c, pad))) FROM"
                cursor.execute(f"{same} t UNION {same} source")
                assert len(cursor.fetchall()) == 1, "the rollback left changes"
            bench.settle(engine)
            bench.step("UPDATE of all", engine, "UPDATE t SET c = REVERSE(c)", "t")
            bench.server.query("DROP TABLE bench.t")
    finally:
        bench.destroy()


class Clients:
    """Threads that repeat an operation for a given time."""

    def __init__(self, bench: Bench, threads: int) -> None:
        self.bench = bench
        self.threads = threads
        self.runs = 0

    def run(
        self,
        seconds: float,
        statement: str,
        arguments: Callable[[random.Random], tuple[Any, ...]],
        rate_max: float = 0.0,
    ) -> float:
        """Repeats the statement for `seconds`, at most `rate_max` times a second unless that is 0.

        Returns the number of executions per second.
        """
        began = time.monotonic()
        until = began + seconds
        between = self.threads / rate_max if rate_max else 0.0
        counts = [0] * self.threads
        errors: list[BaseException] = []
        self.runs += 1
        seed = self.runs * self.threads

        def work(number: int) -> None:
            # Each run needs another seed: an update to the same value would write nothing.
            source = random.Random(seed + number)
            try:
                with (
                    contextlib.closing(self.bench.server.connect("bench")) as connection,
                    connection.cursor() as cursor,
                ):
                    cursor.execute("SET autocommit = 1")
                    while time.monotonic() < until:
                        cursor.execute(statement, arguments(source))
                        cursor.fetchall()
                        counts[number] += 1
                        time.sleep(max(0.0, began + counts[number] * between - time.monotonic()) if between else 0.0)
            except BaseException as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return sum(counts) / seconds


def values(chosen: argparse.Namespace) -> None:
    """Measures large values: load, reads, random updates, bytes written per byte updated, space."""
    bench = Bench(chosen)
    try:
        bench.start("InnoDB")
        bench.server.query("CREATE DATABASE bench")
        count, size = chosen.values, chosen.value_size
        pool = random.Random(3).randbytes(64 * MIB)

        def value(source: random.Random) -> bytes:
            at = source.randrange(len(pool) - size)
            return pool[at : at + size]

        for engine in chosen.engines:
            bench.start(engine)
            bench.server.query(
                f"CREATE TABLE bench.t (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0, v LONGBLOB) ENGINE={engine}"
            )
            source = random.Random(4)
            with (
                contextlib.closing(bench.server.connect("bench")) as connection,
                connection.cursor() as cursor,
            ):
                for number in range(count):
                    cursor.execute("INSERT INTO t VALUES (%s, 0, _binary %s)", (number, value(source)))
                    connection.commit()
            bench.settle(engine)
            clients = Clients(bench, chosen.threads)
            reads = clients.run(
                chosen.read_seconds, "SELECT v FROM t WHERE id = %s", lambda source: (source.randrange(count),)
            )
            before = bench.written()
            slices = max(1, round(chosen.seconds / 10))
            speeds, most = [], 0
            for _ in range(slices):
                speeds.append(
                    clients.run(
                        chosen.seconds / slices,
                        "UPDATE t SET n = n + 1, v = _binary %s WHERE id = %s",
                        lambda source: (value(source), source.randrange(count)),
                        chosen.rate_max,
                    )
                )
                most = max(most, bench.stored(engine, "t"))
            settle = bench.settle(engine)
            updated = sum(speeds) * chosen.seconds / slices * size
            written = bench.written() - before
            live = count * size
            print(
                f"{size >> 10} KiB values, {engine:8} {reads:8,.0f} reads/s, {sum(speeds) / slices:8,.1f} updates/s, "
                f"{written / updated:.2f} bytes written per byte updated; space at most {most / live:.2f}, "
                f"{bench.stored(engine, 't') / live:.2f} of the live data after {settle:.0f} s of rest; "
                f"peak {resident_bytes(bench.pid, 'VmHWM') / MIB:,.0f} MiB",
                flush=True,
            )
            bench.server.query("DROP TABLE bench.t")
    finally:
        bench.destroy()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for run, rows in ((loads, 1_000_000), (transaction, 1_000_000), (values, 0)):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("--engines", nargs="+", default=["InnoDB", "FIRN", "ROCKSDB"])
        command.add_argument("--memory", type=int, default=512, help="of each engine, MiB")
        if run is loads:
            steps = ["load", "alter"]
            command.add_argument("--steps", nargs="+", choices=steps, default=steps)
        if rows:
            command.add_argument("--rows", type=int, default=rows)
        else:
            command.add_argument("--values", type=int, default=2000)
            command.add_argument("--value-size", type=int, default=512 << 10, help="bytes")
            command.add_argument("--threads", type=int, default=4)
            command.add_argument("--read-seconds", type=float, default=10)
            command.add_argument("--seconds", type=float, default=60, help="of updates")
            command.add_argument("--rate-max", type=float, default=0, help="updates a second at most; 0: no limit")
    chosen = parser.parse_args()
    if "ROCKSDB" in chosen.engines and not (SYSTEM_PLUGINS / "ha_rocksdb.so").is_file():
        print("without MyRocks: mariadb-plugin-rocksdb is not installed", flush=True)
        chosen.engines.remove("ROCKSDB")
    return chosen


if __name__ == "__main__":
    chosen = arguments()
    chosen.run(chosen)
