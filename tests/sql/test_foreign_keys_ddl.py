"""DDL that changes, or must leave alone, the foreign keys of other tables, beside InnoDB."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pymysql
import pytest
from foreign_key_pair import KeyPair
from scenario import lines
from server import IS_FIRN, Server


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


def waits_for_metadata(server: Server, count: int) -> None:
    """Returns when `count` sessions wait for a metadata lock."""
    waiting = (
        "SELECT COUNT(*) FROM information_schema.processlist "
        "WHERE state = 'Waiting for table metadata lock'"
    )
    until = time.monotonic() + 60
    while server.query(waiting)[0][0] != count:
        assert time.monotonic() < until, "the statement does not wait"
        time.sleep(0.01)


@pytest.mark.parametrize("child", ["c", "c2"])
@pytest.mark.parametrize(
    "rename", ["RENAME TABLE p TO p2", "ALTER TABLE p RENAME COLUMN id TO id2"]
)
def test_referenced_table_gets_a_name_during_a_copying_alter(
    pair: KeyPair, server: Server, rename: str, child: str
) -> None:
    """ALTER has copied all rows, and waits for a reader. InnoDB's RENAME waits for the ALTER."""
    if not IS_FIRN:
        pytest.skip("about the engine's own catalog")
    play(pair, TABLES.format(action=""))
    alter = f"ALTER TABLE c ADD y INT, RENAME TO {child}, ALGORITHM=COPY"
    inplace = f"ALTER TABLE c ADD y INT, RENAME TO {child}"
    for sql in (inplace, rename):
        with pair.connect("a")[0].cursor() as cursor:
            cursor.execute(sql)
    reader, altering, renaming = (pair.connect(name)[1] for name in "bcd")
    with reader.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM c")
    errors: list[Exception] = []

    def run() -> None:
        try:
            with altering.cursor() as cursor:
                cursor.execute(alter)
        except pymysql.Error as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    waits_for_metadata(server, 1)
    with renaming.cursor() as cursor:
        cursor.execute(rename)
    reader.commit()
    thread.join()
    assert not errors
    parent = "p2" if "p2" in rename else "p"
    errors_after = play(
        pair,
        f"""
        SHOW CREATE TABLE {child}
        INSERT INTO {child} VALUES (3, 3, 0)
        INSERT INTO {child} VALUES (4, 99, 0)
        DELETE FROM {parent} WHERE x = 1
        DROP TABLE {parent}
        SELECT * FROM {child}
        """,
    )
    assert errors_after == {1451, 1452}


FOLLOWED = """
    CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT k FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)
    CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))
    INSERT INTO p (id, x) VALUES (1, NULL), (2, 1), (3, 1)
    INSERT INTO c VALUES (1, 1), (2, 2)
    INSERT INTO d VALUES (2, 2)
    """
AFTER = """
    SHOW CREATE TABLE p2
    SHOW CREATE TABLE c
    SHOW CREATE TABLE d
    DELETE FROM p2 WHERE id = 3
    INSERT INTO c VALUES (3, 2)
    INSERT INTO c VALUES (4, 99)
    INSERT INTO p2 (id, x) VALUES (5, 2), (6, 99)
    DELETE FROM p2 WHERE id = 2
    DELETE FROM d
    DELETE FROM p2 WHERE id = 5
    DELETE FROM p2 WHERE id = 2
    SELECT id, p FROM c
    DROP TABLE p2
    CREATE TABLE p (id INT PRIMARY KEY)
    DROP TABLE p
    """


@pytest.mark.parametrize(
    "change",
    [
        "COMMENT 'q'",
        "ADD INDEX (x, id)",
        "ADD y INT",
        "FORCE",
        "ALTER x SET DEFAULT 5",
        "RENAME COLUMN x TO x",
    ],
)
@pytest.mark.parametrize("itself", ["", ", CONSTRAINT s FOREIGN KEY (x) REFERENCES p (id)"])
def test_alter_that_renames_the_referenced_table(pair: KeyPair, change: str, itself: str) -> None:
    parent = f"CREATE TABLE p (id INT PRIMARY KEY, x INT, KEY (x){itself})\n"
    play(pair, parent + FOLLOWED)
    # If the engine copies the table, the statement affects all rows.
    results = pair.results(f"ALTER TABLE p {change}, RENAME TO p2")
    assert [result.error for result in results] == [0, 0]
    assert play(pair, AFTER) == {1451, 1452}


def test_copying_alter_that_renames_the_referenced_table(pair: KeyPair) -> None:
    """InnoDB loses the foreign keys if it copies, and changes the table in place if it can."""
    if not IS_FIRN:
        pytest.skip("about the engine's own catalog")
    play(pair, "CREATE TABLE p (id INT PRIMARY KEY, x INT)\n" + FOLLOWED)
    inplace, copying = pair.connect("a")
    with inplace.cursor() as one, copying.cursor() as two:
        one.execute("ALTER TABLE p ADD y INT, RENAME TO p2, ALGORITHM=INPLACE")
        with pytest.raises(pymysql.err.MySQLError) as refused:
            two.execute("ALTER TABLE p MODIFY id VARCHAR(10), RENAME TO p2, ALGORITHM=COPY")
        assert refused.value.args[0] in (1025, 1833)
        two.execute("ALTER TABLE p ADD y INT, RENAME TO p2, ALGORITHM=COPY")
    assert play(pair, AFTER) == {1451, 1452}


