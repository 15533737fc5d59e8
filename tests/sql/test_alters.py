"""ALTER TABLE under every algorithm, beside InnoDB: errors, definitions, rows, later writes.

Each clause of `differential/alter_cases.py` runs with each algorithm; then the server is restarted.
Then random combinations change 28 tables, or as many as FIRN_TEST_ALTER_SECONDS has time for;
FIRN_TEST_ALTER_SEED is their seed (default 1).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from differential.alter_cases import ALONE, BASES, REFUSED, cases, differences, statement
from differential.alter_run import (
    ALGORITHMS,
    SETTINGS,
    Altered,
    Alters,
    judge,
    random_clauses,
    supported,
)
from differential.pair import Mismatch, Outcome, Pair
from server import Server

SECONDS = float(os.environ.get("FIRN_TEST_ALTER_SECONDS", "0"))
TABLES = 28
SEED = int(os.environ.get("FIRN_TEST_ALTER_SEED", "1"))

OPTIONS = [
    "--innodb-flush-log-at-trx-commit=0",
    "--loose-firn-flush-log-at-trx-commit=0",
    "--innodb-stats-persistent=0",
    "--character-set-server=latin1",
]

PARSE_ERROR = 1064


def _cheapest(outcomes: dict[str, Outcome]) -> str:
    """The cheapest algorithm that an engine supports, or 'none'."""
    return next((each for each in ALGORITHMS[:4] if supported(outcomes[each])), "none")


class Matrix:
    """The tables of one run of the test on a server of its own; it collects all differences."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.alters = Alters(Pair(server, prefix="alters_"))
        self.alters.pair.reset(SETTINGS, one_session=True)
        self.problems: list[str] = []
        self.tables: list[str] = []
        self.differences = differences()

    def attempt(self, what: str, check: Callable[[], None]) -> None:
        """Runs a check and records a mismatch."""
        try:
            check()
        except Mismatch as mismatch:
            self.problems.append(f"{what}: {mismatch}")

    def clause(self, name: str, base: str, clause: str) -> None:
        """Runs one clause under every algorithm. The table stays as the last algorithm left it."""
        alters = self.alters
        alters.make(name, BASES[base])
        outcomes: tuple[dict[str, Outcome], dict[str, Outcome]] = ({}, {})
        refused = REFUSED.get((base, clause))
        for algorithm in ALGORITHMS[-1:] if clause.startswith(ALONE) else ALGORITHMS:
            sql = statement(f"{{db}}.{name}", clause, algorithm)
            altered = alters.alter(sql)
            assert PARSE_ERROR not in altered.errors, sql
            for which in (0, 1):
                outcomes[which][algorithm] = altered.outcomes[which]
            if refused is None:
                self.attempt(f"{base}: {sql}", partial(self.judged, altered, name))
            elif supported(altered.outcomes[1]) and altered.errors[1] != refused:
                self.problems.append(f"{base}: {sql}: {altered.outcomes[1]}, expected {refused}")
            if 0 in altered.errors and (algorithm != "DEFAULT" or refused):
                alters.make(name, BASES[base])
        if len(outcomes[0]) == len(ALGORITHMS) and refused is None:
            found = (_cheapest(outcomes[0]), _cheapest(outcomes[1]))
            expected = self.differences.get((base, clause))
            if found != expected and (found[0] != found[1] or expected):
                self.problems.append(
                    f"{base}: {clause}: {found}, expected {expected or 'the same'}"
                )
        self.tables.append(name)

    def judged(self, altered: Altered, name: str) -> None:
        """Compares the engines after an ALTER whose algorithm both of them support.

        If an engine does not support it, its error must name another algorithm to try.
        """
        if not all(supported(outcome) for outcome in altered.outcomes):
            for outcome in altered.outcomes:
                if not supported(outcome) and "Try ALGORITHM" not in outcome.message:
                    raise Mismatch(f"no remedy is named: {outcome.message}")
            return
        problem = judge(altered)
        if problem:
            raise Mismatch(problem)
        if altered.errors == (0, 0):
            self.usable(name if self.alters.shown(name, 0) else "renamed")

    def usable(self, name: str) -> None:
        """Checks that an altered table is usable and the same on both engines.

        The table must open without a warning, equal the other engine's, take writes, and still be
        equal.
        """
        if not self.alters.shown(name, 0):
            return
        self.alters.opens_without_warning(name)
        self.alters.same(name)
        self.alters.write(name)
        self.alters.same(name)

    def random(self, name: str, rng: Random) -> None:
        """Alters a table several times in a row, by random clauses."""
        base = rng.choice(list(BASES))
        self.alters.make(name, BASES[base])
        done: list[str] = []
        for _ in range(4):
            clauses = random_clauses(rng, base)
            algorithm = rng.choice(ALGORITHMS)
            sql = statement(f"{{db}}.{name}", ", ".join(clauses), algorithm)
            done.append(sql)
            try:
                self.alter_alike(name, base, clauses, algorithm)
                self.usable(name)
            except Mismatch as mismatch:
                self.problems.append(f"{base}: {'; '.join(done)}: {mismatch}")
                break
        self.tables.append(name)

    def alter_alike(self, name: str, base: str, clauses: list[str], algorithm: str) -> None:
        """Runs clauses in one ALTER on both engines.

        If only one engine supports the algorithm, as `differences` allows, the other one copies.
        """
        table = f"{{db}}.{name}"
        altered = self.alters.alter(statement(table, ", ".join(clauses), algorithm))
        able = [supported(outcome) for outcome in altered.outcomes]
        if all(able):
            problem = judge(altered)
            if problem:
                raise Mismatch(problem)
        elif any(able):
            known = any((base, clause) in self.differences for clause in clauses)
            if able[0] and not known:
                raise Mismatch(f"InnoDB takes {algorithm}: {altered.errors}")
            if 0 in altered.errors:
                other = self.alters.one(
                    statement(table, ", ".join(clauses), "COPY"), able.index(False)
                )
                if other.error:
                    raise Mismatch(f"a copy fails: {other.error} {other.message}")

    def restart(self, check: Callable[[str], None]) -> None:
        """Restarts the server and checks all tables that the clauses left."""
        pair = self.alters.pair
        pair.close()
        self.server.restart()
        pair.open_sessions(SETTINGS, one_session=True)
        for name in self.tables:
            self.attempt(f"{name} after a restart", partial(check, name))

    def unchanged(self, name: str) -> None:
        """Checks that the table opens and is the same on both.

        After a restart InnoDB reuses AUTO_INCREMENT values without a row; FIRN does not.
        """
        self.alters.numbers = False
        if self.alters.shown(name, 0):
            self.alters.opens_without_warning(name)
            self.alters.same(name)

    def finish(self) -> None:
        """Fails with all differences."""
        self.alters.pair.close()
        if self.problems:
            pytest.fail("\n".join(self.problems), pytrace=False)
        assert "the stored one differ" not in self.server.log()


def test_every_clause_under_every_algorithm(own_server: Callable[..., Server]) -> None:
    matrix = Matrix(own_server(*OPTIONS))
    for number, (base, clause) in enumerate(cases()):
        matrix.clause(f"t{number}", base, clause)
    matrix.restart(matrix.usable)
    assert matrix.alters.written > 1000
    matrix.finish()


def test_random_alters_in_a_row(own_server: Callable[..., Server]) -> None:
    matrix = Matrix(own_server(*OPTIONS))
    deadline = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < deadline if SECONDS else rounds < TABLES:
        if matrix.problems:
            break
        matrix.random(f"r{rounds}", Random(f"{SEED} {rounds}"))
        rounds += 1
    print(f"FIRN_TEST_ALTER_SEED={SEED}, {rounds} tables")
    matrix.restart(matrix.unchanged)
    assert matrix.alters.written > 10
    matrix.finish()
