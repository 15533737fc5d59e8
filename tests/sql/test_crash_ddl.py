"""A server killed during DDL recovers the old table or the new one, complete.

Each writer owns a few table names and repeats random DDL on them. It knows the states before and
after the running statement; the state after recovery must be one of the two.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

WRITERS = 4
ROUNDS = 8
NAMES = 3

Action = tuple[str, Callable[[dict[str, "Shape"]], None]]


@dataclass
class Shape:
    """A table as a client sees it: column names, index names, number of rows."""

    columns: list[str] = field(default_factory=lambda: ["id", "a", "b"])
    indexes: list[str] = field(default_factory=lambda: ["PRIMARY"])
    rows: int = 0


class Writer:
    """Owns the names w<n>_0 … and repeats DDL on them until the server is gone.

    Invariant: the tables are in the state `before` or, once a statement was sent, `after`.
    """

    def __init__(self, number: int, rng: Random) -> None:
        self.prefix = f"w{number}_"
        self.rng = rng
        self.before: dict[str, Shape] = {}
        self.after: dict[str, Shape] = {}
        self.statement = ""
        self.done = 0
        self.unexpected = ""
        self.serial = 0

    def run(self, server: Server) -> None:
        """Repeats DDL until the connection breaks."""
        try:
            connection = server.connect("ddl")
            while True:
                self._step(connection)
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] not in (0, 2002, 2003, 2006, 2013, 1053, 1927):
                self.unexpected = f"{self.statement}: {error}"

    def _step(self, connection: pymysql.Connection[Any]) -> None:
        sql, change = self._action()
        self.after = copy.deepcopy(self.before)
        change(self.after)
        self.statement = sql
        with connection.cursor() as cursor:
            cursor.execute(sql)
        self.before = self.after
        self.done += 1

    def _fresh(self, letter: str) -> str:
        self.serial += 1
        return f"{letter}{self.serial}"

    def _action(self) -> Action:
        rng = self.rng
        name = f"{self.prefix}{rng.randrange(NAMES)}"
        shape = self.before.get(name)
        if shape is None:
            return self._create(name)
        free = [n for i in range(NAMES) if (n := f"{self.prefix}{i}") not in self.before]
        choices = [self._add_column, self._add_index, self._fill, self._truncate, self._rebuild]
        if len(shape.columns) > 3:
            choices.append(self._drop_column)
        if len(shape.indexes) > 1:
            choices += [self._drop_index, self._drop_index]
        others = [other for other in self.before if other != name]
        luck = rng.random()
        if luck < 0.1:
            return self._drop(name)
        if luck < 0.25 and free:
            return self._rename(name, rng.choice(free))
        if luck < 0.35 and others:
            return self._swap(name, rng.choice(others))
        return rng.choice(choices)(name, shape)

    def _create(self, name: str) -> Action:
        if self.rng.random() < 0.4:
            sql = (
                f"CREATE TABLE {name} (id INT PRIMARY KEY) ENGINE={ENGINE} "
                "SELECT seq AS id, CAST(seq AS INT) AS a, CAST(seq AS CHAR(200)) AS b "
                "FROM seq_1_to_300"
            )
            return sql, lambda state: state.update({name: Shape(rows=300)})
        sql = (
            f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(200)) "
            f"ENGINE={ENGINE}"
        )
        return sql, lambda state: state.update({name: Shape()})

    def _add_column(self, name: str, shape: Shape) -> Action:
        column = self._fresh("c")
        place = self.rng.choice(["", " AFTER a"])
        at = 2 if place else len(shape.columns)
        sql = f"ALTER TABLE {name} ADD COLUMN {column} VARCHAR(20) DEFAULT 'x'{place}"
        return sql, lambda state: state[name].columns.insert(at, column)

    def _drop_column(self, name: str, shape: Shape) -> Action:
        column = self.rng.choice([c for c in shape.columns if c not in ("id", "a", "b")])
        sql = f"ALTER TABLE {name} DROP COLUMN {column}"
        return sql, lambda state: state[name].columns.remove(column)

    def _add_index(self, name: str, shape: Shape) -> Action:
        index = self._fresh("k")
        columns = self.rng.choice(["a", "b", "b, a"])
        sql = f"ALTER TABLE {name} ADD INDEX {index} ({columns})"
        return sql, lambda state: state[name].indexes.append(index)

    def _drop_index(self, name: str, shape: Shape) -> Action:
        index = self.rng.choice(shape.indexes[1:])
        sql = f"ALTER TABLE {name} DROP INDEX {index}"
        return sql, lambda state: state[name].indexes.remove(index)

    def _fill(self, name: str, shape: Shape) -> Action:
        def change(state: dict[str, Shape]) -> None:
            state[name].rows += 200

        sql = (
            f"INSERT INTO {name} (id, a, b) SELECT m + seq, seq, REPEAT('b', 100) FROM "
            f"seq_1_to_200, (SELECT COALESCE(MAX(id), 0) AS m FROM {name}) AS top"
        )
        return sql, change

    def _truncate(self, name: str, shape: Shape) -> Action:
        def change(state: dict[str, Shape]) -> None:
            state[name].rows = 0

        return f"TRUNCATE TABLE {name}", change

    def _rebuild(self, name: str, shape: Shape) -> Action:
        how = self.rng.choice(["FORCE, ALGORITHM=COPY", "MODIFY a BIGINT", "MODIFY a INT"])
        return f"ALTER TABLE {name} {how}", lambda state: None

    def _drop(self, name: str) -> Action:
        return f"DROP TABLE {name}", lambda state: state.__delitem__(name)

    def _rename(self, name: str, new: str) -> Action:
        def change(state: dict[str, Shape]) -> None:
            state[new] = state.pop(name)

        form = self.rng.choice(["RENAME TABLE {} TO {}", "ALTER TABLE {} RENAME TO {}"])
        return form.format(name, new), change

    def _swap(self, name: str, other: str) -> Action:
        def change(state: dict[str, Shape]) -> None:
            state[name], state[other] = state[other], state[name]

        spare = f"{self.prefix}spare"
        sql = f"RENAME TABLE {name} TO {spare}, {other} TO {name}, {spare} TO {other}"
        return sql, change


def _query(server: Server, sql: str) -> list[tuple[Any, ...]]:
    return list(server.query(sql))


def found_state(server: Server, prefix: str) -> dict[str, Shape]:
    """All tables with this prefix. Raises if a listed table cannot be used."""
    like = prefix.replace("_", r"\_") + "%"
    state = {}
    for (name,) in _query(
        server,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ddl' "
        f"AND table_name LIKE '{like}'",
    ):
        columns = _query(
            server,
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'ddl' "
            f"AND table_name = '{name}' ORDER BY ordinal_position",
        )
        indexes = _query(server, f"SHOW INDEX FROM ddl.{name}")
        names = list(dict.fromkeys(row[2] for row in indexes))
        count = _query(server, f"SELECT COUNT(*) FROM ddl.{name} USE INDEX ()")[0][0]
        for index in names:
            by_index = _query(server, f"SELECT COUNT(*) FROM ddl.{name} FORCE INDEX ({index})")
            assert by_index[0][0] == count, f"{name}: {index} has {by_index[0][0]} of {count} rows"
        check = _query(server, f"CHECK TABLE ddl.{name} EXTENDED")
        assert check[-1][3] == "OK", check
        state[name] = Shape([row[0] for row in columns], sorted(names), count)
    return state


def _same(found: dict[str, Shape], state: dict[str, Shape]) -> bool:
    return found == {
        name: Shape(shape.columns, sorted(shape.indexes), shape.rows)
        for name, shape in state.items()
    }


def expect_no_orphans(server: Server) -> None:
    """Checks that the engine has exactly the tables with a definition, and no stray files."""
    defined = {path.stem for path in (server.data / "ddl").glob("*.frm")}
    listed = _query(
        server, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ddl'"
    )
    assert defined == {row[0] for row in listed}
    deadline = time.monotonic() + 60
    while left := _leftovers(server, defined):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)  # An engine may remove dropped tables in the background.


def _leftovers(server: Server, defined: set[str]) -> list[str]:
    left = [str(path) for path in server.data.rglob("#sql*")]
    if IS_FIRN:
        known = _query(
            server,
            "SELECT DISTINCT table_name FROM information_schema.firn_tables "
            "WHERE table_schema = 'ddl'",
        )
        left += [f"FIRN_TABLES: {name}" for (name,) in known if name not in defined]
        left += [f"missing in FIRN_TABLES: {n}" for n in defined - {row[0] for row in known}]
    return left


def test_kill_during_ddl(own_server: Callable[..., Server], seed: int) -> None:
    rng = Random(seed)
    server = own_server("--loose-firn-memtable-size=1048576", "--innodb-stats-persistent=0")
    server.query("CREATE DATABASE ddl")
    writers = [Writer(number, Random(rng.randrange(2**30))) for number in range(WRITERS)]
    for number in range(ROUNDS):
        threads = [threading.Thread(target=writer.run, args=(server,)) for writer in writers]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.1, 1.2))
        assert server.running(), f"the server died by itself\n{server.log_tail()}"
        server.kill()
        for thread in threads:
            thread.join()
        server.start()
        expect_no_orphans(server)
        for writer in writers:
            assert not writer.unexpected, writer.unexpected
            found = found_state(server, writer.prefix)
            assert _same(found, writer.before) or _same(found, writer.after), (
                f"round {number}, during {writer.statement}\n  found  {found}\n"
                f"  before {writer.before}\n  after  {writer.after}"
            )
            writer.before = copy.deepcopy(found)
            for shape in writer.before.values():
                shape.indexes.sort(key=lambda name: (name != "PRIMARY", name))
    assert sum(writer.done for writer in writers) > ROUNDS


def test_the_judge_sees_a_half_done_statement(server: Server) -> None:
    server.query("DROP DATABASE IF EXISTS ddl")
    server.query("CREATE DATABASE ddl")
    server.query("CREATE TABLE ddl.w9_0 (id INT PRIMARY KEY, a INT, b INT) ENGINE=InnoDB")
    assert _same(found_state(server, "w9_"), {"w9_0": Shape()})
    server.query("INSERT INTO ddl.w9_0 VALUES (1, 1, 1)")
    assert not _same(found_state(server, "w9_"), {"w9_0": Shape()})
    assert not _same(found_state(server, "w9_"), {"w9_0": Shape(rows=1), "w9_1": Shape()})
    left = server.data / "ddl" / "#sql-orphan.frm"
    left.touch()
    with pytest.raises(AssertionError):
        expect_no_orphans(server)
    left.unlink()
    server.query("DROP DATABASE ddl")
