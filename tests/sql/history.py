"""Sessions that append to lists, move amounts and record their reads, for the judge `firn-history`.

A list is a range of rows (list, pos) of one table. Each statement that writes has a unique number,
its *element*, and appends it to the column `log` of each row that it changes. So a row shows which
statements changed it and in which order, and the judge can infer what each transaction must have
seen (`crates/firn-history`). Three tables hold lists: ordered by the primary key, by a secondary
index, and by a unique one. One list is a bank: amounts move between its rows.

    run = Run(server, "FIRN", "RR", random.Random(7))
    verdict = run.round(seconds=5, kills=1)     # the server is killed once, and restarted
    assert not verdict["findings"]
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pymysql
from server import REPOSITORY, Server, scratch_root

CLIENTS = 8
LISTS = 2
ROWS = 6
# Lists get numbers that are never used again: those of a round begin at a multiple of this.
ROUND = 100
COLUMNS = (
    "list INT NOT NULL, pos INT NOT NULL, amount BIGINT NOT NULL, "
    "log VARCHAR(15000) CHARACTER SET ascii NOT NULL, pad MEDIUMTEXT CHARACTER SET ascii"
)
# By table: its definition, and the index that orders its lists.
TABLES = {
    "p": (f"id BIGINT NOT NULL, {COLUMNS}, PRIMARY KEY (list, pos)", "PRIMARY"),
    "s": (f"id BIGINT PRIMARY KEY, {COLUMNS}, KEY lp (list, pos)", "lp"),
    "u": (
        f"id BIGINT PRIMARY KEY, name BIGINT NOT NULL UNIQUE, {COLUMNS}, UNIQUE KEY lp (list, pos)",
        "lp",
    ),
}
# By table: the column that identifies a row. In table u that is not the primary key, which changes.
NAME = {"p": "id", "s": "id", "u": "name"}
LEVELS = {"RC": "READ COMMITTED", "RR": "REPEATABLE READ", "SR": "SERIALIZABLE"}
POS_MAX = 2_000_000_000
# Characters of a large value: a transaction of 16 such values exceeds the smallest limit on a
# transaction's memory and spills.
LARGE = 80_000
# Errors after which a session is over: the connection is lost or killed, or the server shuts down.
GONE = (0, 2006, 2013, 2014, 1053, 1927, 1080)
KILLED = (1317, 1969, 3024)
TIMEOUT, DEADLOCK = 1205, 1213
# Longest time of a statement in seconds; a statement waits for a lock for two seconds at most.
STATEMENT_SECONDS_MAX = 120
EXPECTED = (*GONE, *KILLED, TIMEOUT, DEADLOCK, 1062, 1305, 1193)

Row = tuple[int, int, int, int, str]


def now() -> int:
    """Microseconds of a clock that never goes back, which all clients share."""
    return time.monotonic_ns() // 1000


@functools.cache
def judge_binary() -> Path:
    """Builds the judge, the program `firn-history`, and returns its path."""
    command = ["cargo", "build", "--quiet", "--release", "-p", "firn-history"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    return REPOSITORY / target / "release" / "firn-history"


class Gone(Exception):
    """The session's connection has ended."""


@dataclass(frozen=True)
class RowList:
    """A list: its number, its table, the index that orders it, and whether it is the bank."""

    number: int
    table: str
    index: str
    bank: bool = False


@dataclass
class Shared:
    """State that all clients of a round share."""

    level: str
    places: list[RowList]
    ids: Iterator[int]
    elements: Iterator[int]
    # Whether a scan that has waited for a lock goes on from its position, and so misses rows that
    # have appeared at positions that it has passed (InnoDB).
    onward: bool = False
    unexpected: list[str] = field(default_factory=list)
    # Tables in which UPDATE … ORDER BY pos DESC reads the index backwards instead of sorting.
    backwards: set[str] = field(default_factory=set)
    connections: dict[int, int] = field(default_factory=dict)
    life: int = 0


