"""One random run: tables, then changes, DDL, transactions and queries on both engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from . import changes, queries, random_ddl
from .columns import Types
from .pair import Mismatch, Pair
from .tables import Table, random_table

STATEMENTS = 160
BULK_SHARE = 0.2

SQL_MODES = ["STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "", "TRADITIONAL", "NO_ZERO_DATE"]


@dataclass
class Failure(Exception):
    """A mismatch with everything needed to repeat it."""

    seed: int
    message: str
    log: list[tuple[str, str]]
    settings: list[str]
    one_session: bool

    def __str__(self) -> str:
        statements = "\n".join(f"  {sql};  -- {kind}" for sql, kind in self.log)
        settings = "\n".join(f"  {sql};" for sql in self.settings)
        sessions = "one session" if self.one_session else "one session per engine"
        return (
            f"FIRN_TEST_SEED={self.seed}: {self.message}\n"
            f"reproducer, {sessions}:\n{settings}\n{statements}"
        )


@dataclass
class Program:
    """A random program that runs on both engines.

    Its log holds every statement, so that a replay needs no random numbers.
    """

    pair: Pair
    seed: int
    directory: Path
    collations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.types = Types(self.rng, self.collations)
        self.tables: list[Table] = []
        self.log: list[tuple[str, str]] = []
        self.in_transaction = False
        self.savepoints: list[str] = []
        self.one_session = self.rng.random() < 0.5
        self.settings = self._settings()

    def _settings(self) -> list[str]:
        rng = self.rng
        switches = rng.choice(
            ["", "mrr=on,mrr_sort_keys=on", "index_condition_pushdown=off",
             "index_merge_sort_intersection=on", "rowid_filter=off", "mrr=on,mrr_cost_based=off"]
        )  # fmt: skip
        mode = rng.choice(SQL_MODES)
        settings = [
            "SET timestamp = 1700000000, time_zone = '+00:00', max_sort_length = 65536",
            "SET sort_buffer_size = 16777216",
            f"SET sql_mode = '{mode}'",
            f"SET tx_isolation = '{rng.choice(['REPEATABLE-READ', 'READ-COMMITTED'])}'",
        ]
        if "STRICT" not in mode and mode:
            # Outside strict mode a copying ALTER rejects old rows that a change in place keeps, so
            # let both engines copy.
            settings.append("SET alter_algorithm = 'COPY'")
        if switches:
            settings.append(f"SET optimizer_switch = '{switches}'")
        if rng.random() < 0.3:
            settings.append(f"SET join_cache_level = {rng.choice([0, 2, 6])}")
        return settings

    def run(self) -> None:
        """Raises Failure at the first difference."""
        try:
            self.pair.reset(self.settings, self.one_session)
            self._make_tables()
            self.steps(STATEMENTS)
            self.verify()
        except Mismatch as mismatch:
            raise Failure(
                self.seed, str(mismatch), self.log, self.settings, self.one_session
            ) from None

    def steps(self, count: int) -> None:
        """Runs that many random statements. Raises Mismatch."""
        for _ in range(count):
            self._step()

    def _do(self, sql: str, kind: str) -> bool:
        self.log.append((sql, kind))
        return self.pair.run(sql, kind).error == 0

    def _make_tables(self) -> None:
        while len(self.tables) < 2:
            table = random_table(self.rng, self.types, f"t{self.rng.randrange(10**6)}")
            if self._do(table.create(), "ddl"):
                self.tables.append(table)
            else:
                self.log.pop()
        for table in self.tables:
            for _ in range(3):
                self._do(changes.insert(self.rng, [table]), "change")
        if self.rng.random() < BULK_SHARE:
            # Write many rows to one table only: a join of two large tables would take too long.
            self._do(changes.bulk(self.rng, self.tables[:1]), "change")

    def _step(self) -> None:
        rng = self.rng
        shape = rng.random()
        if shape < 0.52:
            weights = [weight for weight, _ in changes.CHANGES]
            maker = rng.choices(changes.CHANGES, weights)[0][1]
            self._do(maker(rng, self.tables), "change")
        elif shape < 0.53:
            self._do(changes.load_data(rng, self.tables, self.directory), "change")
        elif shape < 0.86:
            query = queries.query(rng, self.tables)
            self._do(query.sql, "ordered" if query.ordered else "rows")
        elif shape < 0.97:
            self._transaction_step()
        else:
            sql, apply = random_ddl.alter(rng, self.types, self.tables)
            if self._do(sql, "ddl"):
                apply()
            self.in_transaction = False

    def _transaction_step(self) -> None:
        rng = self.rng
        if not self.in_transaction:
            word = rng.choice(["BEGIN", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"])
            self._do(word, "session")
            self.in_transaction, self.savepoints = True, []
            return
        shape = rng.random()
        if shape < 0.35:
            self._do(rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]), "session")
            self.in_transaction = False
        elif shape < 0.65 or not self.savepoints:
            name = f"s{rng.randrange(4)}"
            self._do(f"SAVEPOINT {name}", "session")
            self.savepoints.append(name)
        else:
            verb = rng.choice(
                ["ROLLBACK TO SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"]
            )
            self._do(f"{verb} {rng.choice(self.savepoints)}", "session")

    def verify(self) -> None:
        """Reads every table by every index, and runs CHECK TABLE. Raises Mismatch.

        A running transaction is ended.
        """
        for table in self.tables:
            for query in queries.whole(table):
                self._do(query.sql, "rows")
        self._do("COMMIT", "session")
        self.in_transaction = False
        for table in self.tables:
            for query in queries.whole(table):
                self._do(query.sql, "rows")
            self._do(f"CHECK TABLE {{db}}.{table.name} EXTENDED", "check")
