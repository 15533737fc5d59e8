#!/usr/bin/env python3
"""Time of CREATE, fill and DROP of a temporary table on InnoDB and on FIRN, in one server.

    scripts/bench-temporary.py [rounds]

The engines take turns, so that both meet the same noise. Prints the median of each and the ratio
InnoDB / FIRN: above 1, FIRN is faster.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from server import Server, remove_scratch  # noqa: E402

ENGINES = ("InnoDB", "FIRN")
ROWS = 1000


def _run(session: Any, statements: list[str]) -> None:
    with session.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)


def _workloads(engine: str) -> dict[str, list[str]]:
    one_key = f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, s VARCHAR(40)) ENGINE={engine}"
    three_keys = (
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, s VARCHAR(40), KEY (v), KEY (s)) "
        f"ENGINE={engine}"
    )
    fill = f"INSERT INTO t SELECT seq, seq % 100, MD5(seq) FROM seq_1_to_{ROWS}"
    drop = "DROP TEMPORARY TABLE t"
    return {
        "create, drop": [one_key, drop],
        f"create, fill {ROWS}, drop": [one_key, fill, drop],
        f"create with three keys, fill {ROWS}, drop": [three_keys, fill, drop],
        f"create, fill {ROWS}, read by key, update, drop": [
            three_keys,
            fill,
            "SELECT SUM(id) FROM t WHERE v = 7",
            "UPDATE t SET v = v + 1 WHERE id % 3 = 0",
            "SELECT SUM(v) FROM t",
            drop,
        ],
    }


def main() -> None:
    """Measures and prints."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    server = Server(engine="FIRN")
    server.start()
    session = server.connect("mysql")
    try:
        for name in _workloads(ENGINES[0]):
            times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for _ in range(rounds):
                for engine in ENGINES:
                    statements = _workloads(engine)[name]
                    begin = time.perf_counter()
                    _run(session, statements)
                    times[engine].append(time.perf_counter() - begin)
            innodb, firn = (statistics.median(times[engine]) * 1e3 for engine in ENGINES)
            print(f"{name:50} InnoDB {innodb:7.3f} ms  FIRN {firn:7.3f} ms  ratio {innodb / firn:.2f}")
    finally:
        session.close()
        server.destroy()
        remove_scratch()


if __name__ == "__main__":
    main()