@pytest.mark.parametrize("change", ["COMMENT 'q'", "ADD y INT", "FORCE"])
def test_alter_that_moves_a_table_to_another_database(pair: KeyPair, change: str) -> None:
    play(pair, TABLES.format(action="ON DELETE CASCADE"))
    for sql, error in (
        ("CREATE DATABASE {db}_other", 0),
        ("CREATE TABLE {db}_other.d LIKE c", 0),
        ("ALTER TABLE {db}_other.d ADD CONSTRAINT k FOREIGN KEY (p) REFERENCES {db}.p (id)", 0),
        (f"ALTER TABLE p {change}, RENAME TO {{db}}_other.p2", 0),
        ("SHOW CREATE TABLE c", 0),
        ("SHOW CREATE TABLE {db}_other.d", 0),
        ("INSERT INTO c VALUES (3, 3)", 0),
        ("INSERT INTO c VALUES (4, 4)", 1452),
        ("INSERT INTO {db}_other.d VALUES (1, 1)", 0),
        ("DELETE FROM {db}_other.p2 WHERE id = 1", 1451),
        ("DELETE FROM {db}_other.p2 WHERE id = 2", 0),
        ("SELECT * FROM c", 0),
        ("ALTER TABLE c COMMENT 'q', RENAME TO {db}_other.c2", 1050),
        ("SELECT id, p FROM c", 0),
        ("DROP TABLE {db}_other.d", 0),
        (f"ALTER TABLE c {change}, RENAME TO {{db}}_other.c3", 0),
        ("SHOW CREATE TABLE {db}_other.c3", 0),
        ("DELETE FROM {db}_other.p2 WHERE id = 3", 0),
        ("SELECT id, p FROM {db}_other.c3", 0),
        ("DROP DATABASE {db}_other", 0),
    ):
        results = pair.results(sql)
        assert [result.error for result in results] == [error, error], (sql, results)
        assert results[0].rows == results[1].rows, sql


def test_rename_to_a_foreign_key_name_that_is_taken(pair: KeyPair) -> None:
    play(pair, TABLES.format(action=""))
    for sql, error in (
        ("CREATE DATABASE {db}_other", 0),
        ("CREATE TABLE {db}_other.c LIKE c", 0),
        ("ALTER TABLE {db}_other.c ADD CONSTRAINT k FOREIGN KEY (p) REFERENCES {db}.p (id)", 0),
        ("RENAME TABLE {db}_other.c TO {db}.c2", 1050),
        ("SET foreign_key_checks = 0", 0),
        ("RENAME TABLE {db}_other.c TO {db}.c2", 1050),
        ("SET foreign_key_checks = 1", 0),
        ("DELETE FROM p WHERE id = 1", 1451),
        ("INSERT INTO {db}_other.c VALUES (3, 3)", 0),
        ("DELETE FROM p WHERE id = 3", 1451),
        ("DROP TABLE c", 0),
        ("RENAME TABLE {db}_other.c TO {db}.c2", 0),
        ("SHOW CREATE TABLE c2", 0),
        ("DELETE FROM p WHERE id = 3", 1451),
        ("DROP DATABASE {db}_other", 0),
    ):
        assert pair.run(sql).error == error, sql


def test_rename_to_a_generated_foreign_key_name_that_is_taken(pair: KeyPair) -> None:
    errors = play(
        pair,
        """
        CREATE TABLE p (id INT PRIMARY KEY)
        CREATE TABLE a (p INT, FOREIGN KEY (p) REFERENCES p (id))
        CREATE TABLE b (p INT, CONSTRAINT n_ibfk_1 FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)
        INSERT INTO p VALUES (1), (2)
        INSERT INTO b VALUES (1), (2)
        RENAME TABLE a TO n
        SHOW CREATE TABLE a
        SHOW CREATE TABLE b
        DELETE FROM p WHERE id = 1
        SELECT * FROM b
        RENAME TABLE b TO n
        SHOW CREATE TABLE n
        RENAME TABLE a TO m
        SHOW CREATE TABLE m
        DELETE FROM p
        SELECT * FROM n
        """,
    )
    assert errors == {1050}


def test_rename_to_a_name_for_which_a_foreign_key_waits(pair: KeyPair) -> None:
    errors = play(
        pair,
        """
        SET foreign_key_checks = 0
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))
        SET foreign_key_checks = 1
        CREATE TABLE x (id VARCHAR(10) PRIMARY KEY)
        CREATE TABLE y (id INT PRIMARY KEY)
        RENAME TABLE x TO p
        ALTER TABLE x RENAME TO p
        SELECT * FROM x
        RENAME TABLE y TO p
        INSERT INTO p VALUES (1)
        INSERT INTO c VALUES (1, 1)
        INSERT INTO c VALUES (2, 2)
        DELETE FROM p
        """,
    )
    assert errors == {1025, 1451, 1452}