def noted(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows in the form in which the judge reads them."""
    return [
        {"id": i, "list": k, "pos": pos, "amount": amount, "log": [int(e) for e in log.split(",")]}
        for i, k, pos, amount, log in rows
    ]


class Client:
    """A client: one session after another, and the record of their transactions."""

    def __init__(self, number: int, server: Server, shared: Shared, rng: Random) -> None:
        self.number = number
        self.server = server
        self.shared = shared
        self.rng = rng
        self.connection: pymysql.Connection[Any] | None = None
        self.history: list[dict[str, Any]] = []
        self.txn: dict[str, Any] = {}
        # By list: the rows that this client read last, from which its single-row statements choose.
        self.known: dict[int, list[Row]] = {}
        self.pad = "''"
        self.last_noted = 0
        # When the last statement was sent.
        self.sent = 0
        # Whether a transaction of several statements is open.
        self.in_transaction = False

    # Sessions and transactions.

    def connect(self) -> None:
        """Opens a session."""
        self.connection = self.server.connect(
            "history", autocommit=True, read_timeout=STATEMENT_SECONDS_MAX
        )
        self.shared.connections[self.number] = self.connection.thread_id()
        with self.connection.cursor() as cursor:
            level = LEVELS[self.shared.level]
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")

    def begin(self, several: bool = False) -> None:
        """Begins the record of a transaction, of one statement or of several."""
        self.in_transaction = several
        self.txn = {
            "id": next(self.shared.ids),
            "life": self.shared.life,
            "level": self.shared.level,
            "outcome": "failed",
            "end": None,
            "ops": [],
        }

    def finish(self, outcome: str, span: tuple[int, int | None] | None) -> None:
        """Records the end of the transaction; only the first call counts."""
        if self.txn["id"] == self.last_noted:
            return
        self.last_noted = self.txn["id"]
        self.txn["outcome"] = outcome
        self.txn["end"] = span and {"begin": span[0], "end": span[1]}
        self.history.append(self.txn)

    def execute(self, sql: str) -> tuple[list[Row], int]:
        """Runs a statement. Raises Gone if the session has ended."""
        assert self.connection is not None
        self.sent = now()
        try:
            with self.connection.cursor() as cursor:
                count = cursor.execute(sql)
                if "RETURNING" in sql and cursor.description is None:
                    # A DELETE … RETURNING without a result was killed while the server planned it.
                    raise pymysql.err.OperationalError(KILLED[0], "killed, and answered OK")
                return list(cursor.fetchall()), count
        except pymysql.err.MySQLError as error:
            code = error.args[0] if error.args else 0
            if code not in EXPECTED or "timed out" in str(error):
                self.shared.unexpected.append(f"{error}: {sql[:300]}")
            if code in GONE or not isinstance(code, int):
                raise Gone from error
            raise
        except (OSError, AttributeError, IndexError, ValueError) as error:
            # PyMySQL raises an error of these kinds if the connection is cut within a packet.
            raise Gone from error

    def statement(self, sql: str, note: dict[str, Any]) -> list[Row]:
        """Runs a statement of the transaction and records it, even if it fails."""
        op = {"begin": now(), "end": None, "status": "failed", **note}
        self.txn["ops"].append(op)
        rows, count = self.execute(sql)
        op["end"] = now()
        op["status"] = "done"
        if "rows" in op:
            op["rows"] = noted(rows)
        if "count" in op:
            op["count"] = count
        return rows

    # Statements.

    def range_of(self, place: RowList) -> tuple[int, int]:
        """A range of positions: all, or one between two known rows."""
        rows = self.known.get(place.number)
        if place.bank or not rows or self.rng.random() < 0.6:
            return (0, POS_MAX)
        low, high = sorted(self.rng.choice(rows)[2] for _ in range(2))
        return (low, high)

    def scan(
        self, place: RowList, bounds: tuple[int, int], order: int
    ) -> tuple[str, dict[str, Any]]:
        """The condition that selects a range of positions, and its form in the record."""
        where = f"list = {place.number} AND pos BETWEEN {bounds[0]} AND {bounds[1]}"
        return where, {"list": place.number, "from": bounds[0], "to": bounds[1], "order": order}

    def columns(self, place: RowList) -> str:
        """The columns that a read of the list selects."""
        return f"{NAME[place.table]}, list, pos, amount, log"

    def point(self, place: RowList, row: Row) -> tuple[str, dict[str, Any]]:
        """The condition that selects one row, and its form in the record."""
        if place.table == "p":
            # In table p the position is the key, so the condition may find a row that has replaced
            # this one.
            return self.scan(place, (row[2], row[2]), 1)
        return f"{NAME[place.table]} = {row[0]}", {"id": row[0]}

    def direction(self, place: RowList, lock: bool) -> int:
        """The scan direction, 1 or -1.

        A row with a new primary key is above its old entry in a secondary index. A downward scan
        that waits for the old entry misses the row in InnoDB.
        """
        up = lock and self.shared.onward and place.table != "p"
        return 1 if up else self.rng.choice((1, 1, -1))

    def read(self, place: RowList, bounds: tuple[int, int] | None = None, lock: str = "") -> None:
        """A plain or a locking SELECT of a range."""
        order = self.direction(place, bool(lock) or self.shared.level == "SR")
        where, scan = self.scan(place, bounds or self.range_of(place), order)
        direction = "ASC" if order > 0 else "DESC"
        # At SERIALIZABLE a plain SELECT of a transaction locks what it reads.
        locks = bool(lock) or (self.shared.level == "SR" and self.in_transaction)
        note: dict[str, Any] = {"do": "lock" if locks else "read", "scan": scan, "rows": []}
        if "SKIP" in lock:
            note["partial"] = True
        sql = (
            f"SELECT {self.columns(place)} FROM {place.table} FORCE INDEX ({place.index}) "
            f"WHERE {where} ORDER BY list {direction}, pos {direction} {lock}"
        )
        self.known[place.number] = self.statement(sql, note)

    def lock(self, place: RowList) -> None:
        """A locking SELECT."""
        locks = ("FOR UPDATE", "FOR UPDATE", "LOCK IN SHARE MODE", "FOR UPDATE SKIP LOCKED")
        self.read(place, lock=self.rng.choice(locks))

    def update(
        self,
        place: RowList,
        where: str,
        scan: dict[str, Any],
        add: int = 0,
        to: tuple[int, int] | None = None,
        tail: str = "",
        new_id: int | None = None,
    ) -> None:
        """An UPDATE that appends a unique number, its element, to the column `log` of the rows."""
        element = next(self.shared.elements)
        moved = f", list = {to[0]}, pos = {to[1]}" if to else ""
        added = f", amount = amount + {add}" if add else ""
        if new_id is not None:
            added += f", id = {new_id}"
        index = f"FORCE INDEX ({place.index})" if "list" in scan else ""
        sql = (
            f"UPDATE {place.table} {index} SET log = CONCAT(log, ',{element}'), pad = {self.pad}"
            f"{added}{moved} WHERE {where} {tail}"
        )
        note: dict[str, Any] = {
            "do": "append", "scan": scan, "element": element, "add": add, "count": None
        }  # fmt: skip
        if new_id is not None:
            note["renames"] = True
        self.statement(sql, note | ({"to": to} if to else {}))

    def append(self, place: RowList) -> None:
        """An UPDATE of a range."""
        order = self.direction(place, True) if place.table in self.shared.backwards else 1
        descending = order < 0
        where, scan = self.scan(place, self.range_of(place), order)
        if self.rng.random() < 0.25:
            # The statement also reads and locks the other rows of the range; at READ COMMITTED it
            # unlocks them again.
            where += f" AND {NAME[place.table]} % 2 = 0"
            scan["even"] = True
        tail = "ORDER BY list DESC, pos DESC" if descending else ""
        self.update(place, where, scan, tail=tail)

    def some_row(self, place: RowList) -> Row | None:
        """A row of the list that was read before."""
        rows = self.known.get(place.number)
        return self.rng.choice(rows) if rows else None

    def append_to_row(self, place: RowList) -> None:
        """An UPDATE of one row."""
        if row := self.some_row(place):
            self.update(place, *self.point(place, row))

    def read_and_write(self, place: RowList) -> None:
        """Locks a range, then writes a row from the values read, without reading it again."""
        self.read(place, lock="FOR UPDATE")
        row = self.some_row(place)
        if row is None:
            return
        element = next(self.shared.elements)
        where, scan = self.point(place, row)
        sql = f"UPDATE {place.table} SET log = '{row[4]},{element}' WHERE {where}"
        note = {"do": "append", "scan": scan, "element": element, "add": 0, "count": None}
        self.statement(sql, note)

    def rename(self, place: RowList) -> None:
        """Changes the primary key of a row, which moves its entries in the secondary indexes."""
        row = self.some_row(place)
        if place.table != "u" or row is None:
            return self.append_to_row(place)
        where, scan = self.scan(place, (row[2], row[2]), 1)
        new = next(self.shared.ids)
        # The new key is above or below all existing ones, or always above if scans miss rows that
        # appear behind them.
        new_id = new if self.shared.onward or self.rng.random() < 0.5 else -new
        return self.update(place, where, scan, new_id=new_id)

    def replace(self, place: RowList) -> None:
        """Deletes a row and inserts another one at its position."""
        if row := self.some_row(place):
            self.delete_range(place, (row[2], row[2]))
        self.insert(place, row[2] if row else None)

    def insert(self, place: RowList, pos: int | None = None) -> None:
        """Inserts a row at a position of the list."""
        identity, element = next(self.shared.ids), next(self.shared.elements)
        pos = self.position(identity) if pos is None else pos
        name = f", name = {identity}" if place.table == "u" else ""
        sql = (
            f"INSERT INTO {place.table} SET id = {identity}{name}, list = {place.number}, "
            f"pos = {pos}, amount = 0, log = '{element}', pad = {self.pad}"
        )
        row = noted([(identity, place.number, pos, 0, str(element))])[0]
        self.statement(sql, {"do": "insert", "row": row})

    def position(self, unique: int) -> int:
        """A position that is unique to a row; only a row that replaces it gets the same one."""
        return self.rng.randrange(1000) * 2_000_000 + unique % 2_000_000

    def delete(self, place: RowList) -> None:
        """Deletes a row or two of the list, then inserts one.

        The inserted row proves that the transaction committed. Without it, the judge could not tell
        a deleted row from one that never existed. It comes last, so that the deletion does not
        cover it.
        """
        rows = self.known.get(place.number)
        if rows and len(rows) > 2:
            low = self.rng.choice(rows)[2]
            high = low if self.rng.random() < 0.5 else low + 100_000_000
            self.delete_range(place, (low, high))
        self.insert(place)

    def delete_range(self, place: RowList, bounds: tuple[int, int]) -> list[Row]:
        """Deletes the rows of a range.

        Without a hint the server chooses whether to read the list's index or the rows.
        """
        where, scan = self.scan(place, bounds, 1 if place.table == "p" else 0)
        sql = f"DELETE FROM {place.table} WHERE {where} RETURNING {self.columns(place)}"
        return self.statement(sql, {"do": "delete", "scan": scan, "rows": []})

    def move(self, place: RowList) -> None:
        """Moves a row to a position of another list of the table."""
        row = self.some_row(place)
        if place.table == "p" or row is None:
            return self.append_to_row(place)
        lists = [p.number for p in self.shared.places if p.table == place.table and not p.bank]
        to = (self.rng.choice(lists), self.position(next(self.shared.ids)))
        return self.update(place, *self.point(place, row), to=to)

    def transfer(self, _: RowList) -> None:
        """Moves an amount between two rows of the bank."""
        bank = next(place for place in self.shared.places if place.bank)
        rows = self.known.get(bank.number)
        if not rows:
            return self.read(bank)
        source, target = self.rng.sample(rows, 2)
        amount = self.rng.randrange(1, 100)
        self.update(bank, *self.point(bank, source), add=-amount)
        return self.update(bank, *self.point(bank, target), add=amount)

    def savepoint(self, place: RowList) -> None:
        """Writes, and rolls back to a savepoint."""
        self.execute("SAVEPOINT a")
        first = len(self.txn["ops"])
        for act in self.rng.choices((self.append, self.insert, self.append_to_row), k=2):
            act(place)
        self.execute("ROLLBACK TO a")
        for op in self.txn["ops"][first:]:
            if op["status"] == "done" and op["do"] != "read":
                op["status"] = "undone"

    # Work.

    def any_place(self) -> RowList:
        """A random list other than the bank."""
        return self.rng.choice([place for place in self.shared.places if not place.bank])

    def single(self) -> None:
        """Runs one statement, which is a transaction by itself."""
        acts: list[Callable[[RowList], None]] = [self.read, self.read, self.append, self.insert]
        place = self.rng.choice(self.shared.places)
        act = self.read if place.bank else self.rng.choice(acts)
        self.begin()
        outcome = "failed"
        try:
            act(place)
            outcome = "ok"
        except Gone:
            outcome = "unknown"
            raise
        except pymysql.err.MySQLError as error:
            # A killed statement may have committed before the kill arrived.
            outcome = "unknown" if error.args[0] in KILLED else "failed"
        finally:
            op = self.txn["ops"][-1]
            if outcome == "unknown" and op["do"] in ("append", "insert"):
                op["status"] = "done"
            self.finish(outcome, (op["begin"], op["end"]))

    ACTS = (
        ("read", 4), ("lock", 3), ("append", 4), ("append_to_row", 2), ("read_and_write", 2),
        ("insert", 3), ("delete", 2), ("move", 2), ("transfer", 2), ("savepoint", 1),
        ("rename", 2), ("replace", 2),
    )  # fmt: skip

    def several(self) -> None:
        """Runs a transaction of several statements."""
        self.begin(several=True)
        self.pad = f"REPEAT('x', {LARGE})" if self.rng.random() < 0.05 else "''"
        place = self.any_place()
        try:
            if self.shared.level != "RC" and self.rng.random() < 0.1:
                self.statement("START TRANSACTION WITH CONSISTENT SNAPSHOT", {"do": "snapshot"})
            else:
                self.execute("BEGIN")
            for _ in range(self.rng.randrange(1, 6)):
                if self.rng.random() < 0.3:
                    place = self.any_place()
                names, weights = zip(*self.ACTS, strict=True)
                name = self.rng.choices(names, weights)[0]
                try:
                    getattr(self, name)(place)
                except pymysql.err.MySQLError as error:
                    code = error.args[0]
                    if code == DEADLOCK:
                        # A deadlock makes the server roll the whole transaction back.
                        return self.finish("failed", (self.sent, now()))
                    # Roll back if an operation is half done: a transfer that only took, a savepoint
                    # whose rollback is missing, a deletion without its insert.
                    half = name in ("savepoint", "transfer", "delete", "replace")
                    if code in KILLED:
                        # The statement may also have been the victim of a deadlock, whose error
                        # the kill hides. The transaction is rolled back then.
                        return self.roll_back(self.sent)
                    if half or self.rng.random() < 0.5:
                        return self.roll_back()
            if self.rng.random() < 0.1:
                return self.roll_back()
        except Gone:
            self.finish("failed", None)
            raise
        return self.commit()

    def roll_back(self, asked: int | None = None) -> None:
        """Rolls the transaction back, which may have happened since the time `asked`."""
        asked = asked or now()
        try:
            while True:
                with contextlib.suppress(pymysql.err.MySQLError):
                    self.execute("ROLLBACK")
                    break
            self.finish("failed", (asked, now()))
        except Gone:
            self.finish("failed", None)
            raise

    def commit(self) -> None:
        """Commits the transaction."""
        asked = now()
        try:
            self.execute("COMMIT")
            self.finish("ok", (asked, now()))
        except Gone:
            self.finish("unknown", (asked, None))
            raise
        except pymysql.err.MySQLError as error:
            self.finish("failed" if error.args[0] == DEADLOCK else "unknown", (asked, None))
            with contextlib.suppress(pymysql.err.MySQLError):
                self.execute("ROLLBACK")

    def work(self, stop: threading.Event) -> None:
        """Runs transactions until `stop` is set or the server is gone."""
        self.known.clear()
        while not stop.is_set():
            try:
                if self.connection is None:
                    self.connect()
                (self.single if self.rng.random() < 0.25 else self.several)()
            except (Gone, pymysql.err.MySQLError, OSError):
                self.close()
                if not self.server.running():
                    return
        self.close()

    def close(self) -> None:
        """Closes the session."""
        with contextlib.suppress(Exception):
            if self.connection is not None:
                self.connection.close()
        self.connection = None

    def look(self) -> None:
        """Reads all lists, after each restart of the server and at the end of the round."""
        self.connect()
        for engine in ("firn", "innodb"):
            # The rollback of a killed session may still hold locks, so wait for them a minute at
            # most.
            with contextlib.suppress(pymysql.err.MySQLError):
                self.execute(f"SET SESSION {engine}_lock_wait_timeout = 60")
        for lock in ("", "FOR UPDATE"):
            for place in self.shared.places:
                self.begin()
                self.read(place, (0, POS_MAX), lock)
                self.finish("ok", (self.txn["ops"][0]["begin"], self.txn["ops"][0]["end"]))
        self.close()

    def found(self) -> None:
        """Inserts the initial rows of all lists."""
        self.connect()
        self.begin(several=True)
        self.execute("BEGIN")
        for place in self.shared.places:
            for _ in range(ROWS):
                self.insert(place)
        self.commit()
        self.close()


class Run:
    """Rounds of concurrent clients on one server, each round with lists of its own."""

    def __init__(
        self, server: Server, engine: str, level: str, rng: Random, optimistic: str = ""
    ) -> None:
        """`optimistic` has the names of the tables that are optimistic, such as "ps"."""
        self.server, self.engine, self.level, self.rng = server, engine, level, rng
        self.optimistic = optimistic
        self.rounds = 0
        self.ids = itertools.count(1)
        self.totals: dict[str, int] = {}
        server.query("CREATE DATABASE IF NOT EXISTS history")
        for table, (definition, _) in TABLES.items():
            server.query(f"DROP TABLE IF EXISTS history.{table}")
            option = "FIRN_LOCKING=OPTIMISTIC" if table in optimistic else ""
            server.query(f"CREATE TABLE history.{table} ({definition}) ENGINE={engine} {option}")

    def places(self) -> list[RowList]:
        """Creates the lists of the next round."""
        numbers = itertools.count(self.rounds * ROUND)
        lists = [
            RowList(next(numbers), table, index)
            for table, (_, index) in TABLES.items()
            for _ in range(LISTS)
        ]
        return [*lists, RowList(next(numbers), "s", "lp", bank=True)]

    def round(self, seconds: float, kills: int = 0, sessions_die: bool = True) -> dict[str, Any]:
        """Runs a round, in which the server is killed `kills` times. Returns the verdict."""
        self.rounds += 1
        shared = Shared(self.level, self.places(), self.ids, itertools.count(1))
        shared.onward = self.engine.upper() == "INNODB"
        seeds = [Random(self.rng.randrange(2**30)) for _ in range(CLIENTS + 1)]
        clients = [Client(n, self.server, shared, rng) for n, rng in enumerate(seeds)]
        observer = clients.pop()
        observer.found()
        self.find_backwards(shared)
        for shared.life in range(kills + 1):
            stop = threading.Event()
            threads = [threading.Thread(target=c.work, args=(stop,)) for c in clients]
            if sessions_die:
                threads.append(threading.Thread(target=self.kill_sessions, args=(shared, stop)))
            for thread in threads:
                thread.start()
            time.sleep(seconds / (kills + 1))
            if shared.life < kills:
                self.server.kill()
            stop.set()
            for thread in threads:
                thread.join()
            if shared.life < kills:
                self.server.start()
                shared.life += 1
                observer.look()
        assert not shared.unexpected, shared.unexpected[:3]
        observer.look()
        for table in TABLES:
            self.server.query(f"DELETE FROM history.{table}")
        return self.judge([txn for c in [*clients, observer] for txn in c.history], shared)

    def find_backwards(self, shared: Shared) -> None:
        """Notes the tables whose UPDATE in descending order reads backwards instead of sorting."""
        for place in shared.places:
            asked = (
                f"EXPLAIN UPDATE history.{place.table} FORCE INDEX ({place.index}) SET pad = '' "
                f"WHERE list = {place.number} AND pos BETWEEN 0 AND {POS_MAX} "
                "ORDER BY list DESC, pos DESC"
            )
            if "filesort" not in str(self.server.query(asked)):
                shared.backwards.add(place.table)

    def kill_sessions(self, shared: Shared, stop: threading.Event) -> None:
        """Kills random statements and sessions."""
        rng = Random(self.rng.randrange(2**30))
        quiet = contextlib.suppress(pymysql.err.MySQLError, OSError)
        with quiet, contextlib.closing(self.server.connect()) as connection:
            while not stop.wait(rng.uniform(0.05, 0.3)):
                number = rng.choice(list(shared.connections.values()) or [0])
                what = rng.choice(("QUERY", "QUERY", "CONNECTION"))
                with contextlib.suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
                    cursor.execute(f"KILL {what} {number}")

    def judge(self, history: list[dict[str, Any]], shared: Shared) -> dict[str, Any]:
        """Writes the history to a file and runs the judge on it."""
        setup = {
            "engine": f"{self.engine} {self.level}",
            "gap_locks": True,
            "balanced": [place.number for place in shared.places if place.bank],
            "unique": [place.number for place in shared.places if place.table == "u"],
            "optimistic": [p.number for p in shared.places if p.table in self.optimistic],
        }
        path = scratch_root() / f"history-{self.engine}-{self.level}-{self.rounds}.jsonl"
        with path.open("w") as out:
            for line in [setup, *history]:
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
        command = [str(judge_binary()), "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        verdict = json.loads(done.stdout) | {"history": str(path)}
        for kind in ("txns", "statements", "permitted"):
            for name, count in verdict[kind].items():
                self.totals[name] = self.totals.get(name, 0) + count
        self.totals["gaps"] = self.totals.get("gaps", 0) + len(verdict["gaps"])
        if not verdict["findings"]:
            path.unlink()
        return verdict
