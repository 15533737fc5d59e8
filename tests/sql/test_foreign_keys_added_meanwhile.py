"""Foreign keys that another session adds while a statement runs, and the locks of cascades."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from foreign_key_pair import KeyPair
from scenario import lines
from server import ENGINE, IS_FIRN, Server

ADD_KEY = (
    "ALTER TABLE c ADD CONSTRAINT k FOREIGN KEY (p) REFERENCES p (id) {action}, ALGORITHM=INPLACE"
)


@pytest.fixture
def pair(server: Server) -> Iterator[KeyPair]:
    """Two fresh databases."""
    both = KeyPair(server, "fkm")
    yield both
    if server.running():
        both.close()


class Late:
    """A DELETE from the referenced table, which waits at its first row for a foreign key."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.deleter, self.other = server.connect("mysql"), server.connect("mysql")
        for sql in (
            "DROP DATABASE IF EXISTS late",
            "CREATE DATABASE late",
            "USE late",
            f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={ENGINE}",
            f"CREATE TABLE c (id INT PRIMARY KEY, p INT, x INT, KEY (p)) ENGINE={ENGINE}",
            "INSERT INTO p VALUES (1), (2)",
            "INSERT INTO c VALUES (1, 1, 1), (2, 2, 2)",
            "SET foreign_key_checks = 0",
            "SELECT GET_LOCK('late', 0)",
        ):
            self.run(self.other, sql)
        self.run(self.deleter, "USE late")

    def run(self, session: Any, sql: str) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        """The error and the rows of a statement."""
        with session.cursor() as cursor:
            try:
                cursor.execute(sql)
                return 0, cursor.fetchall()
            except pymysql.Error as error:
                return error.args[0], ()

    def delete(self, action: str) -> int:
        """Begins the DELETE, adds the foreign key, and returns the error of the DELETE."""
        errors: list[int] = []
        sql = "DELETE FROM p WHERE GET_LOCK('late', 60) = 1"
        deleting = threading.Thread(target=lambda: errors.append(self.run(self.deleter, sql)[0]))
        deleting.start()
        waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'"
        until = time.monotonic() + 30
        while not self.server.query(waits)[0][0] and time.monotonic() < until:
            time.sleep(0.01)
        added, _ = self.run(self.other, ADD_KEY.format(action=action))
        self.run(self.other, "DO RELEASE_LOCK('late')")
        deleting.join()
        self.run(self.deleter, "DO RELEASE_ALL_LOCKS()")
        assert added == 0
        return errors[0]

    def close(self) -> None:
        """Removes the database."""
        self.run(self.deleter, "ROLLBACK")
        self.run(self.other, "DROP DATABASE late")
        self.deleter.close()
        self.other.close()


@pytest.mark.parametrize(
    "action", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE RESTRICT"]
)
def test_statement_older_than_the_foreign_key(server: Server, action: str) -> None:
    """The session has no metadata lock of the referencing table: the DELETE is to be repeated.

    InnoDB follows the foreign key and makes later DDL on the table wait for its own table locks.
    """
    late = Late(server)
    late.run(late.deleter, "BEGIN")
    error = late.delete(action)
    if not IS_FIRN:
        assert error == (1451 if "RESTRICT" in action else 0)
        late.close()
        return
    assert error == 1412
    assert late.run(late.deleter, "SELECT COUNT(*) FROM p") == (0, ((2,),))
    # The statement sees the foreign key from its beginning now, and locks the table.
    again, _ = late.run(late.deleter, "DELETE FROM p")
    assert again == (1451 if "RESTRICT" in action else 0)
    late.run(late.other, "SET lock_wait_timeout = 1")
    add_index = "ALTER TABLE c ADD KEY (x), ALGORITHM=INPLACE, LOCK=SHARED"
    blocked, _ = late.run(late.other, add_index)
    assert blocked == 1205
    late.run(late.deleter, "COMMIT")
    assert late.run(late.other, add_index)[0] == 0
    rows = {"CASCADE": 0, "SET NULL": 2, "RESTRICT": 2}[action.removeprefix("ON DELETE ")]
    found = late.run(late.other, "SELECT COUNT(*) FROM c FORCE INDEX (x) WHERE x > 0")
    assert found == (0, ((rows,),))
    assert late.run(late.other, "CHECK TABLE c EXTENDED")[1][-1][-1] == "OK"
    late.close()


