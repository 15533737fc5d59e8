"""Runs ALTER TABLE on a table of each engine and compares everything that is visible."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from random import Random
from typing import Any

from .alter_cases import ALONE, REFUSED, UNSEPARATED, Base, cases
from .pair import Mismatch, Outcome, Pair, execute

# All algorithms, from the cheapest one to a copy; DEFAULT stands for the first supported one.
OPTION_IGNORED = 1618
ALGORITHMS = ("INSTANT", "NOCOPY", "INPLACE", "COPY", "DEFAULT")

# Errors "this algorithm is not supported", without and with a reason.
NOT_SUPPORTED = (1845, 1846)

SETTINGS = [
    "SET timestamp = 1700000000, time_zone = '+00:00', max_sort_length = 65536",
    "SET system_versioning_alter_history = KEEP",
    "SET sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
]

# Statements that write to an altered table. Where its columns are gone or have other types, both
# engines must fail alike.
WRITES = """
    INSERT INTO {t} () VALUES ()
    INSERT INTO {t} (id, bi, vc) VALUES (5001, 99001, 'w1'), (5002, 99002, 'w2')
    INSERT INTO {t} (bi, vc, i) VALUES (99003, 'w3', 77)
    INSERT INTO {t} (bi, vc) VALUES (99003, 'w4')
    INSERT INTO {t} (a, b, c) VALUES (1, 7, 'w')
    INSERT INTO {t} (a, id, v) VALUES ('w', 900, 9), ('k', 3, 9)
    INSERT INTO {t} (id, h, v) VALUES (NULL, 15, 'w5'), (900, 3, 'w6')
    INSERT INTO {t} (id, v, w) VALUES (901, 'w7', 3)
    UPDATE {t} SET i = i + 1, tx = CONCAT(tx, '+') WHERE id BETWEEN 10 AND 20 ORDER BY id
    UPDATE {t} SET vc = CONCAT(LEFT(vc, 3), '~') WHERE id % 5 = 0 ORDER BY id
    UPDATE {t} SET dt = dt + INTERVAL 1 DAY WHERE id % 6 = 0
    UPDATE {t} SET c = 'changed', d = NULL WHERE b % 3 = 0
    UPDATE {t} SET v = 2 WHERE id < 9
    UPDATE {t} SET h = 25 WHERE id = 7
    DELETE FROM {t} WHERE id % 7 = 3
    DELETE FROM {t} WHERE b BETWEEN 70 AND 90
