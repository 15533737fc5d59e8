"""DDL that changes, or must leave alone, the foreign keys of other tables, beside InnoDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign_key_pair import KeyPair
from scenario import lines
from server import Server


@pytest.fixture
def pair(server: Server) -> Iterator[KeyPair]:
    """Two fresh databases."""
    both = KeyPair(server, "fkd")
    yield both
    if server.running():
        both.close()


def play(pair: KeyPair, script: str) -> set[int]:
    """Runs a script on both; returns the errors."""
    return {pair.run(line).error for line in lines(script)} - {0}


TABLES = """
    CREATE TABLE p (id INT PRIMARY KEY, x INT)
    CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT k FOREIGN KEY (p) REFERENCES p (id) {action})
    INSERT INTO p VALUES (1, 1), (2, 2), (3, 3)
    INSERT INTO c VALUES (1, 1), (2, 2)
    """


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE ON UPDATE CASCADE"])
def test_like_copies_no_foreign_key(pair: KeyPair, action: str) -> None:
    errors = play(
        pair,
        TABLES.format(action=action)
        + """
        CREATE TABLE l LIKE c
        SHOW CREATE TABLE l
        INSERT INTO l VALUES (5, 99), (6, 2)
        DELETE FROM p WHERE id = 1
        UPDATE p SET id = 22 WHERE id = 2
        SELECT * FROM c
        SELECT * FROM l
        SELECT constraint_name, table_name, referenced_table_name FROM information_schema.referential_constraints \\
          WHERE constraint_schema = '{db}' ORDER BY 1, 2
        DROP TABLE l
        DELETE FROM p
        SELECT * FROM c
        CREATE TABLE l LIKE p
        INSERT INTO l VALUES (1, 1)
        DELETE FROM l
        CREATE OR REPLACE TABLE l LIKE c
        INSERT INTO l VALUES (7, 77)
        CREATE TEMPORARY TABLE t LIKE c
        INSERT INTO t VALUES (5, 99)
        SELECT * FROM t
        ALTER TABLE t ADD y INT, ALGORITHM=COPY
        DROP TEMPORARY TABLE t
        ALTER TABLE c ADD y INT, ALGORITHM=COPY
        SHOW CREATE TABLE c
        INSERT INTO c VALUES (9, 99, 0)
        DROP TABLE p
        ALTER TABLE l ADD y INT, ALGORITHM=COPY
        SHOW CREATE TABLE l
        DROP TABLE c, p
        SELECT * FROM l
        """,
    )
    assert errors == {1451, 1452}


def test_like_in_another_database(pair: KeyPair) -> None:
    """A cascade does not reach the rows of a table that was made from the referencing one."""
    play(pair, TABLES.format(action="ON DELETE CASCADE"))
    for sql in lines(
        """
        CREATE DATABASE {db}_other
        CREATE TABLE {db}_other.l LIKE c
        INSERT INTO {db}_other.l SELECT * FROM c
        DELETE FROM p WHERE id = 1
        SELECT * FROM c
        SELECT * FROM {db}_other.l
        DROP TABLE c
        DROP TABLE p
        DROP DATABASE {db}_other
        """
    ):
        assert pair.run(sql).error == 0


def test_like_of_a_table_that_refers_to_itself(pair: KeyPair) -> None:
    errors = play(
        pair,
        """
        CREATE TABLE t (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id))
        INSERT INTO t VALUES (1, NULL), (2, 1)
        CREATE TABLE l LIKE t
        SHOW CREATE TABLE l
        INSERT INTO l VALUES (3, 2)
        DELETE FROM t WHERE id = 1
        DELETE FROM t WHERE id = 2
        INSERT INTO t VALUES (3, 3)
        INSERT INTO t VALUES (4, 5)
        DROP TABLE t
        SELECT * FROM l
        """,
    )
    assert errors == {1451, 1452}
