"""Loads by ALTER … ENGINE and CREATE TABLE … SELECT: all rows in every index, or nothing.

The servers give a load little memory, so that some thousand rows need an external sort.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, NO_PURGE, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN's loads")

ROWS = 20_000
# A limit on the memory of a transaction, which applies to bulk loads, too: some thousand rows
# exceed it.
LITTLE_MEMORY = "--loose-firn-txn-memory-limit=1M"

# Columns of many kinds, and keys in ascending, descending and random order.
COLUMNS = """
    id INT NOT NULL, r INT NOT NULL, s VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci,
    b VARBINARY(60), d DECIMAL(12,3), t TEXT, n BIGINT NULL, e DATETIME(3), f DOUBLE
"""
SELECT = """
    SELECT seq AS id, MOD(seq * 7919, 1000003) AS r, CONCAT('Straße ', MOD(seq * 31, 5000)) AS s,
    REPEAT(CHAR(MOD(seq, 200) + 32), MOD(seq, 50)) AS b, seq / 8 AS d, REPEAT(MD5(seq), 3) AS t,
    IF(MOD(seq, 5) = 0, NULL, seq * 11) AS n, '2024-01-01' + INTERVAL seq SECOND AS e,
    0.5 - MOD(seq * 13, 999) AS f
"""
KEYS = {
    "ordered": "PRIMARY KEY (id), KEY r (r), KEY s (s, r), UNIQUE n (n)",
    "shuffled": "PRIMARY KEY (r, id), KEY e (e), KEY f (f)",
    "descending": "PRIMARY KEY (id DESC), KEY d (d DESC, id), UNIQUE r (r)",
    "text": "PRIMARY KEY (s, r), KEY t (t(9)), KEY b (b(3))",
    "hidden": "KEY r (r), UNIQUE u (n), KEY b (b, d)",
    "partitioned": "PRIMARY KEY (id), KEY s (s)) PARTITION BY HASH (id) PARTITIONS 5",
}


@pytest.fixture(scope="module")
def bulk_server() -> Iterator[Server]:
    server = Server([f"--default-storage-engine={ENGINE}", LITTLE_MEMORY])
    server.start()
    server.query("CREATE DATABASE bulk")
    yield server
    server.destroy()


@pytest.fixture
def session(bulk_server: Server) -> Iterator[pymysql.Connection[Any]]:
    with contextlib.closing(bulk_server.connect("bulk")) as connection:
        yield connection
        run(connection, "SET @@max_statement_time = 0")
        for (name,) in run(connection, "SHOW TABLES"):
            run(connection, f"DROP TABLE {name}")


def run(connection: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def error_of(connection: pymysql.Connection[Any], sql: str) -> tuple[int, str]:
    try:
        run(connection, sql)
    except pymysql.err.MySQLError as error:
        return error.args[0], error.args[1]
    return 0, ""


def check(connection: pymysql.Connection[Any], table: str) -> None:
    result = run(connection, f"CHECK TABLE {table} EXTENDED")
    assert result[-1][3] == "OK", result


def image(connection: pymysql.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    """The checksum of a table's rows, and their number as each index finds it."""
    found = run(connection, f"CHECKSUM TABLE {table} EXTENDED")
    names = dict.fromkeys(row[2] for row in run(connection, f"SHOW INDEX FROM {table}"))
    hints = ["USE INDEX ()", *(f"FORCE INDEX ({name})" for name in names)]
    counts = [run(connection, f"SELECT COUNT(*), SUM(r) FROM {table} {hint}")[0] for hint in hints]
    return [found[0][1:], *counts]


def files(server: Server) -> list[str]:
    """Temporary files of bulk loads; a load that has ended leaves none."""
    return [path.name for path in (server.data / "#firn").glob("*.sort")]


def make(
    connection: pymysql.Connection[Any], name: str, keys: str, engine: str, select: str = ""
) -> None:
    body, _, partitions = keys.partition(") PARTITION")
    tail = f" PARTITION{partitions}" if partitions else ""
    run(connection, f"CREATE TABLE {name} ({COLUMNS}, {body}) ENGINE={engine}{tail} {select}")


def fill(connection: pymysql.Connection[Any], name: str, rows: int = ROWS) -> None:
    for first in range(1, rows + 1, 1000):
        last = min(first + 999, rows)
        run(connection, f"INSERT INTO {name} {SELECT} FROM seq_{first}_to_{last}")