""".strip().splitlines()


@dataclass
class Altered:
    """The outcomes of one statement on both engines."""

    outcomes: tuple[Outcome, Outcome]

    @property
    def errors(self) -> tuple[int, int]:
        """Error numbers of InnoDB and of the tested engine."""
        return self.outcomes[0].error, self.outcomes[1].error


@dataclass
class Alters:
    """Tables of both engines with the same changes. Raises Mismatch at the first difference."""

    pair: Pair
    written: int = 0
    # Whether the next AUTO_INCREMENT values of both tables must agree.
    numbers: bool = True

    def make(self, name: str, base: Base) -> None:
        """Recreates the table with its rows."""
        self.both(f"DROP TABLE IF EXISTS {{db}}.{name}, {{db}}.renamed")
        self.both(base.create(f"{{db}}.{name}"))
        self.both(base.fill(f"{{db}}.{name}"))

    def both(self, sql: str) -> None:
        """Runs a statement that must succeed on both."""
        for which, session in enumerate(self.pair.sessions):
            outcome = execute(session, self.pair.text(sql, which), False)
            if outcome.error:
                raise Mismatch(f"{outcome.message}\n  statement: {sql}")

    def alter(self, sql: str) -> Altered:
        """Runs a statement on both engines. The caller judges how the outcomes may differ."""
        outcomes = [
            execute(session, self.pair.text(sql, which))
            for which, session in enumerate(self.pair.sessions)
        ]
        return Altered((outcomes[0], outcomes[1]))

    def one(self, sql: str, which: int) -> Outcome:
        """Runs the statement on one engine."""
        return execute(self.pair.sessions[which], self.pair.text(sql, which))

    def query(self, sql: str, which: int) -> tuple[tuple[Any, ...], ...]:
        """Rows of a query on one engine."""
        outcome = execute(self.pair.sessions[which], self.pair.text(sql, which), False)
        if outcome.error:
            raise Mismatch(f"{outcome.message}\n  statement: {self.pair.text(sql, which)}")
        return outcome.rows

    def shown(self, name: str, which: int) -> str:
        """SHOW CREATE TABLE without the engine; '' if there is no such table."""
        outcome = execute(
            self.pair.sessions[which],
            self.pair.text(f"SHOW CREATE TABLE {{db}}.{name}", which),
            False,
        )
        if outcome.error == 1146:
            return ""
        if outcome.error:
            raise Mismatch(f"SHOW CREATE TABLE {name}: {outcome.message}")
        text = bytes(outcome.rows[0][1]).decode(errors="backslashreplace")
        text = re.sub(r"ENGINE ?= ?\w+", "ENGINE=?", text)
        return text if self.numbers else re.sub(r" AUTO_INCREMENT=\d+", "", text)

    def same(self, name: str) -> None:
        """Compares the definition and the rows by every index, and runs CHECK TABLE."""
        shown = [self.shown(name, which) for which in (0, 1)]
        if shown[0] != shown[1]:
            lines = difflib.unified_diff(*(each.splitlines() for each in shown), n=0, lineterm="")
            raise Mismatch("definitions differ:\n" + "\n".join(list(lines)[2:]))
        if not shown[0]:
            return
        self.pair.run(f"SELECT * FROM {{db}}.{name}", "rows")
        if "WITH SYSTEM VERSIONING" in shown[0]:
            self.pair.run(f"SELECT * FROM {{db}}.{name} FOR SYSTEM_TIME ALL", "rows")
        for index, parts in self._indexes(name).items():
            columns = ", ".join(f"`{part}`" for part in parts)
            query = f"SELECT {columns} FROM {{db}}.{name} FORCE INDEX (`{index}`)"
            self.pair.run(query, "rows")
            self.pair.run(f"{query} WHERE `{parts[0]}` IS NOT NULL", "rows")
        self.pair.run(f"CHECK TABLE {{db}}.{name} EXTENDED", "check")

    def _indexes(self, name: str) -> dict[str, list[str]]:
        rows = self.query(f"SHOW INDEX FROM {{db}}.{name}", 0)
        indexes: dict[str, list[str]] = {}
        for row in rows:
            ignored = bytes(row[13]) == b"YES"
            if not ignored:
                indexes.setdefault(bytes(row[2]).decode(), []).append(bytes(row[4]).decode())
        return indexes

    def opens_without_warning(self, name: str) -> None:
        """Checks that the engine stores the server's definition: the table opens without a
        warning."""
        self.both(f"FLUSH TABLES {{db}}.{name}")
        outcome = execute(
            self.pair.sessions[1], self.pair.text(f"SELECT 1 FROM {{db}}.{name} LIMIT 1", 1)
        )
        if outcome.error or outcome.warnings:
            raise Mismatch(
                f"{name} was opened with {outcome.error} {outcome.message} {outcome.warnings}"
            )

    def write(self, name: str) -> None:
        """Inserts, changes and deletes rows."""
        for sql in WRITES:
            outcome = self.pair.run(sql.strip().replace("{t}", f"{{db}}.{name}"), "change")
            self.written += outcome.error == 0


def judge(altered: Altered) -> str:
    """The difference of the outcomes of a statement whose algorithm both support, or ''."""
    reference, tested = altered.outcomes
    if reference.error != tested.error:
        one, other = (f"{each.error} {each.message!r}" for each in altered.outcomes)
        return f"error {one} against {other}"
    # FIRN notes options that have no effect in it; test_table_options.py checks these notes.
    noted = tuple(code for code in tested.warnings if code != OPTION_IGNORED)
    if reference.warnings not in (noted, tested.warnings):
        return f"warnings {reference.warnings} against {tested.warnings}"
    return ""


def supported(outcome: Outcome) -> bool:
    """Whether the algorithm is supported; the statement may still have failed."""
    return outcome.error not in NOT_SUPPORTED


def random_clauses(rng: Random, base: str) -> list[str]:
    """Some clauses that may be combined, and that may contradict each other.

    No clause adds AUTO_INCREMENT to rows: how many numbers a copy then uses depends on estimates.
    """
    alone = (*ALONE, *UNSEPARATED, "RENAME TO", "ORDER BY")
    usable = [
        clause
        for of, clause in cases()
        if of == base and (of, clause) not in REFUSED and not clause.startswith(alone)
        if not (base == "hidden" and "AUTO_INCREMENT" in clause)
    ]
    return rng.sample(usable, rng.choice([1, 2, 2, 3]))
