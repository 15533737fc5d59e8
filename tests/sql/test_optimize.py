"""OPTIMIZE TABLE compacts the indexes of the table, and nothing else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

ROWS = 30_000
MEMTABLE = "--firn-memtable-size=64M"
# After this time without a commit the engine compacts what is worth it.
IDLE_AFTER_SECONDS = 2.0
ATTEMPTS = 5


def _fill(server: Server, name: str, options: str = "") -> None:
    """A table of which later rows lie in upper levels, above the deleted and updated ones."""
    server.query(
        f"CREATE TABLE d.{name} (id INT PRIMARY KEY, v INT, pad CHAR(100), KEY v (v)) "
        f"ENGINE={ENGINE} {options}"
    )
    server.query(f"INSERT INTO d.{name} SELECT seq, seq, MD5(seq) FROM seq_1_to_{ROWS}")
    server.query(f"UPDATE d.{name} SET v = v + 1 WHERE id % 3 = 0")
    server.query(f"DELETE FROM d.{name} WHERE id % 5 = 0")


def _sums(server: Server, name: str) -> list[tuple[Any, ...]]:
    return list(
        server.query(
            "SELECT index_name, entries, deletes, entries_in_memory FROM "
            "information_schema.firn_indexes WHERE table_name LIKE %s ORDER BY 1",
            (name,),
        )
    )


@contextlib.contextmanager
def _awake(server: Server) -> Iterator[list[float]]:
    """Commits all the time, so that nothing is compacted without a need.

    Gives the list of the pauses after which the engine may have been idle nevertheless.
    """
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.awake (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE={ENGINE}")
    stop = threading.Event()
    pauses: list[float] = []

    def note(since: float) -> None:
        pause = time.monotonic() - since
        if pause >= IDLE_AFTER_SECONDS:
            pauses.append(pause)

    def write() -> None:
        last = time.monotonic()
        while not stop.wait(0.05):
            began = time.monotonic()
            server.query("INSERT INTO d.awake VALUES ()")
            # The last commit was not before `last`, and this one is over.
            note(last)
            last = began
        note(last)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield pauses
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def busy(own_server: Any) -> Iterator[Server]:
    """A server that is not idle unless the machine pauses."""
    server: Server = own_server(MEMTABLE)
    with _awake(server):
        yield server


def _never_idle(own_server: Any, check: Callable[[Server], None]) -> None:
    """Runs a check that fails if the engine was idle; again on a new server if it may have been."""
    for _ in range(ATTEMPTS):
        server = own_server(MEMTABLE)
        try:
            with _awake(server) as pauses:
                check(server)
            return
        except AssertionError:
            if not pauses:
                raise
    pytest.fail(f"the machine has paused in each of {ATTEMPTS} attempts, the last time: {pauses}")


def _flush(server: Server) -> None:
    """Writes all memtables out: OPTIMIZE of a table does that if they have rows of it."""
    server.query("INSERT INTO d.awake VALUES ()")
    server.query("OPTIMIZE TABLE d.awake")


def test_only_the_table_is_compacted(own_server: Any) -> None:
    _never_idle(own_server, _only_the_table_is_compacted)


def _only_the_table_is_compacted(busy: Server) -> None:
    for name in ("one", "two"):
        _fill(busy, name)
    left = ROWS - ROWS // 5
    _flush(busy)
    busy.query("UPDATE d.two SET v = v + 100000")
    _flush(busy)
    before = _sums(busy, "two")
    done = busy.query("OPTIMIZE TABLE d.one")
    assert [row[3] for row in done] == ["OK"]
    # No old version, no deletion, nothing in memory.
    assert _sums(busy, "one") == [("PRIMARY", left, 0, 0), ("v", left, 0, 0)]
    # The other table has its old versions still, but for those in a file with both tables.
    assert sum(row[1] for row in before) > 4 * left
    assert sum(row[1] for row in _sums(busy, "two")) > 3 * left
    assert busy.query("SELECT COUNT(*), SUM(v > id) FROM d.one")[0][0] == left
    jobs = "SELECT COUNT(*) FROM information_schema.firn_compactions WHERE kind = 'compact'"
    compactions = busy.query(jobs)[0][0]
    assert compactions > 0
    # There is nothing left to do.
    busy.query("OPTIMIZE TABLE d.one")
    assert busy.query(jobs)[0][0] == compactions
    assert busy.query("CHECK TABLE d.one, d.two EXTENDED")[0][3] == "OK"


def test_partitions_are_compacted_one_by_one(own_server: Any) -> None:
    _never_idle(own_server, _partitions_are_compacted_one_by_one)


def _partitions_are_compacted_one_by_one(busy: Server) -> None:
    _fill(busy, "p", "PARTITION BY HASH (id) PARTITIONS 4")
    _fill(busy, "other")
    done = busy.query("ALTER TABLE d.p OPTIMIZE PARTITION p1")
    assert done[-1][3] == "OK"
    of = {
        row[0]: row[1]
        for row in busy.query(
            "SELECT table_name, SUM(deletes) + SUM(entries_in_memory) FROM "
            "information_schema.firn_indexes WHERE table_schema = 'd' AND table_name <> 'awake' "
            "GROUP BY table_name"
        )
    }
    clean = [name for name, garbage in of.items() if garbage == 0]
    assert len(clean) == 1, of
    assert "p1" in clean[0]
    assert busy.query("OPTIMIZE TABLE d.p")[-1][3] == "OK"
    assert [row[2] for row in _sums(busy, "p%")] == [0] * 8
    assert busy.query("SELECT COUNT(*) FROM d.p")[0][0] == ROWS - ROWS // 5


def test_it_can_be_killed_and_reports_progress(busy: Server) -> None:
    _fill(busy, "t")
    busy.query("SET GLOBAL firn_background_io_rate = 1048576")
    session = busy.connect("d")
    number = session.thread_id()
    outcome: list[Any] = []

    def optimize() -> None:
        with session.cursor() as cursor:
            try:
                cursor.execute("OPTIMIZE TABLE t")
                outcome.append(cursor.fetchall())
            except pymysql.err.MySQLError as error:
                outcome.append(error.args)

    thread = threading.Thread(target=optimize)
    thread.start()
    stages: set[Any] = set()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not stages and thread.is_alive():
        rows = busy.query(
            "SELECT stage, max_stage FROM information_schema.processlist WHERE id = %s", (number,)
        )
        stages |= {row for row in rows if row[1]}
    if thread.is_alive():
        busy.query(f"KILL QUERY {number}")
    thread.join(60)
    assert not thread.is_alive()
    assert stages == {(1, 1)}, outcome
    assert "interrupted" in str(outcome) or outcome[0][-1][3] == "OK", outcome
    busy.query("SET GLOBAL firn_background_io_rate = 0")
    assert busy.query("OPTIMIZE TABLE d.t")[-1][3] == "OK"
    assert busy.query("SELECT COUNT(*) FROM d.t")[0][0] == ROWS - ROWS // 5
    session.close()


def test_writes_go_on_meanwhile(busy: Server) -> None:
    _fill(busy, "t")
    stop = threading.Event()
    written = []

    def write() -> None:
        session = busy.connect("d")
        number = 10 * ROWS
        with session.cursor() as cursor:
            while not stop.is_set():
                number += 1
                cursor.execute(f"INSERT INTO t VALUES ({number}, 1, 'x')")
        written.append(number - 10 * ROWS)
        session.close()

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(3):
        assert busy.query("OPTIMIZE TABLE d.t")[-1][3] == "OK"
    stop.set()
    thread.join()
    assert written[0] > 0
    assert busy.query("SELECT COUNT(*) FROM d.t")[0][0] == ROWS - ROWS // 5 + written[0]
    assert busy.query("CHECK TABLE d.t EXTENDED")[0][3] == "OK"
