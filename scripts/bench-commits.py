#!/usr/bin/env python3
"""Small durable commits beside large ones, on FIRN and InnoDB: what a large commit costs the others.

    make && scripts/bench-commits.py --mib 12 45
    FIRN_TEST_PLUGIN=other/ha_firn.so scripts/bench-commits.py --engines FIRN   # another build

One session updates a range of rows in each transaction, `--mib` of them, and commits, again and again. Four
sessions update single rows of another table. The times are those of the client, so a busy machine lengthens the
longest of them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from bench_process import used  # noqa: E402
from server import Server, remove_scratch  # noqa: E402

MIB = 1 << 20
ROWS = 1_000_000
ROW_BYTES = 250
SMALL_ROWS = 10_000
SMALL_SESSIONS = 4
PAUSE_SECONDS = 0.0005


class Sessions:
    """The two kinds of sessions, and the times of their commits in seconds."""

    def __init__(self, server: Server, rows: int) -> None:
        self.server = server
        self.rows = rows
        self.stop = threading.Event()
        self.small: list[float] = []
        self.large: list[float] = []
        self.errors: list[BaseException] = []

    def commit_small(self, seed: int) -> None:
        """Updates one row in each transaction."""
        source = random.Random(seed)
        with contextlib.closing(self.server.connect("bench", autocommit=True)) as session, session.cursor() as cursor:
            while not self.stop.is_set():
                began = time.perf_counter()
                cursor.execute("UPDATE small SET v = v + 1 WHERE id = %s", (source.randrange(SMALL_ROWS),))
                self.small.append(time.perf_counter() - began)
                time.sleep(PAUSE_SECONDS)

    def commit_large(self) -> None:
        """Updates a range of rows in each transaction."""
        source = random.Random(7)
        with contextlib.closing(self.server.connect("bench", autocommit=False)) as session, session.cursor() as cursor:
            while not self.stop.is_set():
                first = source.randrange(ROWS - self.rows)
                cursor.execute("UPDATE large SET v = v + 1 WHERE id BETWEEN %s AND %s", (first, first + self.rows - 1))
                began = time.perf_counter()
                session.commit()
                self.large.append(time.perf_counter() - began)

    def run(self, seconds: float) -> None:
        """Runs all sessions for this time."""

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        works = [functools.partial(self.commit_small, seed) for seed in range(SMALL_SESSIONS)]
        threads = [threading.Thread(target=guarded, args=(work,)) for work in [self.commit_large, *works]]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def measure(engine: str, mib: int, seconds: float) -> str:
    """One line of the table: a fresh server, and both kinds of sessions for `seconds`."""
    server = Server(engine=engine, options=["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"])
    if engine == "FIRN":
        server.options.append("--firn-memory-limit=1G")
    server.start()
    try:
        server.query("CREATE DATABASE bench")
        server.query(f"CREATE TABLE bench.large (id INT PRIMARY KEY, v INT, pad VARCHAR(220)) ENGINE={engine}")
        server.query(f"CREATE TABLE bench.small (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        server.query(f"INSERT INTO bench.small SELECT seq, 0 FROM seq_0_to_{SMALL_ROWS - 1}")
        step = ROWS // 10
        for first in range(0, ROWS, step):
            server.query(
                "INSERT INTO bench.large SELECT seq, 0, LEFT(CONCAT(SHA2(seq, 512), SHA2(seq + 1, 512)), 200) "
                f"FROM seq_{first}_to_{first + step - 1}"
            )
        time.sleep(2)
        assert server.process is not None
        before = used(server.process.pid)
        sessions = Sessions(server, mib * MIB // ROW_BYTES)
        began = time.monotonic()
        sessions.run(seconds)
        seconds = time.monotonic() - began
        written = used(server.process.pid).written_bytes - before.written_bytes
    finally:
        server.destroy()
    small, large = sorted(sessions.small), sorted(sessions.large)
    thousandth = small[len(small) * 999 // 1000]
    return (
        f"{mib:3} MiB {engine:8} small: {len(small) / seconds:6,.0f}/s, 99.9th percentile {thousandth * 1e3:6.1f} ms, "
        f"longest {small[-1] * 1e3:6.1f} ms; large: {len(large) / seconds:5.2f}/s, "
        f"COMMIT {large[len(large) // 2] * 1e3:4.0f} ms, longest {large[-1] * 1e3:4.0f} ms; "
        f"written {written / MIB / len(large):5.1f} MiB for each large one"
    )


def main() -> None:
    """Measures the engines in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", default=["FIRN", "InnoDB"])
    parser.add_argument("--mib", nargs="+", type=int, default=[12, 45], help="of rows in each large transaction")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    try:
        for mib in chosen.mib:
            for _ in range(chosen.rounds):
                for engine in chosen.engines:
                    print(measure(engine, mib, chosen.seconds), flush=True)
    finally:
        remove_scratch()


if __name__ == "__main__":
    main()
