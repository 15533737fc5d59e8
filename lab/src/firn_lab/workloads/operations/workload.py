"""One session runs each operation once; each is timed and its result compared."""

from __future__ import annotations

from firn_lab.clock import Clock
from firn_lab.errors import CheckFailed, UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.operations.steps import Steps
from firn_lab.workloads.sql_session import SqlSession, scaled_option
from firn_lab.workloads.workload import (
    WORKLOADS,
    FigureKind,
    Outcome,
    Params,
    RoundPart,
    Sink,
    Workload,
)

STEPS = (
    "create", "insert", "count", "count_distinct", "count_distinct_key_prefix", "group_on_key",
    "group_on_key_parts", "group", "select_key", "select_key_prefix", "outer_join_on_key",
    "outer_join", "update_of_key", "update_of_primary_key", "alter_table_add",
    "alter_table_add_index", "alter_table_change", "alter_table_drop_index", "alter_table_drop",
    "insert_many_keys", "update_of_key_many_keys", "update_of_primary_key_many_keys",
    "delete_all_many_keys", "delete_all",
)  # fmt: skip


@WORKLOADS.register("operations")
class Operations(Workload):
    summary = "the classic single-user list: insert, count, group, join, alter, update, delete"
    options = {"rows": "100000"}
    figures = {f"{name}_seconds": FigureKind("s") for name in STEPS}
    timed = False
    headline = "seconds"
    dialects = ("mysql",)
    counts_transactions = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows", 100)
        if self.rows % 7919 == 0:
            raise UsageError(f"{name}: rows cannot be a multiple of 7919")

    @property
    def label(self) -> str:
        """The label has no thread count, because the workload always uses one thread."""
        return f"{self.name} rows={self.rows}"

    @property
    def about_bytes(self) -> float:
        return self.rows * 600.0

    def load(self, target: Target, sink: Sink) -> None:
        """Does nothing: creating and filling tables is part of the list."""

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        session = SqlSession(target.connect())
        try:
            parts = []
            for step in Steps(session, self.rows, target.create_suffix()).all():
                began = clock.monotonic()
                result = step.work()
                parts.append(RoundPart(step.name, 1, clock.monotonic() - began))
                if result is not None and result[0] != result[1]:
                    raise CheckFailed(f"{step.name}: {_short(result[0])}, not {_short(result[1])}")
                sink.progress(len(parts) / len(STEPS))
        finally:
            session.close()
        figures = {f"{part.name}_seconds": part.seconds for part in parts}
        seconds = sum(part.seconds for part in parts)
        return Outcome(len(parts), session.queries, seconds, parts=tuple(parts), figures=figures)

    def check(self, target: Target) -> list[str]:
        """Checks that both tables are empty, as the last steps leave them."""
        counts = {
            table: target.query(f"SELECT COUNT(*) FROM {table}")[0][0]
            for table in ("numbers", "wide")
        }
        return [f"{table} still has {count} rows" for table, count in counts.items() if count]


def _short(value: object) -> str:
    return str(value)[:200]