@pytest.mark.parametrize("kind", KEYS)
def test_alter_from_innodb_and_back(
    bulk_server: Server, session: pymysql.Connection[Any], kind: str
) -> None:
    make(session, "t", KEYS[kind], "InnoDB")
    fill(session, "t")
    before = image(session, "t")
    run(session, "ALTER TABLE t ENGINE=FIRN")
    assert image(session, "t") == before
    check(session, "t")
    assert not files(bulk_server)
    # The second copy reads the files that the first one wrote.
    run(session, "ALTER TABLE t FORCE, ALGORITHM=COPY")
    assert image(session, "t") == before
    run(session, "ALTER TABLE t ENGINE=InnoDB")
    assert image(session, "t") == before


@pytest.mark.parametrize("kind", ["ordered", "shuffled", "hidden"])
def test_the_table_lives_on(session: pymysql.Connection[Any], kind: str) -> None:
    for engine in ("InnoDB", "FIRN"):
        make(session, f"t_{engine}", KEYS[kind], engine)
        fill(session, f"t_{engine}", 3000)
        run(session, f"ALTER TABLE t_{engine} ENGINE={engine}, ALGORITHM=COPY")
        run(session, f"DELETE FROM t_{engine} WHERE MOD(id, 3) = 0")
        run(session, f"UPDATE t_{engine} SET r = r + 1, s = CONCAT(s, 'x') WHERE MOD(id, 7) = 1")
        run(session, f"INSERT INTO t_{engine} (id, r, s) VALUES (900001, 5, 'new')")
    assert image(session, "t_InnoDB") == image(session, "t_FIRN")
    check(session, "t_FIRN")


@pytest.mark.parametrize("kind", KEYS)
def test_create_table_select(session: pymysql.Connection[Any], kind: str) -> None:
    images = []
    for engine in ("InnoDB", "FIRN"):
        make(session, f"c_{engine}", KEYS[kind], engine, f"{SELECT} FROM seq_1_to_{ROWS}")
        images.append(image(session, f"c_{engine}"))
    assert images[0] == images[1]
    check(session, "c_FIRN")


def test_generated_numbers_go_on(session: pymysql.Connection[Any]) -> None:
    last = []
    for engine in ("InnoDB", "FIRN"):
        run(
            session,
            f"CREATE TABLE a_{engine} (id INT AUTO_INCREMENT PRIMARY KEY, x INT) "
            f"ENGINE={engine} SELECT seq * 10 AS id, seq AS x FROM seq_1_to_1000",
        )
        run(session, f"ALTER TABLE a_{engine} ENGINE={engine}, ALGORITHM=COPY")
        run(session, f"INSERT INTO a_{engine} (x) VALUES (1)")
        last.append(run(session, f"SELECT MAX(id) FROM a_{engine}"))
    assert last[0] == last[1]


DUPLICATES = {
    "key of one column": ("ADD UNIQUE u (a)", "a"),
    "key of two": ("ADD UNIQUE u (b, a)", "a"),
    "prefix of text": ("ADD UNIQUE u (t(8))", "t"),
    "collated": ("ADD UNIQUE u (s)", "s"),
    "primary": ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", "a"),
    "primary of text": ("DROP PRIMARY KEY, ADD PRIMARY KEY (s, b)", "s"),
}


@pytest.mark.parametrize("kind", DUPLICATES)
@pytest.mark.parametrize("order", ["seq", "3001 - seq", "MOD(seq * 997, 3001)"])
def test_duplicates_are_reported_as_innodb_does(
    bulk_server: Server, session: pymysql.Connection[Any], kind: str, order: str
) -> None:
    change, column = DUPLICATES[kind]
    outcomes = []
    for engine in ("InnoDB", "FIRN"):
        table = f"d_{engine}"
        run(
            session,
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, "
            "s VARCHAR(30) COLLATE utf8mb4_unicode_ci NOT NULL, t TEXT) ENGINE=" + engine,
        )
        run(
            session,
            f"INSERT INTO {table} SELECT {order} AS n, {order}, 7, "
            f"CONCAT('Ünique ', {order}), MD5({order}) FROM seq_1_to_3000",
        )
        # Add a copy of row 1234 with another primary key, which the unique index of the ALTER must
        # reject.
        run(
            session,
            f"INSERT INTO {table} SELECT 5000, a, b, UPPER(s), t FROM {table} WHERE id = 1234",
        )
        outcomes.append(error_of(session, f"ALTER TABLE {table} {change}, ALGORITHM=COPY"))
        # The failed ALTER must have left the table unchanged.
        assert run(session, f"SELECT COUNT(*) FROM {table}") == [(3001,)]
        run(
            session,
            f"UPDATE {table} SET {column} = 'other' WHERE id = 5000"
            if column in "st"
            else f"UPDATE {table} SET {column} = 99999 WHERE id = 5000",
        )
        run(session, f"ALTER TABLE {table} {change}, ALGORITHM=COPY")
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == 1062
    check(session, "d_FIRN")
    assert not files(bulk_server)


