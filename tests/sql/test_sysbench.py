"""Every stock sysbench workload runs without an error and leaves tables that pass CHECK.

FIRN_TEST_SYSBENCH_SECONDS (default 3), FIRN_TEST_SYSBENCH_THREADS (16) and FIRN_TEST_SYSBENCH_ROWS
(10000, in each of four tables) configure longer runs. FIRN_TEST_STOP_CONNECTIONS (200) and
FIRN_TEST_STOP_TABLES (40) do so for the stop under load.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

import pytest
from server import ENGINE, IS_FIRN, Server, ServerError
from sysbench import WORKLOADS, Load, SysbenchError

SECONDS = float(os.environ.get("FIRN_TEST_SYSBENCH_SECONDS", "3"))
THREADS = int(os.environ.get("FIRN_TEST_SYSBENCH_THREADS", "16"))
ROWS = int(os.environ.get("FIRN_TEST_SYSBENCH_ROWS", "10000"))
TABLES = 4

# Clients and tables of the test that stops the server under load.
CONNECTIONS = int(os.environ.get("FIRN_TEST_STOP_CONNECTIONS", "200"))
STOP_TABLES = int(os.environ.get("FIRN_TEST_STOP_TABLES", "40"))


@pytest.fixture(scope="module")
def load() -> Iterator[tuple[Server, Load]]:
    """A server with loaded tables.

    The workloads share it: each runs on the tables that the one before left.
    """
    problem = ""
    try:
        server = Server(["--loose-firn-memtable-size=4194304", "--max-prepared-stmt-count=100000"])
        server.start()
    except ServerError as error:
        problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)
    server.query("CREATE DATABASE sbtest")
    server.query("CREATE DATABASE bulk")
    load = Load(server.socket, "sbtest", ENGINE, TABLES, ROWS)
    load.prepare(threads=2)
    yield server, load
    server.destroy()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload(load: tuple[Server, Load], workload: str) -> None:
    server, tables = load
    if workload == "bulk_insert":
        tables = Load(server.socket, "bulk", ENGINE, TABLES, ROWS)
    per_second = tables.run(workload, THREADS, SECONDS)
    print(f"{workload}: {per_second:.0f}/s")
    assert server.running(), server.log_tail()
    assert per_second > 0 or workload == "bulk_insert"
    _check(server, tables.database)


def _check(server: Server, database: str) -> None:
    names = server.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,)
    )
    assert names
    for (name,) in names:
        table = f"{database}.{name}"
        status = server.query(f"CHECK TABLE {table} EXTENDED")
        bad = [row for row in (status if IS_FIRN else status[-1:]) if row[3] != "OK"]
        assert not bad, bad
        if database == "sbtest":
            by_rows = server.query(f"SELECT COUNT(*), SUM(k) FROM {table} USE INDEX ()")
            index = f"k_{name.removeprefix('sbtest')}"
            by_index = server.query(f"SELECT COUNT(*), SUM(k) FROM {table} FORCE INDEX ({index})")
            assert by_rows == by_index, table


def test_an_error_is_an_error(load: tuple[Server, Load]) -> None:
    server, _ = load
    missing = Load(server.socket, "no_such_database", ENGINE, TABLES, ROWS)
    with pytest.raises(SysbenchError):
        missing.run("oltp_point_select", 1, 1)


@pytest.mark.skipif(not IS_FIRN, reason="judges the error log of the engine")
def test_a_stop_under_load_ends_and_says_how_long_it_took() -> None:
    server = Server(
        [
            "--loose-firn-memtable-size=4194304",
            "--max-prepared-stmt-count=1000000",
            f"--max-connections={CONNECTIONS + 10}",
            "--thread-handling=pool-of-threads",
            "--table-open-cache=4000",
        ]
    )
    try:
        server.start()
        server.query("CREATE DATABASE sbtest")
        load = Load(server.socket, "sbtest", ENGINE, STOP_TABLES, 100)
        load.prepare(threads=2)
        with load.running("oltp_write_only", CONNECTIONS):
            _wait_for_connections(server)
            server.stop()
        assert re.search(r"FIRN: stopped in \d+ ms", server.log()), server.log_tail()
        server.start()
        _check(server, "sbtest")
        errors = [line for line in server.log().splitlines() if "[ERROR]" in line]
        assert not [line for line in errors if "firn" in line.lower()], errors
    finally:
        server.destroy()


def _wait_for_connections(server: Server) -> None:
    """Returns once the clients are connected and commit."""
    counters = "SHOW GLOBAL STATUS WHERE variable_name IN ('Threads_connected', 'Firn_commits')"
    deadline = time.monotonic() + 60
    before = 0
    while time.monotonic() < deadline:
        now = {name.lower(): int(value) for name, value in server.query(counters)}
        if now["threads_connected"] > CONNECTIONS and 0 < before < now["firn_commits"]:
            return
        before = now["firn_commits"]
        time.sleep(0.2)
    pytest.fail(f"the clients do not work\n{server.log_tail()}")
