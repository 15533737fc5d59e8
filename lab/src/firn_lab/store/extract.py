"""Copies one run with all its raw numbers into a store of its own, to archive or send."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from firn_lab.store import schema

# Kinds of events that are not copied. Only `watch` needs them while a run goes on, and the values
# of each second are also in the table `samples`.
PASSING = ("phase", "progress", "second", "step")
_ROUNDS = "round IN (SELECT id FROM source.rounds WHERE run = :run)"
_WHICH = {
    "runs": "id = :run",
    "parts": _ROUNDS,
    "samples": _ROUNDS,
    "events": f"run = :run AND kind NOT IN ({', '.join(map(repr, PASSING))})",
}

# The columns to copy, for each table of which not all columns are copied. A store with version 1 of
# the schema has only these columns of `run_ends`.
_COLUMNS = {"run_ends": "run, ended_at, status, message"}


def extract(store: Path, run: int, to: Path) -> None:
    """Writes, or replaces, the file `to`. All ids stay the same."""
    new = to.with_name(to.name + ".new")
    new.unlink(missing_ok=True)
    connection = sqlite3.connect(new.resolve().as_uri(), uri=True, isolation_level=None)
    try:
        schema.create(connection)
        connection.execute("ATTACH ? AS source", (f"{store.resolve().as_uri()}?mode=ro",))
        connection.execute("BEGIN")
        for name in schema.NAMES:
            columns = _COLUMNS.get(name, "")
            connection.execute(
                f"INSERT INTO main.{name} {columns and f'({columns})'} "
                f"SELECT {columns or '*'} FROM source.{name} "
                f"WHERE {_WHICH.get(name, 'run = :run')} ORDER BY rowid",
                {"run": run},
            )
        connection.execute("COMMIT")
        connection.execute("DETACH source")
        connection.execute("VACUUM")
    finally:
        connection.close()
    new.replace(to)
