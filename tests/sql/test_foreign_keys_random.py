"""Random foreign keys beside InnoDB: tables with cycles, all actions, DML, DDL, crashes.

Transactions of several sessions follow each other, while other sessions keep old snapshots open.
The statements are the same on both engines; results, errors, texts, row counts, contents and SHOW
CREATE TABLE must be equal. A run has 24 rounds, or as many as FIRN_TEST_FOREIGN_KEY_SECONDS has
time for; FIRN_TEST_SEED repeats one.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from foreign_key_pair import KeyPair
from server import ENGINE, IS_FIRN, NO_PURGE, Server

SECONDS = float(os.environ.get("FIRN_TEST_FOREIGN_KEY_SECONDS", "0"))
ROUNDS = 24
TABLES = 6
# Statements that a failure shows.
HISTORY_MAX = int(os.environ.get("FIRN_TEST_FOREIGN_KEY_HISTORY", "40"))
ACTIONS = ("RESTRICT", "NO ACTION", "CASCADE", "SET NULL")
# Referenced and referencing columns of the same types.
GROUPS = (("id",), ("a",), ("b",), ("a", "b"), ("b", "a"), ("s",))
PARTNERS = {
    ("id",): (("id",), ("a",), ("b",)),
    ("a",): (("id",), ("a",), ("b",)),
    ("b",): (("id",), ("a",), ("b",)),
    ("a", "b"): (("a", "b"), ("b", "a")),
    ("b", "a"): (("a", "b"), ("b", "a")),
    ("s",): (("s",),),
}
TEXTS = ("NULL", "'x'", "'X'", "'y '", "'y'", "'zz'", "''")


class Run:
    """One set of tables and the statements on them."""

    def __init__(self, pair: KeyPair, rng: random.Random) -> None:
        self.pair = pair
        self.rng = rng
        self.names = [f"t{number}" for number in range(rng.randint(2, TABLES))]
        self.renames = 0
        self.keys = 0

    def value(self, column: str) -> str:
        """A value of few, so that rows meet."""
        if column == "s":
            return self.rng.choice(TEXTS)
        if column == "a" and self.rng.random() < 0.2:
            return "NULL"
        return str(self.rng.randint(0, 7))

    def foreign_key(self, name: bool) -> str:
        """A foreign key to some table, which may not have the index."""
        rng = self.rng
        own = rng.choice(GROUPS)
        other = rng.choice(PARTNERS[own])
        text = ""
        if name:
            self.keys += 1
            text = f"CONSTRAINT k{self.keys} "
        text += f"FOREIGN KEY ({', '.join(own)}) REFERENCES {rng.choice(self.names)} "
        text += f"({', '.join(other)})"
        for event in ("DELETE", "UPDATE"):
            if rng.random() < 0.8:
                text += f" ON {event} {rng.choice(ACTIONS)}"
        return text

    def create(self) -> None:
        """Creates the tables, then their foreign keys, in cycles too."""
        rng = self.rng
        self.pair.run("SET foreign_key_checks=0")
        for name in self.names:
            parts = ["id INT NOT NULL", "a INT", "b INT NOT NULL", "s VARCHAR(10)"]
            primary = ["PRIMARY KEY (id)", "UNIQUE KEY u (id)", "PRIMARY KEY (id, b)"]
            parts.append(rng.choice(primary))
            parts.append(rng.choice(["KEY k (a, b)", "UNIQUE KEY k (a)", "KEY k (a DESC)"]))
            parts.append(rng.choice(["KEY l (b, a)", "KEY l (b)", "UNIQUE KEY l (b, s, id)"]))
            parts.append(rng.choice(["KEY m (s)", "KEY m (s, a)"]))
            self.pair.run(f"CREATE TABLE {name} ({', '.join(parts)})")
        for name in self.names:
            for _ in range(rng.randint(0, 2)):
                self.pair.run(f"ALTER TABLE {name} ADD {self.foreign_key(rng.random() < 0.5)}")
        self.pair.run("SET foreign_key_checks=1")

    def condition(self) -> str:
        """Some rows, in an order that does not depend on the plan."""
        rng = self.rng
        column = rng.choice(["id", "a", "b"])
        where = f" WHERE {column} {rng.choice(['=', '<', '>='])} {rng.randint(0, 8)}"
        limit = f" LIMIT {rng.randint(1, 3)}" if rng.random() < 0.5 else ""
        return f"{where} ORDER BY id, b, a, s{limit}"

    def change(self, session: str) -> None:
        """One statement that writes."""
        rng = self.rng
        name = rng.choice(self.names)
        kind = rng.random()
        columns = ("id", "a", "b", "s")
        if kind < 0.45:
            rows = ", ".join(
                f"({', '.join(self.value(column) for column in columns)})"
                for _ in range(rng.randint(1, 3))
            )
            word = rng.choice(["INSERT", "INSERT", "INSERT", "REPLACE", "INSERT IGNORE"])
            tail = ""
            if word == "INSERT" and rng.random() < 0.2:
                column = rng.choice(columns)
                tail = f" ON DUPLICATE KEY UPDATE {column} = {self.value(column)}"
            sql = f"{word} INTO {name} (id, a, b, s) VALUES {rows}{tail}"
        elif kind < 0.7:
            column = rng.choice(columns)
            ignore = "IGNORE " if rng.random() < 0.15 else ""
            value = f"{column} + 1" if column != "s" and rng.random() < 0.2 else self.value(column)
            sql = f"UPDATE {ignore}{name} SET {column} = {value}{self.condition()}"
        elif kind < 0.95:
            ignore = "IGNORE " if rng.random() < 0.15 else ""
            sql = f"DELETE {ignore}FROM {name}{self.condition()}"
        else:
            other = rng.choice(self.names)
            if other == name:
                return
            # The count depends on which table comes first: rows that a cascade has deleted are gone
            # when their turn comes.
            joined = f"{name} x STRAIGHT_JOIN {other} y ON x.id = y.id"
            sql = f"DELETE x, y FROM {joined} WHERE x.id = {self.value('id')}"
        self.pair.run(sql, session, any_key=True)

    def transaction(self, session: str) -> None:
        """Some changes, then the outcome."""
        rng = self.rng
        self.pair.run("BEGIN", session)
        for _ in range(rng.randint(1, 6)):
            if rng.random() < 0.1:
                self.pair.run("SAVEPOINT s", session)
                self.change(session)
                self.pair.run("ROLLBACK TO s", session)
            else:
                self.change(session)
        self.pair.run("COMMIT" if rng.random() < 0.75 else "ROLLBACK", session)

    def define(self) -> None:
        """One DDL statement."""
        rng = self.rng
        name = rng.choice(self.names)
        kind = rng.randint(0, 10)
        if kind < 3:
            self.pair.run(f"ALTER TABLE {name} ADD {self.foreign_key(True)}")
        elif kind < 5:
            created = self.pair.run(f"SHOW CREATE TABLE {name}").rows[0][1]
            keys = [line.split("`")[1] for line in created.splitlines() if "CONSTRAINT" in line]
            if keys:
                self.pair.run(f"ALTER TABLE {name} DROP FOREIGN KEY {rng.choice(keys)}")
        elif kind == 5:
            self.renames += 1
            fresh = f"r{self.renames}"
            self.pair.run(f"RENAME TABLE {name} TO {fresh}")
            self.names[self.names.index(name)] = fresh
        elif kind == 6:
            self.pair.run(f"ALTER TABLE {name} COMMENT 'c{rng.random()}', ALGORITHM=COPY")
        elif kind == 7:
            self.pair.run(f"TRUNCATE TABLE {name}")
        elif kind == 8:
            self.pair.run(f"ALTER TABLE {name} DROP KEY {rng.choice('klm')}")
        elif kind == 9:
            self.like(name)
        else:
            key = rng.choice(["k (a)", "l (b)", "m (s)", "n (a, b)", "o (b, a)"])
            self.pair.run(f"ALTER TABLE {name} ADD KEY {key}")

    def like(self, name: str) -> None:
        """Another table with the columns and indexes of `name`, or the end of the last such one."""
        last = self.names[-1]
        if last.startswith("l"):
            if self.pair.run(f"DROP TABLE {last}").error == 0:
                self.names.remove(last)
            return
        self.renames += 1
        fresh = f"l{self.renames}"
        self.pair.run(f"CREATE TABLE {fresh} LIKE {name}")
        self.names.append(fresh)

    def compare(self) -> None:
        """Contents and definitions."""
        for name in self.names:
            self.pair.run(f"SELECT id, a, b, HEX(s) FROM {name} ORDER BY 1, 2, 3, 4")
            self.pair.run(f"SHOW CREATE TABLE {name}")
        if IS_FIRN:
            for row in self.check():
                assert row[-1] == "OK", row

    def check(self) -> tuple[tuple[Any, ...], ...]:
        """CHECK TABLE of the engine's tables."""
        session = self.pair.connect("a")[1]
        with session.cursor() as cursor:
            cursor.execute(f"CHECK TABLE {', '.join(self.names)}")
            return tuple(cursor.fetchall())


