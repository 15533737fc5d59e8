"""All OLTP scripts of sysbench as workloads.

The stock script fills the tables, with the target's table options. Access is uniform, or Zipf with
an exponent (`zipf`). The size is given in rows per table, or as a multiple of the cache (`cache`).
A row is about 240 bytes in InnoDB including the index, and all targets get the same number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from firn_lab.clock import Clock
from firn_lab.errors import UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.sql_session import drop_table
from firn_lab.workloads.sysbench.gate import Gated
from firn_lab.workloads.sysbench.load import load_tables
from firn_lab.workloads.sysbench.program import LUA, SCRIPT_DIR, run_sysbench, seed_of
from firn_lab.workloads.workload import WORKLOADS, Outcome, Params, Sink, Workload

ROW_BYTES = 240


@dataclass(frozen=True)
class Script:
    """A script of sysbench.

    `options`: names of the options that it has. `alone`: it changes the number of rows, so it
    cannot share its tables. `consumes`: it uses its rows up, so each round needs new tables.
    """

    summary: str
    writes: bool = True
    alone: bool = False
    consumes: bool = False
    options: tuple[str, ...] = ("tables", "rows", "cache", "zipf", "range_size")


# The options of scripts that read only one table.
_ONE_TABLE = ("rows", "cache", "zipf")
SCRIPTS = {
    "oltp_point_select": Script("one row by primary key", writes=False),
    "oltp_read_only": Script("10 point selects and 4 ranges in a transaction", writes=False),
    "oltp_read_write": Script("read_only, two updates, a delete and an insert"),
    "oltp_write_only": Script("two updates, a delete and an insert"),
    "oltp_update_index": Script("update of an indexed column by primary key"),
    "oltp_update_non_index": Script("update of a column without index by primary key"),
    "oltp_insert": Script("insert of one row", alone=True),
    "oltp_delete": Script(
        "delete of one row by primary key, of tables made anew", alone=True, consumes=True
    ),
    "select_random_points": Script(
        "10 values of an indexed column by IN, one table", writes=False, options=_ONE_TABLE
    ),
    "select_random_ranges": Script(
        "count of 10 ranges of an indexed column, one table", writes=False, options=_ONE_TABLE
    ),
    "bulk_insert": Script(
        "multi-row inserts in order of the key, a table a thread", alone=True, options=()
    ),
}


DEFAULTS = {
    "tables": "10",
    "rows": "100000",  # per table
    "cache": "",  # size of the data as a multiple of the cache, replaces rows
    "zipf": "",  # exponent; empty or 0 means uniform
    "range_size": "100",
}


class Sysbench(Workload):
    """A workload for one script; the loop at the end creates a subclass for each."""

    script: ClassVar[Script]
    # Name of the script, if it is not that of the workload.
    program: ClassVar[str] = ""

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        # Targets whose tables are unchanged since they were loaded.
        self._whole: set[str] = set()
        # By target: the clients that stay connected between rounds.
        self._clients: dict[str, Gated] = {}
        self._queries_per_transaction = 0.0
        if name == "bulk_insert":
            self.tables, self.rows, self.zipf = params.threads, 0, 0.0
            return
        self.tables = int(self._number("tables")) if "tables" in self.options else 1
        self.zipf = self._number("zipf")
        cache, rows = self._number("cache"), self._number("rows")
        if cache:
            rows = round(cache * params.memory_bytes / ROW_BYTES / max(1, self.tables))
        self.rows = max(1, round(rows * params.scale))
        if self.tables < 1 or not 0 <= self.zipf <= 2 or self.rows > 2**31 - 1:
            raise UsageError(f"{name}: tables, rows or zipf are out of range")

    def _number(self, key: str) -> float:
        """A numeric option; the empty text means 0."""
        try:
            value = float(self.option(key) or 0)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{self.name}: {key} takes a number, not {self.option(key)!r}")
        return value

    @property
    def about_bytes(self) -> float:
        return 1.0 * self.tables * self.rows * ROW_BYTES

    @property
    def dataset(self) -> str:
        alone = f" {self.name}" if self.script.alone else ""
        return f"sysbench tables={self.tables} rows={self.rows} seed={self.params.seed}{alone}"

    def load(self, target: Target, sink: Sink) -> None:
        if self.name == "bulk_insert":
            return  # `prepare` creates the tables of this script in each round.
        load_tables(target, self.tables, self.rows, self.params.seed, sink)
        target.analyze()
        self._whole.add(target.name)

    def warm(self, target: Target, clock: Clock) -> None:
        """Reads every table once, then runs the script for `warm_seconds`.

        A script that deletes rows is not run, because the round needs them.
        """
        if self.name == "bulk_insert":
            return
        for number in range(1, self.tables + 1):
            target.query(f"SELECT SUM(LENGTH(c)), SUM(k) FROM sbtest{number}")
        if self.params.warm_seconds > 0 and not self.script.consumes:
            self._learn(self._run(target, self.params.warm_seconds, 0, "warm", None))

    def prepare(self, target: Target, sink: Sink) -> bool:
        if self.name == "bulk_insert":
            self._make_bulk_tables(target)
            return True
        if not self.script.consumes or target.name in self._whole:
            return False
        for table in range(1, self.tables + 1):
            drop_table(target, f"sbtest{table}")
        self.load(target, sink)
        return True

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        """Runs one round.

        If tables are recreated for each round, clients are, too, and there is no lead, because the
        rows may not suffice for it. Otherwise the clients stay and their draws continue.
        """
        self._whole.discard(target.name)
        if self.script.consumes or self.name == "bulk_insert":
            return self._run(target, self.params.seconds, 0, f"round {number}", sink)
        if target.name not in self._clients:
            self._clients[target.name] = self._connect(target, number)
        try:
            clients = self._clients[target.name]
            return clients.round(self.params.lead_seconds, self.params.seconds, sink)
        except BaseException:
            self.leave(target)
            raise

    def leave(self, target: Target) -> None:
        clients = self._clients.pop(target.name, None)
        if clients is not None:
            clients.end()

    def _connect(self, target: Target, number: int) -> Gated:
        """Connects the clients; `number` is that of their first round."""
        if not self._queries_per_transaction:
            self._learn(self._run(target, 1, 0, "warm", None))
        script, environment, options = self._program(f"from round {number}")
        queries = self._queries_per_transaction
        return Gated(target, script, options, environment, self.params.threads, queries)

    def _learn(self, outcome: Outcome) -> None:
        """Notes the queries per transaction: clients behind the gate count only transactions."""
        if outcome.transactions:
            self._queries_per_transaction = outcome.queries / outcome.transactions

    def check(self, target: Target) -> list[str]:
        """Checks that both indexes find the same rows, and that their number is right."""
        if self.name == "bulk_insert":
            return []
        wrong = []
        for number in range(1, self.tables + 1):
            table = f"sbtest{number}"
            by_key = target.query(f"SELECT COUNT(*) FROM {table} WHERE id > 0")[0][0]
            by_index = target.query(f"SELECT COUNT(*) FROM {table} WHERE k >= 0")[0][0]
            if by_key != by_index:
                wrong.append(f"{table}: {by_key} rows by id, {by_index} by k")
            if self.script.consumes and by_key < self.rows / 2:
                wrong.append(f"{table}: most rows are deleted, {self.rows} are too few for a round")
            if not self.script.alone and by_key != self.rows:
                wrong.append(f"{table}: {by_key} rows, {self.rows} were loaded")
        return wrong

    def _run(
        self, target: Target, seconds: float, lead: float, use: str, sink: Sink | None
    ) -> Outcome:
        """Runs sysbench with clients of its own. sysbench measures whole seconds only."""
        script, environment, options = self._program(use)
        whole, lead = max(1, round(seconds)), round(lead)
        return run_sysbench(target, script, options, environment, whole, sink, lead)

    def _program(self, use: str) -> tuple[Path, dict[str, str], list[str]]:
        """The script with its environment and options.

        Each use has its own random draws, which are the same on every target.
        """
        script = SCRIPT_DIR / f"{self.program or self.name}.lua"
        environment = {}
        if self.zipf:
            environment = {"FIRN_LAB_SCRIPT": str(script), "FIRN_LAB_ZIPF": str(self.zipf)}
            script = LUA / "zipf.lua"
        options = [
            f"--threads={self.params.threads}",
            "--events=0",
            "--rand-type=uniform",
            f"--rand-seed={seed_of(self.params.seed, use)}",
        ]
        if self.rows:
            options += [f"--tables={self.tables}", f"--table-size={self.rows}"]
        if "range_size" in self.options:
            options.append(f"--range-size={self.option('range_size')}")
        return script, environment, options

    def _make_bulk_tables(self, target: Target) -> None:
        """Creates tables as `bulk_insert prepare` does, which does not support table options."""
        for number in range(1, self.params.threads + 1):
            drop_table(target, f"sbtest{number}")
            target.query(
                f"CREATE TABLE sbtest{number} (id INTEGER NOT NULL, k INTEGER DEFAULT '0' "
                f"NOT NULL, PRIMARY KEY (id)){target.create_suffix()}"
            )


for _name, _script in SCRIPTS.items():
    _own = {
        "script": _script,
        "summary": f"sysbench: {_script.summary}",
        "writes": _script.writes,
        "keeps_rows": not _script.alone,
        "options": {key: DEFAULTS[key] for key in _script.options},
    }
    WORKLOADS.add(_name, type(_name, (Sysbench,), _own))
