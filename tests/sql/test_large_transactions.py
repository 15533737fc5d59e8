"""Transactions over `firn_txn_memory_limit` behave like small ones, and leave no file.

The limit is its minimum, 1 MiB, so that every statement here spills several times.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, LOCK_WAIT_TIMEOUTS, NO_PURGE, Server

LIMIT = "--loose-firn-txn-memory-limit=1048576"
BINLOG = ["--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]
ROWS = 7_000
TIDY_SECONDS_MAX = 60.0

Make = Callable[..., Server]


def _run(session: pymysql.Connection[Any], *statements: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


def _start(own_server: Make, *options: str) -> Server:
    server = own_server(LIMIT, NO_PURGE, *options)
    server.query("CREATE DATABASE d")
    for table, engine in (("f", ENGINE), ("i", "InnoDB")):
        server.query(
            f"CREATE TABLE d.{table} (id INT PRIMARY KEY, k INT, u INT, c VARCHAR(200), "
            f"KEY (k), UNIQUE (u), KEY (c)) ENGINE={engine}"
        )
    return server


def _both(session: pymysql.Connection[Any], *statements: str) -> None:
    """Runs statements on tables of both engines, with the same results.

    TAB stands for the table.
    """
    for statement in statements:
        outcomes = []
        for table in "fi":
            with session.cursor() as cursor:
                try:
                    outcomes.append(cursor.execute(statement.replace("TAB", table)))
                except pymysql.err.MySQLError as error:
                    outcomes.append(error.args[0])
        assert outcomes[0] == outcomes[1], (statement, outcomes)


def _insert(first: int, rows: int) -> str:
    return (
        f"INSERT INTO TAB SELECT {first} + seq, (seq * 7919) % 10007, {first} + seq, "
        f"CONCAT(REPEAT(MD5(seq), 4), seq) FROM seq_1_to_{rows}"
    )


def _compare(session: pymysql.Connection[Any]) -> None:
    """Checks that both tables hold the same rows, by every index."""
    for index in ("PRIMARY", "k", "u", "c"):
        sums = [
            _run(
                session,
                "SELECT COUNT(*), SUM(id), SUM(k), SUM(u), "
                f"BIT_XOR(CRC32(CONCAT_WS(',', id, k, u, c))) "
                f"FROM {table} FORCE INDEX ({index}) WHERE {condition}",
            )
            for table in "fi"
            for condition in [
                {"PRIMARY": "id > -1", "k": "k > -1", "u": "u > -1", "c": "c > ''"}[index]
            ]
        ]
        assert sums[0] == sums[1], index
    first = [_run(session, f"SELECT id, k, u FROM {t} ORDER BY id LIMIT 50") for t in "fi"]
    last = [_run(session, f"SELECT id, k, u FROM {t} ORDER BY u DESC LIMIT 50") for t in "fi"]
    assert first[0] == first[1]
    assert last[0] == last[1]


def _files(server: Server) -> set[Path]:
    return set((server.data / "#firn").glob("*.sst"))


def _bytes(server: Server) -> int:
    """Bytes of the files, of which background work may remove some meanwhile."""
    total = 0
    for path in _files(server):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


IN_TREE = "SELECT SUM(files) FROM information_schema.firn_levels"


def _spilled(server: Server, session: pymysql.Connection[Any] | None = None) -> int:
    """Number of files that are not in the tree, such as those of spills."""
    in_tree = (_run(session, IN_TREE) if session else server.query(IN_TREE))[0][0] or 0
    return len(_files(server)) - int(in_tree)


def _tidy(server: Server) -> None:
    """Waits until all obsolete files are deleted, so that every file is in the tree."""
    if not IS_FIRN:
        return
    deadline = time.monotonic() + TIDY_SECONDS_MAX
    while _spilled(server) != 0:
        assert time.monotonic() < deadline, f"{_spilled(server)} files are left"
        time.sleep(0.2)


def _check(server: Server) -> None:
    session = server.connect("d")
    _compare(session)
    assert all(row[3] == "OK" for row in _run(session, "CHECK TABLE f EXTENDED"))
    session.close()
    _tidy(server)


@pytest.mark.parametrize("binlog", [False, True], ids=["plain", "binlog"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_statements_of_any_size(own_server: Make, mode: int, binlog: bool) -> None:
    options = BINLOG if binlog else []
    server = _start(own_server, f"--loose-firn-flush-log-at-trx-commit={mode}", *options)
    session = server.connect("d")
    _both(session, _insert(0, ROWS))
    _compare(session)
    # In one transaction: change all rows, insert and delete rows, and read in between.
    _run(session, "BEGIN")
    _both(session, "UPDATE TAB SET k = k + 1, c = CONCAT('x', c)")
    if IS_FIRN:
        assert _spilled(server) > 0
    _compare(session)
    _both(session, _insert(100_000, ROWS // 2), "DELETE FROM TAB WHERE id % 3 = 0")
    _compare(session)
    _both(
        session,
        "UPDATE TAB SET u = u + 1000000 WHERE id % 2 = 0",
        "REPLACE INTO TAB VALUES (7, 1, 7, 'seven')",
    )
    _compare(session)
    other = server.connect("d")
    assert _run(other, "SELECT COUNT(*), MAX(u) FROM f") == [(ROWS, ROWS)]
    _run(session, "COMMIT")
    _compare(other)
    other.close()
    session.close()
    _check(server)
    server.restart()
    _check(server)


def test_rollbacks_of_all_kinds(own_server: Make) -> None:
    server = _start(own_server)
    session = server.connect("d")
    _both(session, _insert(0, ROWS))
    _run(session, "BEGIN")
    _both(session, "UPDATE TAB SET k = -1 WHERE id <= 10")
    # The last row is a duplicate: the statement is rolled back, the transaction continues.
    _both(
        session,
        f"INSERT INTO TAB SELECT {ROWS} + seq, 0, 1000000 - seq * (seq <> {ROWS}), "
        "REPEAT('y', 190) "
        f"FROM seq_1_to_{ROWS} UNION ALL SELECT 5, 5, 5, 5",
    )
    _compare(session)
    _both(session, _insert(200_000, 3000))
    _run(session, "SAVEPOINT a")
    _both(session, "UPDATE TAB SET c = REPEAT('z', 200)", _insert(300_000, ROWS))
    _run(session, "SAVEPOINT b")
    _both(session, "DELETE FROM TAB")
    _compare(session)
    _run(session, "ROLLBACK TO SAVEPOINT b")
    _compare(session)
    _run(session, "ROLLBACK TO SAVEPOINT a")
    _compare(session)
    _both(
        session,
        "UPDATE TAB SET k = k + 5",
        "INSERT IGNORE INTO TAB SELECT seq, 1, seq, 'new' FROM seq_1_to_20000",
    )
    _compare(session)
    _both(
        session,
        "INSERT INTO TAB SELECT seq, 1, seq, 'new' FROM seq_1_to_9000 "
        "ON DUPLICATE KEY UPDATE k = TAB.k + 1",
    )
    _run(session, "COMMIT")
    _check(server)
    _run(session, "BEGIN")
    _both(session, "UPDATE TAB SET c = REPEAT('w', 200)")
    if IS_FIRN:
        assert _spilled(server) > 0
    _run(session, "ROLLBACK")
    _tidy(server)
    _check(server)
    # End the session without COMMIT or ROLLBACK.
    _run(session, "BEGIN")
    _both(session, "UPDATE TAB SET c = REPEAT('v', 200)")
    session.close()
    _check(server)


def test_a_killed_statement_leaves_nothing(own_server: Make) -> None:
    """A statement ends after each tenth of itself, since every seventieth row takes 10 ms."""
    server = _start(own_server)
    session = server.connect("d")
    _both(session, _insert(0, ROWS))
    update = "UPDATE f SET k = k + 1, c = CONCAT(LEFT(c, 100), SLEEP(IF(id % 70 = 0, 0.01, 0)))"
    for tenth in range(10):
        limit = f"SET STATEMENT max_statement_time = {0.02 + 0.1 * tenth:.2f} FOR"
        with pytest.raises(pymysql.err.MySQLError) as error:
            _run(session, f"{limit} {update}")
        assert error.value.args[0] in (1317, 1969), error.value
    session.close()
    _check(server)


@pytest.mark.parametrize("binlog", [False, True], ids=["plain", "binlog"])
def test_a_statement_killed_before_does_not_fail_the_commit(own_server: Make, binlog: bool) -> None:
    """KILL and max_statement_time end a statement; the transaction and its COMMIT succeed."""
    server = _start(own_server, *(BINLOG if binlog else []))
    with closing(server.connect("d")) as session:
        for end in ("COMMIT", "XA"):
            _run(session, "XA START 'x'" if end == "XA" else "BEGIN")
            _both(session, _insert(ROWS if end == "XA" else 0, ROWS))
            for table in "fi":
                tables = f"{table} a, {table} b, {table} c"
                slow = f"SELECT COUNT(*) FROM {tables} WHERE a.c <> b.c"
                with pytest.raises(pymysql.err.MySQLError, match="max_statement_time"):
                    _run(session, f"SET STATEMENT max_statement_time = 0.2 FOR {slow}")
            if end == "XA":
                _run(session, "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
            else:
                _run(session, "COMMIT")
        counts = [_run(session, f"SELECT COUNT(*) FROM d.{table}") for table in "fi"]
    assert counts == [[(2 * ROWS,)]] * 2


@pytest.mark.parametrize("binlog", [False, True], ids=["plain", "binlog"])
def test_a_killed_server(own_server: Make, binlog: bool) -> None:
    server = _start(own_server, *(BINLOG if binlog else []))
    session = server.connect("d")
    _both(session, _insert(0, ROWS))
    session.close()
    server.crash_and_recover()
    _check(server)
    session = server.connect("d")
    _run(session, "BEGIN")
    _both(
        session, "UPDATE TAB SET k = k + 1, c = CONCAT('q', LEFT(c, 180))", _insert(100_000, 4000)
    )
    server.crash_and_recover()
    _check(server)
    session = server.connect("d")
    _run(session, "BEGIN")
    _both(
        session,
        "UPDATE TAB SET k = k + 2, c = CONCAT('r', LEFT(c, 180))",
        "DELETE FROM TAB WHERE id % 5 = 1",
    )
    _run(session, "COMMIT")
    server.crash_and_recover()
    _check(server)
    # Recover twice, because the first recovery rewrites the log that the second one reads.
    server.crash_and_recover()
    _check(server)
    server.restart()
    _check(server)


def _end_while_it_spills(server: Server, statement: str, how: str) -> list[int]:
    """Ends a statement that has spilled. Returns its error; none if it was over before."""
    session, errors = server.connect("d"), []

    def run() -> None:
        try:
            _run(session, statement)
        except pymysql.err.MySQLError as error:
            errors.append(error.args[0])

    thread = threading.Thread(target=run)
    with closing(server.connect("d")) as other:
        thread.start()
        while thread.is_alive() and _spilled(server, other) < 5:
            time.sleep(0.001)
        if how == "kill -9":
            server.crash_and_recover()
        else:
            _run(other, f"{how} {session.thread_id()}")
    thread.join()
    with contextlib.suppress(pymysql.err.Error):
        session.close()
    return errors


@pytest.mark.skipif(not IS_FIRN, reason="about files of FIRN")
@pytest.mark.parametrize("how", ["KILL QUERY", "KILL", "kill -9"])
@pytest.mark.parametrize("what", ["INSERT", "LOAD", "UPDATE"])
def test_a_statement_ended_while_it_spills(own_server: Make, what: str, how: str) -> None:
    server = _start(own_server)
    rows = (4 if what == "UPDATE" else 20) * ROWS
    csv = server.directory / "rows.csv"
    statement = {
        "INSERT": _insert(100_000, rows).replace("TAB", "f"),
        "LOAD": f"LOAD DATA INFILE '{csv}' INTO TABLE f",
        "UPDATE": "UPDATE f SET k = k + 1, c = CONCAT('q', LEFT(c, 180))",
    }[what]
    with closing(server.connect("d")) as session:
        _both(session, _insert(0, rows if what == "UPDATE" else ROWS))
        if what == "LOAD":
            made = _insert(100_000, rows).partition(" SELECT ")[2]
            fields, _, source = made.partition(" FROM ")
            _run(session, f"SELECT {fields} INTO OUTFILE '{csv}' FROM {source}")
    same = "UPDATE d.f JOIN d.i USING (id) SET f.k = i.k, f.c = i.c"
    undo = same if what == "UPDATE" else "DELETE FROM d.f WHERE id > 100000"
    for _ in range(10):
        _tidy(server)
        errors = _end_while_it_spills(server, statement, how)
        if errors:
            break
        # The statement was over before its end came.
        server.query(undo)
    assert errors in ([1317], [2013])
    _check(server)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "killed"])
def test_xa(own_server: Make, end: str, crash: bool) -> None:
    server = _start(own_server)
    session = server.connect("d")
    _both(session, _insert(0, ROWS))
    _run(session, "XA START 'large'")
    _both(session, "UPDATE TAB SET k = k + 1, c = CONCAT('x', LEFT(c, 180))", _insert(50_000, 3000))
    _run(session, "XA END 'large'", "XA PREPARE 'large'")
    session.close()
    for _ in range(2):
        if crash:
            server.crash_and_recover()
        else:
            server.restart()
        assert [bytes(row[3]) for row in server.query("XA RECOVER")] == [b"large"]
    other = server.connect("d")
    _run(other, f"SET SESSION {LOCK_WAIT_TIMEOUTS[ENGINE.upper()]} = 1")
    assert _run(other, "SELECT COUNT(*) FROM f") == [(ROWS,)]
    for key in (1, ROWS, 50_001):
        with pytest.raises(pymysql.err.MySQLError) as caught:
            _run(
                other, f"INSERT INTO f VALUES ({key}, 0, -{key}, '') ON DUPLICATE KEY UPDATE k = 0"
            )
        assert caught.value.args[0] == 1205
    _run(other, f"XA {end} 'large'")
    rows = ROWS + 3000 if end == "COMMIT" else ROWS
    assert _run(other, "SELECT COUNT(*) FROM f") == [(rows,)]
    other.close()
    assert server.query("XA RECOVER") == ()
    _check(server)
    server.crash_and_recover()
    _check(server)


@pytest.mark.parametrize("binlog", [False, True], ids=["plain", "binlog"])
@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "killed"])
def test_a_commit_of_more_than_half_a_memtable(own_server: Make, crash: bool, binlog: bool) -> None:
    """The transactions fit in memory, and their commits write files.

    Memtables and log segments have 4 MiB, the minimum of segments.
    """
    server = _start(
        own_server,
        "--loose-firn-txn-memory-limit=67108864",
        "--loose-firn-wal-segment-size=4194304",
        "--loose-firn-memtable-size=4194304",
        *(BINLOG if binlog else []),
    )
    session = server.connect("d")
    _run(session, "BEGIN")
    _both(session, _insert(0, 10), "UPDATE TAB SET k = 3")
    _run(session, "COMMIT")
    before = _bytes(server)
    _run(session, "BEGIN")
    _both(session, _insert(100, ROWS))
    _run(session, "SAVEPOINT a")
    _both(session, "DELETE FROM TAB WHERE id % 3 = 0", "UPDATE TAB SET c = CONCAT('x', c)")
    _run(session, "ROLLBACK TO SAVEPOINT a")
    _both(
        session,
        _insert(50_000, ROWS),
        "UPDATE TAB SET k = k + 1 WHERE id % 5 = 0",
        "INSERT INTO TAB VALUES (101, 1, 101, 'duplicate')",
        "INSERT INTO TAB VALUES (-1, 1, 101, 'duplicate')",
        "DELETE FROM TAB WHERE id < 5",
    )
    _compare(session)
    other = server.connect("d")
    assert _run(other, "SELECT COUNT(*) FROM f") == [(10,)]
    # A flush of the ten rows, which may happen at any time, adds some KiB.
    if IS_FIRN:
        assert _bytes(server) < before + 64 * 1024
    _run(session, "COMMIT")
    if IS_FIRN:
        assert _bytes(server) > before + 512 * 1024, _bytes(server) - before
    _compare(other)
    # The locks are released, and later changes lie above the files.
    _both(other, "UPDATE TAB SET c = 'after' WHERE id = 102", "DELETE FROM TAB WHERE id = 103")
    _compare(other)
    _run(session, "XA START 'large'")
    _both(session, "UPDATE TAB SET k = k + 7, c = CONCAT('y', LEFT(c, 180))")
    _run(session, "XA END 'large'", "XA PREPARE 'large'")
    session.close()
    other.close()
    if crash:
        server.crash_and_recover()
    else:
        server.restart()
    assert [bytes(row[3]) for row in server.query("XA RECOVER")] == [b"large"]
    server.query("XA COMMIT 'large'")
    _check(server)
    server.crash_and_recover()
    _check(server)
