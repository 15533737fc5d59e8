# ruff: noqa: F811 (fixtures of another file)
"""Indexes created, dropped and renamed in place: compared with InnoDB, under reads, after kills."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from server import IS_FIRN, NO_PURGE, Server
from test_bulk_load import (  # noqa: F401  (fixtures)
    KEYS,
    LITTLE_MEMORY,
    bulk_server,
    check,
    error_of,
    files,
    fill,
    image,
    kill_while,
    make,
    run,
    session,
    sst_bytes,
)

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN's index changes")

CHANGES = [
    "ADD INDEX x (t(5), r)",
    "ADD INDEX y (d DESC, s), ADD UNIQUE z (e, id), ADD INDEX w (b(2) DESC)",
    "RENAME INDEX x TO xx",
    "DROP INDEX y, ADD INDEX y (f)",
    "DROP INDEX xx, DROP INDEX z",
    "ADD INDEX s2 (s(3))",
    "ADD INDEX q (n), COMMENT 'c', ALTER r SET DEFAULT 4",
]


@pytest.mark.parametrize("kind", KEYS)
def test_changes_beside_innodb(
    bulk_server: Server,
    session: pymysql.Connection[Any],
    kind: str,
) -> None:
    for engine in ("InnoDB", "FIRN"):
        make(session, f"t_{engine}", KEYS[kind], engine)
        fill(session, f"t_{engine}", 6000)
        # The indexes that follow must not contain deleted rows or old values.
        run(session, f"DELETE FROM t_{engine} WHERE MOD(id, 9) = 0")
        run(session, f"UPDATE t_{engine} SET t = UPPER(t), d = -d WHERE MOD(id, 7) = 0")
    for number, change in enumerate(CHANGES):
        for engine in ("InnoDB", "FIRN"):
            run(session, f"ALTER TABLE t_{engine} {change}, ALGORITHM=INPLACE")
        assert image(session, "t_InnoDB") == image(session, "t_FIRN"), change
        check(session, "t_FIRN")
        if number == 1:
            run(session, "FLUSH TABLES")
        for engine in ("InnoDB", "FIRN"):
            run(session, f"UPDATE t_{engine} SET r = r + 1 WHERE MOD(id, 41) = {number}")
            run(
                session,
                f"DELETE FROM t_{engine} WHERE id BETWEEN {number * 100} AND {number * 100 + 5}",
            )
    assert image(session, "t_InnoDB") == image(session, "t_FIRN")
    check(session, "t_FIRN")
    assert not files(bulk_server)
    shown = [run(session, f"SHOW CREATE TABLE t_{engine}")[0][1] for engine in ("InnoDB", "FIRN")]
    assert shown[0].replace("InnoDB", "FIRN").split("\n")[1:-1] == shown[1].split("\n")[1:-1]


def test_algorithms_and_locks(session: pymysql.Connection[Any]) -> None:
    run(session, "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT) ENGINE=FIRN")
    run(session, "INSERT INTO a SELECT seq, seq, seq FROM seq_1_to_1000")
    for clause, error in {
        "ALGORITHM=INSTANT": 1846,
        "LOCK=NONE": 1845,
        "ALGORITHM=NOCOPY": 0,
        "ALGORITHM=INPLACE, LOCK=SHARED": 0,
        "LOCK=EXCLUSIVE": 0,
        "ALGORITHM=COPY": 0,
        "ALGORITHM=COPY, LOCK=SHARED": 0,
    }.items():
        assert error_of(session, f"ALTER TABLE a ADD INDEX (x), {clause}")[0] == error, clause
        if not error:
            run(session, "ALTER TABLE a RENAME INDEX x TO xx, ALGORITHM=INSTANT")
            run(session, "ALTER TABLE a DROP INDEX xx, ALGORITHM=INSTANT, LOCK=NONE")
    # Another primary key needs a copy.
    change = "DROP PRIMARY KEY, ADD PRIMARY KEY (x)"
    assert error_of(session, f"ALTER TABLE a {change}, ALGORITHM=INPLACE")[0] == 1845
    assert error_of(session, f"ALTER TABLE a {change}, ALGORITHM=COPY")[0] == 0
    check(session, "a")


def test_a_promoted_unique_index_is_a_primary_key(session: pymysql.Connection[Any]) -> None:
    run(session, "CREATE TABLE h (a INT NOT NULL, b INT NOT NULL) ENGINE=FIRN")
    run(session, "INSERT INTO h SELECT seq, seq FROM seq_1_to_1000")
    assert error_of(session, "ALTER TABLE h ADD UNIQUE (a), ALGORITHM=INPLACE")[0] == 1845
    run(session, "ALTER TABLE h ADD UNIQUE (a)")
    run(session, "ALTER TABLE h ADD UNIQUE (b), ALGORITHM=INPLACE")
    check(session, "h")
    assert error_of(session, "ALTER TABLE h DROP INDEX a, ALGORITHM=INPLACE")[0] == 1845
    run(session, "ALTER TABLE h DROP INDEX a")
    check(session, "h")


@pytest.mark.parametrize("change", ["(a)", "(b, a)", "(t(8))", "(s)"])
def test_duplicates(session: pymysql.Connection[Any], change: str) -> None:
    outcomes = []
    for engine in ("InnoDB", "FIRN"):
        table = f"d_{engine}"
        run(
            session,
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT, "
            "s VARCHAR(30) COLLATE utf8mb4_unicode_ci, t TEXT, KEY k (b)) ENGINE=" + engine,
        )
        run(
            session,
            f"INSERT INTO {table} SELECT seq, MOD(seq * 997, 3001), 7, "
            "CONCAT('Ünique ', seq), MD5(seq) FROM seq_1_to_1500",
        )
        run(
            session,
            f"INSERT INTO {table} SELECT 5000, a, b, UPPER(s), t FROM {table} WHERE id = 1234",
        )
        sql = f"ALTER TABLE {table} ADD INDEX v (a, s), ADD UNIQUE u {change}, ALGORITHM=INPLACE"
        outcomes.append(error_of(session, sql))
        assert len(run(session, f"SHOW INDEX FROM {table}")) == 2
        run(session, f"DELETE FROM {table} WHERE id = 5000")
        run(session, sql)
        assert (
            error_of(
                session,
                f"INSERT INTO {table} SELECT 5000, a, b, s, t FROM {table} " "WHERE id = 1234",
            )[0]
            == 1062
        )
    # The message may name either of the two duplicate rows, whose texts differ in case.
    assert outcomes[0][0] == outcomes[1][0] == 1062
    if change == "(t(8))":
        # For this prefix index InnoDB's message names NULL instead of the value.
        assert "'81dc9bdb'" in outcomes[1][1]
    else:
        assert outcomes[0][1].lower() == outcomes[1][1].lower()
    check(session, "d_FIRN")


def test_readers_go_on_and_writers_wait(
    bulk_server: Server,
    session: pymysql.Connection[Any],
) -> None:
    make(session, "c", KEYS["ordered"], "FIRN")
    fill(session, "c", 20_000)
    expected = run(session, "SELECT COUNT(*), SUM(r) FROM c")
    stop = threading.Event()
    problems: list[str] = []
    reads = [0]

    def read() -> None:
        with contextlib.closing(bulk_server.connect("bulk")) as connection:
            while not stop.is_set():
                found = run(connection, "SELECT COUNT(*), SUM(r) FROM c")
                if found != expected:
                    problems.append(f"{found}")
                reads[0] += 1

    def write() -> None:
        with contextlib.closing(bulk_server.connect("bulk")) as connection:
            for number in range(30):
                run(
                    connection,
                    f"UPDATE c SET f = f + 1, e = e + INTERVAL 1 DAY WHERE id = {number * 7}",
                )

    threads = [threading.Thread(target=read), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        run(session, "CREATE INDEX x ON c (e, f)")
        check(session, "c")
        run(session, "DROP INDEX x ON c")
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert reads[0] > 0
    check(session, "c")


def test_an_old_snapshot_does_not_read_a_new_index(
    bulk_server: Server,
    session: pymysql.Connection[Any],
) -> None:
    run(session, "CREATE TABLE o (id INT PRIMARY KEY, x INT) ENGINE=FIRN")
    run(session, "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=FIRN")
    run(session, "INSERT INTO o SELECT seq, seq FROM seq_1_to_1000")
    with contextlib.closing(bulk_server.connect("bulk")) as old:
        run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        run(session, "UPDATE o SET x = x + 1")
        run(session, "CREATE INDEX x ON o (x)")
        assert run(old, "SELECT SUM(x) FROM o USE INDEX ()") == [(500500,)]
        assert error_of(old, "SELECT COUNT(*) FROM o FORCE INDEX (x) WHERE x > 0")[0] == 1412
        run(old, "COMMIT")
        assert run(old, "SELECT COUNT(*) FROM o FORCE INDEX (x) WHERE x > 0") == [(1000,)]


def test_statistics_of_a_new_index(session: pymysql.Connection[Any]) -> None:
    run(
        session,
        "CREATE TABLE st (id INT PRIMARY KEY, a INT) ENGINE=FIRN "
        "SELECT seq AS id, MOD(seq, 50) AS a FROM seq_1_to_20000",
    )
    run(session, "CREATE INDEX a ON st (a)")
    cardinality = run(session, "SHOW INDEX FROM st WHERE Key_name = 'a'")[0][6]
    assert 25 <= cardinality <= 100


def test_a_prepared_transaction_is_waited_for(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE bulk")
    with contextlib.closing(server.connect("bulk")) as connection:
        run(connection, "CREATE TABLE x (id INT PRIMARY KEY, a INT) ENGINE=FIRN")
        run(connection, "INSERT INTO x VALUES (1, 1)")
        for sql in ("XA START 'x'", "INSERT INTO x VALUES (2, 2)", "XA END 'x'", "XA PREPARE 'x'"):
            run(connection, sql)
    server.crash_and_recover()
    with contextlib.closing(server.connect("bulk")) as connection:
        assert error_of(connection, "CREATE INDEX a ON x (a)")[0] == 1205
        run(connection, "XA COMMIT 'x'")
        run(connection, "CREATE INDEX a ON x (a)")
        assert run(connection, "SELECT COUNT(*) FROM x FORCE INDEX (a)") == [(2,)]
        check(connection, "x")


def test_nothing_is_copied_beside_a_prepared_transaction(
    own_server: Callable[..., Server],
) -> None:
    """A copy of the table would lack the rows of the prepared transaction.

    With partitions it could mix old and new rows.
    """
    server = own_server()
    server.query("CREATE DATABASE bulk")

    def less(name: str, bound: int) -> str:
        return f"PARTITION {name} VALUES LESS THAN ({bound})"

    parts = f"PARTITION BY RANGE (id) ({less('p0', 10)}, {less('p1', 20)})"
    split = f"REORGANIZE PARTITION p0 INTO ({less('a', 5)}, {less('b', 10)})"
    with contextlib.closing(server.connect("bulk")) as connection:
        run(connection, "CREATE TABLE x (id INT PRIMARY KEY, a INT) ENGINE=FIRN")
        run(connection, f"CREATE TABLE p (id INT PRIMARY KEY, a INT) ENGINE=FIRN {parts}")
        for table in ("x", "p"):
            run(connection, f"INSERT INTO {table} VALUES (1, 1)")
        run(connection, "XA START 'x'")
        for table in ("x", "p"):
            run(connection, f"INSERT INTO {table} VALUES (2, 2)")
            run(connection, f"UPDATE {table} SET a = 9 WHERE id = 1")
        run(connection, "XA END 'x'")
        run(connection, "XA PREPARE 'x'")
    server.crash_and_recover()
    with contextlib.closing(server.connect("bulk")) as connection:
        before = [run(connection, f"SHOW CREATE TABLE {table}") for table in ("x", "p")]
        changes = [
            ("x", "FORCE, ALGORITHM=COPY"),
            ("x", "ENGINE=InnoDB"),
            ("x", "MODIFY a BIGINT"),
            ("p", split),
            ("p", f"ADD PARTITION ({less('p2', 30)})"),
            ("p", "DROP PARTITION p0"),
            ("p", "TRUNCATE PARTITION p0"),
            ("p", "REMOVE PARTITIONING"),
        ]
        for table, change in changes:
            assert error_of(connection, f"ALTER TABLE {table} {change}")[0] == 1205, change
            after = [run(connection, f"SHOW CREATE TABLE {table}") for table in ("x", "p")]
            assert after == before, change
        run(connection, "XA COMMIT 'x'")
        for table, change in changes[:4]:
            run(connection, f"ALTER TABLE {table} {change}")
            assert run(connection, f"SELECT * FROM {table} ORDER BY id") == [(1, 9), (2, 2)]
        check(connection, "p")


def test_kill_leaves_the_old_table(
    bulk_server: Server,
    session: pymysql.Connection[Any],
) -> None:
    make(session, "k", KEYS["shuffled"], "InnoDB")
    fill(session, "k", 60_000)
    run(session, "ALTER TABLE k ENGINE=FIRN")
    before = image(session, "k")
    outcomes = set()
    with contextlib.closing(bulk_server.connect("bulk")) as victim:
        for wait in (0.02, 0.1, 0.2, 0.4):
            sql = "ALTER TABLE k ADD INDEX x (t(20), s), ADD UNIQUE y (s, t(30), id)"
            error, _ = kill_while(bulk_server, sql, wait, victim)
            outcomes.add(error)
            assert error in (0, 1317), error
            assert not files(bulk_server)
            if error == 0:
                run(session, "ALTER TABLE k DROP INDEX x, DROP INDEX y")
            assert image(session, "k") == before
            check(session, "k")
    assert 1317 in outcomes


def test_progress_is_shown(
    bulk_server: Server,
    session: pymysql.Connection[Any],
) -> None:
    make(session, "p", KEYS["shuffled"], "InnoDB")
    fill(session, "p", 60_000)
    run(session, "ALTER TABLE p ENGINE=FIRN")
    seen: set[float] = set()
    thread = threading.Thread(
        target=lambda: bulk_server.query("CREATE INDEX x ON bulk.p (s, t(50))")
    )
    thread.start()
    while thread.is_alive():
        for (progress,) in run(
            session,
            "SELECT progress FROM information_schema.processlist "
            "WHERE info LIKE 'CREATE INDEX x%'",
        ):
            seen.add(float(progress))
    thread.join()
    assert any(0 < value < 100 for value in seen), seen
    check(session, "p")


def test_a_crash_leaves_the_old_table_or_the_new_one(own_server: Callable[..., Server]) -> None:
    server = own_server(LITTLE_MEMORY, NO_PURGE)
    server.query("CREATE DATABASE bulk")
    with contextlib.closing(server.connect("bulk")) as connection:
        for name, kind in (("k", "shuffled"), ("p", "partitioned")):
            make(connection, name, KEYS[kind], "InnoDB")
            fill(connection, name, 30_000)
            run(connection, f"ALTER TABLE {name} ENGINE=FIRN")
        before = {name: image(connection, name) for name in "kp"}
    settled = sst_bytes(server)
    for wait in (0.05, 0.15, 0.25, 0.35, 0.5, 0.8):
        with contextlib.closing(server.connect("bulk")) as victim:

            def build(connection: pymysql.Connection[Any] = victim) -> None:
                for name in "pk" * 20:
                    error_of(
                        connection, f"ALTER TABLE {name} ADD INDEX x (s, t(20)), ADD INDEX y (e)"
                    )
                    error_of(connection, f"ALTER TABLE {name} DROP INDEX x, DROP INDEX y")

            thread = threading.Thread(target=build)
            thread.start()
            time.sleep(wait)
            server.kill()
            thread.join()
        server.start()
        assert not files(server)
        # The server may leave the file with the list of partitions (.par) when it removes a
        # definition.
        assert not [path for path in (server.data / "bulk").glob("#sql*") if path.suffix != ".par"]
        with contextlib.closing(server.connect("bulk")) as connection:
            for name in "kp":
                check(connection, name)
                names = {row[2] for row in run(connection, f"SHOW INDEX FROM {name}")}
                assert ("x" in names) == ("y" in names)
                if "x" in names:
                    run(connection, f"ALTER TABLE {name} DROP INDEX x, DROP INDEX y")
                assert image(connection, name) == before[name]
            deadline = time.monotonic() + 120
            while (size := sst_bytes(server)) > settled * 1.2:
                assert time.monotonic() < deadline, f"{size} of {settled} bytes are left on disk"
                time.sleep(0.1)
