"""Schema of the store. It is append-only: triggers reject every update and delete.

The end of a run is a row of its own in `run_ends`; a run without one is still running or was
killed. A resumed run has several such rows, and the last one counts. Every figure can be recomputed
from the raw series (`samples`).
"""

from __future__ import annotations

import sqlite3

VERSION = 2
# Versions of the schema that this lab can read. In version 1 a run cannot be resumed, so it has at
# most one row in `run_ends`.
READABLE = (1, 2)

TABLES = """
-- started_at: ISO 8601, UTC. command: to repeat the run, as JSON list. machine, budget: JSON.
-- rounds: the most that each case has on a target.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, started_at TEXT NOT NULL, title TEXT NOT NULL, command TEXT NOT NULL,
  lab_version TEXT NOT NULL, machine TEXT NOT NULL, budget TEXT NOT NULL, rounds INTEGER NOT NULL
);
-- status: ok, failed (something did not work, rest measured), paused, interrupted, aborted; or
-- running, when it goes on after such an end.
CREATE TABLE run_ends (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, ended_at TEXT NOT NULL,
  status TEXT NOT NULL, message TEXT NOT NULL
);
-- settings: JSON of names to values. memory_bytes and durable may be unknown.
CREATE TABLE targets (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name TEXT NOT NULL,
  spec TEXT NOT NULL, version TEXT NOT NULL, memory_bytes INTEGER, durable INTEGER,
  settings TEXT NOT NULL, UNIQUE (run, name)
);
-- What the rules of fairness found: shown in red.
CREATE TABLE warnings (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, rule TEXT NOT NULL,
  message TEXT NOT NULL
);
CREATE TABLE cases (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, workload TEXT NOT NULL,
  label TEXT NOT NULL, dataset TEXT NOT NULL, headline TEXT NOT NULL, params TEXT NOT NULL,
  UNIQUE (run, label)
);
-- number: from 0, of the block: rounds of a case with the same number stand next to each other.
-- status: ok, failed (message says why; no figures), wrong (a check failed: none of the case's
-- rounds on this target counts).
CREATE TABLE rounds (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, "case" INTEGER NOT NULL
  REFERENCES cases, target INTEGER NOT NULL REFERENCES targets, number INTEGER NOT NULL,
  started_at TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL
);
CREATE TABLE parts (
  round INTEGER NOT NULL REFERENCES rounds, name TEXT NOT NULL, count INTEGER NOT NULL,
  seconds REAL NOT NULL, errors INTEGER NOT NULL, retries INTEGER NOT NULL,
  average_ms REAL, p50_ms REAL, p95_ms REAL, p99_ms REAL, max_ms REAL
);
-- Of a round, or (round NULL) of a dataset on a target at a moment: load, update, rest; at the
-- moment `settled` the dataset is the label of a case, after whose last round the target rested.
CREATE TABLE figures (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, target INTEGER NOT NULL
  REFERENCES targets, dataset TEXT NOT NULL, round INTEGER REFERENCES rounds,
  moment TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, unit TEXT NOT NULL,
  better TEXT NOT NULL
);
CREATE TABLE samples (
  round INTEGER NOT NULL REFERENCES rounds, second INTEGER NOT NULL, name TEXT NOT NULL,
  value REAL NOT NULL
);
CREATE TABLE events (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, at REAL NOT NULL,
  kind TEXT NOT NULL, data TEXT NOT NULL
);
CREATE INDEX rounds_by_run ON rounds (run, "case", target, number);
CREATE INDEX parts_by_round ON parts (round);
CREATE INDEX figures_by_run ON figures (run, name);
CREATE INDEX figures_by_round ON figures (round);
CREATE INDEX samples_by_round ON samples (round, name, second);
CREATE INDEX events_by_run ON events (run, id);
"""

NAMES = (
    "runs",
    "run_ends",
    "targets",
    "warnings",
    "cases",
    "rounds",
    "parts",
    "figures",
    "samples",
    "events",
)


def create(connection: sqlite3.Connection) -> None:
    """Creates the tables and the triggers that protect them, in one transaction."""
    triggers = "".join(
        f"CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name} "
        f"BEGIN SELECT RAISE(ABORT, 'the store only grows'); END;\n"
        for name in NAMES
        for verb in ("UPDATE", "DELETE")
    )
    connection.executescript(f"BEGIN;{TABLES}{triggers}PRAGMA user_version={VERSION};COMMIT;")
