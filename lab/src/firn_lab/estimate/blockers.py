"""Lists properties of tables that FIRN refuses: with one, ALTER TABLE … ENGINE=FIRN fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firn_lab.estimate.schema import Query, Table

_INDEXES = {
    "FULLTEXT": "FULLTEXT index {}",
    "SPATIAL": "SPATIAL index {}",
    "RTREE": "SPATIAL index {}",
}
# FIRN has the index, but its size is not estimated. InnoDB has no hash index: the server reports
# the index type HASH for a UNIQUE index whose values are too long for a key.
_ALLOWED = {"HASH"}


def blockers(table: Table) -> tuple[str, ...]:
    """The reasons why FIRN refuses one table, as text."""
    if table.kind == "SYSTEM VERSIONED":
        return ("system versioning",)
    found: list[str] = []
    for name, kind in table.left_out_kinds:
        if kind in _ALLOWED:
            continue
        form = _INDEXES.get(kind, "index {}: over an expression")
        found.append(form.format(name))
    return tuple(dict.fromkeys(found))


def of_server(query: Query) -> tuple[str, ...]:
    """Server settings under which FIRN refuses writes."""
    bad = {"wsrep_on": ("ON", "Galera replication (wsrep_on)")}
    values = _values(query, "SHOW GLOBAL VARIABLES", set(bad))
    return tuple(text for name, (value, text) in bad.items() if values.get(name) == value)


def _values(query: Query, statement: str, names: set[str]) -> dict[str, str]:
    rows: Sequence[Sequence[Any]] = query(statement, ())
    return {str(name).lower(): str(value).upper() for name, value in rows if name in names}