def test_nulls_may_repeat(session: pymysql.Connection[Any]) -> None:
    run(session, "CREATE TABLE n (id INT PRIMARY KEY, a INT, b INT) ENGINE=InnoDB")
    run(session, "INSERT INTO n SELECT seq, IF(MOD(seq, 3), NULL, seq), 1 FROM seq_1_to_5000")
    run(session, "ALTER TABLE n ADD UNIQUE (a), ADD UNIQUE (b, a), ENGINE=FIRN")
    check(session, "n")
    assert run(session, "SELECT COUNT(*) FROM n FORCE INDEX (a) WHERE a IS NULL") == [(3334,)]


def test_alter_ignore_keeps_the_first_row(session: pymysql.Connection[Any]) -> None:
    found = []
    for engine in ("InnoDB", "FIRN"):
        run(session, f"CREATE TABLE i_{engine} (id INT PRIMARY KEY, a INT) ENGINE={engine}")
        run(session, f"INSERT INTO i_{engine} SELECT seq, MOD(seq, 700) FROM seq_1_to_3000")
        run(session, f"ALTER IGNORE TABLE i_{engine} ADD UNIQUE (a), ALGORITHM=COPY")
        found.append(run(session, f"SELECT id, a FROM i_{engine} ORDER BY id"))
    assert found[0] == found[1]
    check(session, "i_FIRN")


def test_create_select_that_fails_leaves_no_table(
    bulk_server: Server, session: pymysql.Connection[Any]
) -> None:
    sql = (
        "CREATE TABLE x (a INT PRIMARY KEY) ENGINE={} SELECT MOD(seq * 7, 4999) AS a "
        "FROM seq_1_to_5000"
    )
    outcomes = [error_of(session, sql.format(engine)) for engine in ("InnoDB", "FIRN")]
    assert outcomes[0][0] == outcomes[1][0] == 1062
    assert run(session, "SHOW TABLES") == []
    assert not files(bulk_server)


def test_reorganized_partitions(session: pymysql.Connection[Any]) -> None:
    run(
        session,
        "CREATE TABLE p (id INT PRIMARY KEY, r INT, KEY (r)) ENGINE=FIRN "
        "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5000), "
        "PARTITION b VALUES LESS THAN MAXVALUE)",
    )
    for first in range(1, ROWS + 1, 2000):
        run(
            session,
            "INSERT INTO p SELECT seq, MOD(seq * 7919, 1000003) "
            f"FROM seq_{first}_to_{first + 1999}",
        )
    before = image(session, "p")
    run(
        session,
        "ALTER TABLE p REORGANIZE PARTITION a, b INTO (PARTITION c VALUES LESS THAN (100), "
        "PARTITION d VALUES LESS THAN (15000), PARTITION e VALUES LESS THAN MAXVALUE)",
    )
    assert image(session, "p") == before
    check(session, "p")
    run(session, "ALTER TABLE p PARTITION BY HASH (id) PARTITIONS 12")
    assert image(session, "p") == before
    check(session, "p")


def test_statistics_are_there_at_once(session: pymysql.Connection[Any]) -> None:
    run(
        session,
        f"CREATE TABLE st (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=FIRN "
        f"SELECT seq AS id, MOD(seq, 50) AS a FROM seq_1_to_{ROWS}",
    )
    rows = run(session, "SELECT table_rows FROM information_schema.tables WHERE table_name = 'st'")
    assert rows == [(ROWS,)]
    cardinality = run(session, "SHOW INDEX FROM st WHERE Key_name = 'a'")[0][6]
    assert 25 <= cardinality <= 100


