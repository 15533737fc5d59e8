"""System versioning: tables change their engine with their history, as between InnoDB's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from server import ENGINE, Server

HISTORY = "SELECT id, v, row_start, row_end FROM t FOR SYSTEM_TIME ALL ORDER BY id, row_start"


@pytest.fixture
def session(own_server: Callable[..., Server]) -> Iterator[Any]:
    """A session in an empty database that keeps history through ALTER TABLE."""
    server = own_server()
    server.query("CREATE DATABASE d")
    with contextlib.closing(server.connect("d")) as connection, connection.cursor() as cursor:
        cursor.execute("SET system_versioning_alter_history = KEEP")
        yield cursor


def _rows(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchall()


@pytest.mark.parametrize("partitions", ["", "PARTITION BY HASH (id) PARTITIONS 3"])
def test_a_versioned_table_keeps_its_history_in_another_engine(
    session: Any, partitions: str
) -> None:
    session.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=InnoDB WITH SYSTEM VERSIONING"
        f" {partitions}"
    )
    session.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    session.execute("UPDATE t SET v = v * 10")
    session.execute("DELETE FROM t WHERE id = 2")
    before = _rows(session, HISTORY)
    assert len(before) == 6
    session.execute(f"ALTER TABLE t ENGINE={ENGINE}")
    assert _rows(session, HISTORY) == before
    session.execute("UPDATE t SET v = 7 WHERE id = 1")
    after = _rows(session, HISTORY)
    assert len(after) == 7
    assert _rows(session, "SELECT id, v FROM t ORDER BY id") == ((1, 7), (3, 30))
    session.execute("ALTER TABLE t ENGINE=InnoDB")
    assert _rows(session, HISTORY) == after


BY_TRANSACTION = (
    "(id INT PRIMARY KEY, a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,"
    " b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b))"
    " WITH SYSTEM VERSIONING"
)


@pytest.mark.skipif(ENGINE.upper() == "INNODB", reason="InnoDB has it")
def test_versioning_by_transaction_is_refused(session: Any) -> None:
    with pytest.raises(pymysql.err.MySQLError) as refused:
        session.execute(f"CREATE TABLE t {BY_TRANSACTION} ENGINE={ENGINE}")
    assert refused.value.args[0] == 4110, refused.value
    assert "TIMESTAMP(6)" in refused.value.args[1]
    session.execute(f"CREATE TABLE t {BY_TRANSACTION} ENGINE=InnoDB")
    session.execute("INSERT INTO t (id) VALUES (1)")
    with pytest.raises(pymysql.err.MySQLError) as refused:
        session.execute(f"ALTER TABLE t ENGINE={ENGINE}")
    assert refused.value.args[0] == 4110, refused.value
    assert _rows(session, "SELECT id FROM t") == ((1,),)
    session.execute("DROP TABLE t")

    session.execute(f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    with pytest.raises(pymysql.err.MySQLError) as refused:
        session.execute(
            "ALTER TABLE t ADD COLUMN a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,"
            " ADD COLUMN b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,"
            " ADD PERIOD FOR SYSTEM_TIME (a, b), ADD SYSTEM VERSIONING"
        )
    assert refused.value.args[0] == 4110, refused.value
