"""CHECKSUM TABLE locks the rows in a SERIALIZABLE transaction, as a SELECT does, and only there."""

from __future__ import annotations

import pymysql
import pytest
from server import ENGINE, Server

LOCK_WAIT_TIMEOUT = 1205


@pytest.mark.parametrize("engine", [ENGINE, "InnoDB"])
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "REPEATABLE READ"])
def test_a_checksum_is_read_as_a_select(
    server: Server, database: str, engine: str, isolation: str
) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    server.query(f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)")
    with (
        server.connect(database) as reader,
        server.connect(database) as writer,
        reader.cursor() as reads,
        writer.cursor() as writes,
    ):
        reads.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        reads.execute("BEGIN")
        reads.execute("CHECKSUM TABLE t")
        writes.execute("SET innodb_lock_wait_timeout = 1, firn_lock_wait_timeout = 1")
        if isolation == "SERIALIZABLE":
            with pytest.raises(pymysql.err.OperationalError) as waited:
                writes.execute("UPDATE t SET v = 3 WHERE id = 1")
            assert waited.value.args[0] == LOCK_WAIT_TIMEOUT
        else:
            assert writes.execute("UPDATE t SET v = 3 WHERE id = 1") == 1
        reads.execute("COMMIT")
        assert writes.execute("UPDATE t SET v = 4 WHERE id = 1") == 1