def kill_while(
    server: Server, sql: str, wait: float, victim: pymysql.Connection[Any]
) -> tuple[int, str]:
    """Runs `sql`, kills the query after a while, and returns its error."""
    outcome: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: outcome.append(error_of(victim, sql)))
    thread.start()
    time.sleep(wait)
    server.query(f"KILL QUERY {victim.thread_id()}")
    thread.join()
    return outcome[0]


def test_kill_leaves_nothing(bulk_server: Server, session: pymysql.Connection[Any]) -> None:
    make(session, "k", KEYS["shuffled"], "InnoDB")
    fill(session, "k", 100_000)
    before = image(session, "k")
    with contextlib.closing(bulk_server.connect("bulk")) as victim:
        outcomes = set()
        for wait in (0.02, 0.1, 0.3, 0.6, 1.0):
            error, _ = kill_while(bulk_server, "ALTER TABLE k ENGINE=FIRN", wait, victim)
            outcomes.add(error)
            assert error in (0, 1317), error
            assert not files(bulk_server)
            assert image(session, "k") == before
            if error == 0:
                check(session, "k")
                run(session, "ALTER TABLE k ENGINE=InnoDB")
        assert 1317 in outcomes
    names = {
        row[0] for row in run(session, "SELECT table_name FROM information_schema.firn_tables")
    }
    assert not {name for name in names if name.startswith("#sql")}


def sst_bytes(server: Server) -> int:
    total = 0
    for path in (server.data / "#firn").glob("*.sst"):
        # A compaction may delete the file between the listing and the call of stat.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_a_crash_leaves_nothing(own_server: Callable[..., Server]) -> None:
    server = own_server(LITTLE_MEMORY, NO_PURGE)
    server.query("CREATE DATABASE bulk")
    with contextlib.closing(server.connect("bulk")) as connection:
        make(connection, "k", KEYS["shuffled"], "InnoDB")
        fill(connection, "k", 60_000)
        before = image(connection, "k")
    for wait in (0.1, 0.3, 0.5, 0.8):
        with contextlib.closing(server.connect("bulk")) as victim:
            sql = "ALTER TABLE k ENGINE=FIRN"
            thread = threading.Thread(target=error_of, args=(victim, sql))
            thread.start()
            time.sleep(wait)
            server.kill()
            thread.join()
        server.start()
        assert not files(server)
        assert not list((server.data / "bulk").glob("#sql*"))
        with contextlib.closing(server.connect("bulk")) as connection:
            assert image(connection, "k") == before
            check(connection, "k")
            engine = run(
                connection, "SELECT engine FROM information_schema.tables " "WHERE table_name = 'k'"
            )[0][0]
            if engine == "FIRN":
                run(connection, "ALTER TABLE k ENGINE=InnoDB")
            deadline = time.monotonic() + 120
            while (left := sst_bytes(server)) > 200_000:
                assert time.monotonic() < deadline, f"rows of the load stay on disk: {left} bytes"
                time.sleep(0.1)


def test_rows_in_order_are_written_once(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE bulk")
    with contextlib.closing(server.connect("bulk")) as connection:
        run(connection, "CREATE TABLE w (id INT PRIMARY KEY, k INT, c CHAR(120)) ENGINE=InnoDB")
        run(connection, "INSERT INTO w SELECT seq, seq, MD5(seq) FROM seq_1_to_200000")

        def written() -> int:
            rows = run(connection, "SHOW GLOBAL STATUS LIKE 'Firn_bytes_written'")
            return int(rows[0][1])

        # The first commit makes the engine fill the next segment of the log with zeros.
        run(connection, "CREATE TABLE first (id INT PRIMARY KEY) ENGINE=FIRN")
        run(connection, "INSERT INTO first VALUES (1)")
        # An idle server begins to compact after two seconds, so wait until nothing has been written
        # for three.
        before = written()
        since = begun = time.monotonic()
        while time.monotonic() < since + 3:
            assert time.monotonic() < begun + 120, "an idle server writes"
            time.sleep(0.2)
            if (now := written()) != before:
                before, since = now, time.monotonic()
        run(connection, "ALTER TABLE w ENGINE=FIRN")
        assert written() - before <= 1.3 * sst_bytes(server)