def test_every_statement_that_follows_foreign_keys_has_their_locks(pair: KeyPair) -> None:
    """The server locks referencing tables for each kind of statement."""
    for sql in lines(
        """
        CREATE TABLE p (id INT PRIMARY KEY, v INT)
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)
        CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))
        CREATE TABLE other (id INT PRIMARY KEY)
        CREATE VIEW v AS SELECT * FROM p
        INSERT INTO p SELECT seq, seq FROM mysql.seq_1_to_40
        INSERT INTO c SELECT seq, seq FROM mysql.seq_1_to_40
        INSERT INTO r VALUES (1, 40)
        DELETE FROM p WHERE id = 40
        UPDATE v SET id = 101 WHERE id = 1
        DELETE FROM v WHERE id = 2
        REPLACE INTO p VALUES (3, 33)
        REPLACE INTO p SELECT 4, 44
        INSERT INTO p VALUES (5, 55) ON DUPLICATE KEY UPDATE id = 105
        DELETE p FROM p JOIN other ON other.id = p.id
        INSERT INTO other VALUES (6), (7), (8), (9)
        DELETE p FROM p JOIN other ON other.id = p.id WHERE p.id = 6
        UPDATE p JOIN other ON other.id = p.id SET p.id = 107 WHERE p.id = 7
        CREATE TRIGGER t AFTER DELETE ON other FOR EACH ROW DELETE FROM p WHERE id = OLD.id
        DELETE FROM other WHERE id = 8
        CREATE FUNCTION f (n INT) RETURNS INT MODIFIES SQL DATA RETURN n
        DROP FUNCTION f
        CREATE PROCEDURE g (n INT) BEGIN DELETE FROM p WHERE id = n; UPDATE p SET id = id + 200 WHERE id = n + 1; END
        CALL g(10)
        CALL g(12)
        PREPARE s FROM 'DELETE FROM p WHERE id = ?'
        EXECUTE s USING 14
        EXECUTE s USING 15
        LOCK TABLES p WRITE
        DELETE FROM p WHERE id = 16
        UPDATE p SET id = 117 WHERE id = 17
        DELETE FROM p WHERE id = 40
        UNLOCK TABLES
        CREATE TEMPORARY TABLE c (id INT)
        DELETE FROM p WHERE id = 18
        DROP TEMPORARY TABLE c
        XA START '{db}'
        DELETE FROM p WHERE id = 19
        XA END '{db}'
        XA PREPARE '{db}'
        XA COMMIT '{db}'
        DELETE IGNORE FROM p WHERE id IN (20, 40)
        UPDATE IGNORE p SET id = id + 300 WHERE id IN (21, 40)
        SELECT 22, 222 INTO OUTFILE '../{db}.txt'
        LOAD DATA INFILE '../{db}.txt' REPLACE INTO TABLE p
        SET foreign_key_checks = 0
        DELETE FROM p WHERE id = 23
        SET foreign_key_checks = 1
        SELECT * FROM p ORDER BY id
        SELECT * FROM c ORDER BY id
        SELECT * FROM r ORDER BY id
        """
    ):
        pair.run(sql)


def test_update_that_follows_a_deletion(pair: KeyPair, server: Server) -> None:
    """A deletion sets a column NULL, to which a foreign key with ON UPDATE CASCADE refers.

    That key restricts deletions, for which the server locks the last table for reading only.
    """
    for sql in lines(
        """
        CREATE TABLE p (id INT PRIMARY KEY)
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL)
        CREATE TABLE d (id INT PRIMARY KEY, p INT, x INT, FOREIGN KEY (p) REFERENCES c (p) ON UPDATE CASCADE)
        CREATE TABLE e (id INT PRIMARY KEY, p INT, x INT, FOREIGN KEY (p) REFERENCES d (p) ON UPDATE CASCADE)
        INSERT INTO p VALUES (1), (2)
        INSERT INTO c VALUES (1, 1), (2, 2)
        INSERT INTO d VALUES (1, 1, 1), (2, 2, 2)
        INSERT INTO e VALUES (1, 1, 1), (2, 2, 2)
        BEGIN
        DELETE FROM p WHERE id = 1
        """
    ):
        pair.run(sql)
    # In InnoDB the ALTER waits for locks of rows.
    pair.results("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1", "b")
    for table in ("d", "e"):
        _, blocked = pair.results(f"ALTER TABLE {table} ADD KEY (x), LOCK=SHARED", "b")
        assert blocked.error == 1205
    for sql in lines(
        """
        COMMIT
        SELECT * FROM c
        SELECT * FROM d
        SELECT * FROM e
        DELETE FROM c WHERE id = 2
        CHECK TABLE d, e EXTENDED
        """
    ):
        pair.run(sql)
