"""AUTO_INCREMENT: values as in InnoDB, and no value is ever given out twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pymysql
import pytest
from scenario import same_as_innodb
from server import ENGINE, Server


def _next(server: Server) -> int:
    connection = server.connect("ai")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t (v) VALUES (0)")
        number = int(cursor.lastrowid)
    connection.close()
    return number


def _make(server: Server) -> None:
    server.query("CREATE DATABASE ai")
    server.query(f"CREATE TABLE ai.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={ENGINE}")
    server.query("INSERT INTO ai.t (v) VALUES (1), (2), (3), (4), (5)")


@pytest.mark.parametrize("how", ["restart", "crash_and_recover"])
def test_counter_survives(own_server: Callable[..., Server], how: str) -> None:
    server = own_server()
    _make(server)
    server.query("DELETE FROM ai.t WHERE id >= 4")
    getattr(server, how)()
    assert _next(server) == 6
    server.query("INSERT INTO ai.t VALUES (100, 0)")
    server.query("DELETE FROM ai.t WHERE id = 100")
    getattr(server, how)()
    assert _next(server) == 101
    server.query("DELETE FROM ai.t")
    getattr(server, how)()
    assert _next(server) == 102
    server.query("ALTER TABLE ai.t AUTO_INCREMENT = 1000")
    getattr(server, how)()
    assert _next(server) == 1000
    server.query("TRUNCATE TABLE ai.t")
    getattr(server, how)()
    assert _next(server) == 1


@pytest.mark.parametrize("how", ["restart", "crash_and_recover"])
def test_a_counter_that_was_set_back_stays_there(
    own_server: Callable[..., Server], how: str
) -> None:
    server = own_server()
    _make(server)
    server.query("INSERT INTO ai.t VALUES (1000, 0)")
    server.query("DELETE FROM ai.t WHERE id > 3")
    server.query("ALTER TABLE ai.t AUTO_INCREMENT = 1")
    getattr(server, how)()
    assert _next(server) == 4
    getattr(server, how)()
    assert _next(server) == 5
    server.query("ALTER TABLE ai.t AUTO_INCREMENT = 500")
    server.query("ALTER TABLE ai.t AUTO_INCREMENT = 1, ADD KEY (v)")
    assert _next(server) == 6
    getattr(server, how)()
    assert _next(server) == 7


@pytest.mark.skipif(ENGINE != "FIRN", reason="InnoDB counts rows that are prepared, too")
def test_prepared_rows_keep_the_counter(own_server: Callable[..., Server]) -> None:
    server = own_server("--log-bin=binlog")
    _make(server)
    session = server.connect("ai")
    with session.cursor() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute("INSERT INTO t VALUES (1000, 0)")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")
    session.close()
    server.crash_and_recover()
    with contextlib.closing(server.connect("ai")) as session, session.cursor() as cursor:
        # The prepared transaction blocks the ALTER, as in InnoDB, where it waits in vain for a
        # table lock.
        with pytest.raises(pymysql.err.OperationalError) as refused:
            cursor.execute("ALTER TABLE t AUTO_INCREMENT = 1")
        assert refused.value.args[0] == 1205
    assert _next(server) == 1001
    server.query("XA COMMIT 'x'")
    server.query("ALTER TABLE ai.t AUTO_INCREMENT = 1")
    assert _next(server) == 1002


def test_rolled_back_numbers_are_not_given_again(server: Server, database: str) -> None:
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE={ENGINE}")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (), ()")
        cursor.execute("ROLLBACK")
        cursor.execute("INSERT INTO t VALUES ()")
        assert cursor.lastrowid == 3
    connection.close()


SCRIPTS = {
    "increment_and_offset": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)
        SET auto_increment_increment = 10, auto_increment_offset = 5
        INSERT INTO t (v) VALUES (1), (2)
        INSERT INTO t (v) VALUES (3)
        INSERT INTO t VALUES (42, 4)
        INSERT INTO t (v) VALUES (5)
        INSERT INTO t (v) VALUES (6), (7), (8)
        SELECT * FROM t ORDER BY id
    """,
    "explicit_values": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)
        INSERT INTO t VALUES (10, 1)
        INSERT INTO t (v) VALUES (2)
        INSERT INTO t VALUES (-5, 3), (0, 4), (NULL, 5)
        SELECT * FROM t ORDER BY id
        SELECT LAST_INSERT_ID()
        SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'
        INSERT INTO t VALUES (0, 6)
        UPDATE t SET id = 50 WHERE id = 10
        INSERT INTO t (v) VALUES (7)
        SELECT * FROM t ORDER BY id
    """,
    "second_column_of_a_key": """
        CREATE TABLE t (a INT, id INT AUTO_INCREMENT, PRIMARY KEY (a, id), KEY (id))
        INSERT INTO t (a) VALUES (1), (1), (2), (2), (1)
        SELECT * FROM t ORDER BY a, id
    """,
    "end_of_the_type": """
        CREATE TABLE t (id TINYINT AUTO_INCREMENT PRIMARY KEY, v INT)
        INSERT INTO t VALUES (125, 0)
        INSERT INTO t (v) VALUES (1)
        INSERT INTO t (v) VALUES (2)
        INSERT INTO t (v) VALUES (3)
        SELECT * FROM t ORDER BY id
    """,
    "bigint_unsigned": """
        CREATE TABLE t (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT)
        INSERT INTO t VALUES (18446744073709551610, 0)
        INSERT INTO t (v) VALUES (1)
        SELECT * FROM t ORDER BY id
    """,
    "alter_keeps_and_sets": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)
        INSERT INTO t (v) VALUES (1), (2), (3)
        DELETE FROM t WHERE id = 3
        ALTER TABLE t ADD COLUMN w INT
        INSERT INTO t (v) VALUES (4)
        ALTER TABLE t AUTO_INCREMENT = 2
        INSERT INTO t (v) VALUES (5)
        ALTER TABLE t AUTO_INCREMENT = 20
        INSERT INTO t (v) VALUES (6)
        SELECT id, v FROM t ORDER BY id
        RENAME TABLE t TO u
        INSERT INTO u (v) VALUES (7)
        SELECT MAX(id) FROM u
    """,
    "alter_sets_it_back": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY (v))
        INSERT INTO t VALUES (-3, 0), (1, 1), (2, 2), (100, 3)
        DELETE FROM t WHERE id > 2
        ALTER TABLE t AUTO_INCREMENT = 1
        INSERT INTO t (v) VALUES (4)
        ALTER TABLE t AUTO_INCREMENT = 50, ALGORITHM=INPLACE
        ALTER TABLE t AUTO_INCREMENT = 20, COMMENT 'back', ALGORITHM=INSTANT
        INSERT INTO t (v) VALUES (5), (6)
        SELECT AUTO_INCREMENT FROM information_schema.tables WHERE table_schema = DATABASE()
        SELECT * FROM t ORDER BY id
        DELETE FROM t WHERE id > 0
        ALTER TABLE t AUTO_INCREMENT = 0, ADD KEY (v, id)
        INSERT INTO t (v) VALUES (7)
        DELETE FROM t
        ALTER TABLE t AUTO_INCREMENT = 1
        INSERT INTO t (v) VALUES (8)
        SELECT * FROM t ORDER BY id
    """,
    "alter_sets_large_and_backward_ones_back": """
        CREATE TABLE t (id BIGINT UNSIGNED AUTO_INCREMENT, v INT, KEY (id DESC))
        INSERT INTO t VALUES (18446744073709551000, 0), (9223372036854775809, 1)
        DELETE FROM t WHERE v = 0
        ALTER TABLE t AUTO_INCREMENT = 5
        INSERT INTO t (v) VALUES (2)
        SELECT * FROM t ORDER BY id
    """,
    "unsigned_column_without_primary_key": """
        CREATE TABLE t (id SMALLINT UNSIGNED AUTO_INCREMENT, v INT, KEY (id))
        INSERT INTO t (v) VALUES (1), (2)
        DELETE FROM t
        INSERT INTO t (v) VALUES (3)
        SELECT * FROM t
    """,
}
ERRORS = {"end_of_the_type": {5: 167}}


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_innodb(server: Server, name: str) -> None:
    same_as_innodb(server, SCRIPTS[name], ERRORS.get(name))


def test_rows_of_portions_get_the_numbers_of_innodb(server: Server) -> None:
    same_as_innodb(
        server,
        r"""
        CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, s DATE, e DATE, \
            PERIOD FOR p (s, e))
        INSERT INTO t (v, s, e) VALUES (1, '2018-01-01', '2020-01-01')
        UPDATE t FOR PORTION OF p FROM '2019-01-01' TO '2019-12-01' SET v = 2
        INSERT INTO t (v, s, e) VALUES (3, '2018-01-01', '2020-01-01')
        DELETE FROM t FOR PORTION OF p FROM '2019-12-10' TO '2019-12-20'
        INSERT INTO t (v, s, e) VALUES (4, '2017-01-01', '2018-01-01')
        UPDATE t FOR PORTION OF p FROM '2017-02-01' TO '2019-04-01' SET v = v + 10
        INSERT INTO t (v, s, e) VALUES (5, '2016-01-01', '2017-01-01')
        SELECT id, v, s, e FROM t ORDER BY id
        CHECK TABLE t EXTENDED
        """,
    )
