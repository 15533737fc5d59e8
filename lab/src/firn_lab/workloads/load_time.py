"""The time to load a table with two secondary indexes, from a file or by INSERTs."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from firn_lab.clock import Clock
from firn_lab.errors import UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.fill import Row, Share, insert
from firn_lab.workloads.load_file import load_file
from firn_lab.workloads.sql_session import by_index, create_table, drop_table, scaled_option, text
from firn_lab.workloads.workload import (
    WORKLOADS,
    FigureKind,
    Outcome,
    Params,
    RoundPart,
    Sink,
    Workload,
)

COLUMNS = (
    "id INT NOT NULL, k INT NOT NULL, code CHAR(12) NOT NULL, c VARCHAR(120) NOT NULL, "
    "PRIMARY KEY (id)"
)
INDEXES = ("loaded_k (k)", "loaded_code (code)")


def rows(seed: int, count: int, order: str) -> Iterator[Row]:
    """Rows with keys 1 to `count`, in order or shuffled."""
    random = Random(f"load {seed}")
    keys = list(range(1, count + 1))
    if order == "random":
        random.shuffle(keys)
    for key in keys:
        yield key, random.randrange(count), text(random, 12), text(random, random.randint(80, 120))


@WORKLOADS.register("load_time")
class LoadTime(Workload):
    """Each round creates the table again. The rows are generated before the clock starts."""

    summary = "time to load a table with two secondary indexes, by file or INSERTs, one session"
    options = {"rows": "1000000", "way": "file", "order": "key"}
    figures = {"rows_per_second": FigureKind("1/s", "higher")}
    timed = False
    headline = "rows_per_second"
    counts_transactions = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows")
        if self.option("way") not in ("file", "insert"):
            raise UsageError(f"{name}: way is file or insert")
        if self.option("order") not in ("key", "random"):
            raise UsageError(f"{name}: order is key or random")

    @property
    def about_bytes(self) -> float:
        return self.rows * 250.0

    def load(self, target: Target, sink: Sink) -> None:
        """Does nothing: loading is the measured work."""

    def prepare(self, target: Target, sink: Sink) -> bool:
        drop_table(target, "loaded")
        create_table(target, "loaded", COLUMNS, *INDEXES)
        return True

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        made = rows(self.params.seed, self.rows, self.option("order"))
        if self.option("way") == "insert":
            kept = list(made)
            began = clock.monotonic()
            insert(target, Share("loaded", lambda: kept))
            seconds = clock.monotonic() - began
        else:
            with tempfile.NamedTemporaryFile("w", dir=target.scratch, newline="") as file:
                csv.writer(file, delimiter="|", lineterminator="\n").writerows(made)
                file.flush()
                began = clock.monotonic()
                load_file(target, "loaded", Path(file.name))
                seconds = clock.monotonic() - began
        rate = self.rows / max(seconds, 1e-9)
        part = RoundPart(f"load by {self.option('way')}", 1, seconds)
        return Outcome(1, 1, seconds, parts=(part,), figures={"rows_per_second": rate})

    def check(self, target: Target) -> list[str]:
        """Checks count and keys of the rows through each index."""
        wrong = []
        for index, condition in (
            ("PRIMARY", "id > 0"), ("loaded_k", "k >= 0"), ("loaded_code", "code >= ''"),
        ):  # fmt: skip
            hint = by_index(target, index)
            count, total = target.query(
                f"SELECT COUNT(*), SUM(id) FROM loaded{hint} WHERE {condition}"
            )[0]
            if (count, total) != (self.rows, self.rows * (self.rows + 1) // 2):
                wrong.append(f"{index}: {count} rows with keys that sum up to {total}")
        return wrong