def test_random_foreign_keys(own_server: Any, seed: int) -> None:
    if not IS_FIRN:
        pytest.skip(f"compares InnoDB with another engine, not with {ENGINE}")
    server: Server = own_server(NO_PURGE, "--innodb-stats-persistent=0")
    end = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < end if SECONDS else rounds < ROUNDS:
        rng = random.Random(f"{seed}-{rounds}")
        pair = KeyPair(server, "fkr")
        run = Run(pair, rng)
        log = f"seed {seed}, round {rounds}"
        try:
            run.create()
            for step in range(rng.randint(10, 60)):
                if rng.random() < 0.1:
                    # A snapshot that later changes must not disturb.
                    pair.run("COMMIT", "z")
                    pair.run("START TRANSACTION WITH CONSISTENT SNAPSHOT", "z")
                run.transaction(rng.choice("abc"))
                if rng.random() < 0.15:
                    pair.run("COMMIT", "z")
                    run.define()
                if step % 10 == 9:
                    run.compare()
            run.compare()
            if rng.random() < 0.3:
                pair.close(drop=False)
                server.crash_and_recover()
                run.compare()
        except AssertionError as error:
            history = "\n".join(pair.log[-HISTORY_MAX:])
            raise AssertionError(f"{log}: {error}\nstatements before:\n{history}") from None
        pair.close()
        rounds += 1
    print(f"{rounds} rounds")
