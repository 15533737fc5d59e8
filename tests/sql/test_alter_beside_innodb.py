"""ALTER and AUTO_INCREMENT where the server decides as much as the engine, beside InnoDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign_key_pair import KeyPair
from scenario import lines
from server import ENGINE, IS_FIRN, Server


@pytest.fixture
def pair(server: Server) -> Iterator[KeyPair]:
    """Two fresh databases."""
    both = KeyPair(server, "ab")
    yield both
    if server.running():
        both.close()


@pytest.mark.skipif(not IS_FIRN, reason="compares InnoDB with another engine")
def test_increments_of_a_session(pair: KeyPair) -> None:
    """A session that changes auto_increment_increment and _offset gets InnoDB's numbers.

    It does not go back to a smaller increment: InnoDB then goes on at numbers that depend on the
    increment which the open table happened to be used with before.
    """
    for sql in lines(
        """
        CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, b INT)
        INSERT INTO a (b) VALUES (1), (2)
        SET auto_increment_increment = 10
        INSERT INTO a (b) VALUES (3), (4)
        SET auto_increment_offset = 5
        INSERT INTO a (b) VALUES (5), (6)
        SET auto_increment_increment = 12, auto_increment_offset = 3
        INSERT INTO a VALUES (500, 1), (NULL, 2), (NULL, 3)
        INSERT INTO a (b) VALUES (1) ON DUPLICATE KEY UPDATE b = 2
        SELECT * FROM a
        SHOW CREATE TABLE a
        ALTER TABLE a AUTO_INCREMENT = 1000
        INSERT INTO a (b) VALUES (1)
        ALTER TABLE a ADD x INT, ALGORITHM=COPY
        INSERT INTO a (b) VALUES (1)
        SELECT id FROM a WHERE id > 500
        CREATE TABLE t (id TINYINT AUTO_INCREMENT PRIMARY KEY)
        INSERT INTO t VALUES (110)
        INSERT INTO t VALUES (NULL)
        INSERT INTO t VALUES (NULL)
        INSERT IGNORE INTO t VALUES (NULL)
        SELECT * FROM t
        """
    ):
        pair.run(sql)


@pytest.mark.skipif(not IS_FIRN, reason="compares InnoDB with another engine")
def test_indexes_using_hash(pair: KeyPair) -> None:
    """Keys that are short enough are ordinary indexes, whatever their definition says."""
    for sql in lines(
        """
        CREATE TABLE h (id INT PRIMARY KEY, a INT, b VARCHAR(10), t TEXT)
        CREATE UNIQUE INDEX u ON h (a) USING HASH
        CREATE INDEX n ON h (a) USING HASH
        CREATE UNIQUE INDEX u2 ON h (b) USING HASH
        CREATE UNIQUE INDEX u3 ON h (t) USING HASH
        ALTER TABLE h ADD UNIQUE KEY u4 (a, b) USING HASH
        SHOW CREATE TABLE h
        CREATE TABLE h2 (id INT, UNIQUE KEY (id) USING HASH)
        CREATE TABLE h3 (id INT, PRIMARY KEY (id) USING HASH)
        CREATE TABLE h4 (id INT, KEY (id) USING RTREE)
        SHOW CREATE TABLE h2
        SHOW INDEX FROM h2
        INSERT INTO h2 VALUES (1), (1)
        """
    ):
        pair.run(sql)


@pytest.mark.skipif(ENGINE.upper() == "INNODB", reason="converts from InnoDB to another engine")
@pytest.mark.parametrize("history", ["ERROR", "KEEP"])
def test_engine_of_a_table_with_system_versioning(server: Server, history: str) -> None:
    """The server refuses ALTER between InnoDB and any other engine: InnoDB alone has versions by
    transaction. Between other engines it allows ALTER."""
    with server.connect("mysql") as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE versioned")
        cursor.execute("USE versioned")
        cursor.execute(f"SET system_versioning_alter_history = {history}")
        found = {}
        pairs = [("InnoDB", ENGINE), ("InnoDB", "Aria"), (ENGINE, "InnoDB"), ("Aria", "InnoDB"),
                 (ENGINE, ENGINE), (ENGINE, "Aria"), ("Aria", ENGINE)]  # fmt: skip
        for before, after in pairs:
            cursor.execute("DROP TABLE IF EXISTS v")
            cursor.execute(
                f"CREATE TABLE v (id INT PRIMARY KEY, a INT) ENGINE={before} WITH SYSTEM VERSIONING"
            )
            cursor.execute("INSERT INTO v VALUES (1, 1)")
            cursor.execute("UPDATE v SET a = 2")
            try:
                cursor.execute(f"ALTER TABLE v ENGINE={after}")
                cursor.execute("SELECT COUNT(*) FROM v FOR SYSTEM_TIME ALL")
                found[before, after] = cursor.fetchall()[0][0]
            except Exception as error:
                found[before, after] = -error.args[0]
        cursor.execute("DROP DATABASE versioned")
    assert found == {one: -4120 if "InnoDB" in one and one[0] != one[1] else 2 for one in pairs}
