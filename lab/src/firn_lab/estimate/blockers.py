"""Lists properties of tables that FIRN refuses: with one, ALTER TABLE … ENGINE=FIRN fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from firn_lab.errors import LabError
from firn_lab.estimate.schema import Query, Table, quoted

# FIRN refuses indexes over these collations, because their sort keys order text differently from
# their comparisons.
_COLLATIONS = {
    "big5_chinese_ci", "big5_chinese_nopad_ci", "latin2_czech_cs", "cp1250_czech_cs",
    "tis620_thai_ci", "tis620_thai_nopad_ci",
}  # fmt: skip
_INDEXES = {
    "FULLTEXT": "FULLTEXT index {}",
    "SPATIAL": "SPATIAL index {}",
    "RTREE": "SPATIAL index {}",
    # InnoDB has no hash index. The server reports the index type HASH for a UNIQUE index whose
    # values are too long for a key.
    "HASH": "index {}: UNIQUE over more bytes than a key takes",
}
_OVERLAPS = re.compile(r"KEY (?:`((?:[^`]|``)*)` )?\(.*WITHOUT OVERLAPS\)")
_REFUSED_TYPES = {"SEQUENCE": "a sequence", "SYSTEM VERSIONED": "system versioning"}


def blockers(query: Query, table: Table, keys: dict[tuple[str, str], list[str]]) -> tuple[str, ...]:
    """The reasons why FIRN refuses one table, as text. `keys` is the result of `foreign_keys`."""
    place = (table.database, table.name)
    found = list(keys.get(place, []))
    if table.kind in _REFUSED_TYPES:
        return (_REFUSED_TYPES[table.kind], *found)
    for name, kind in table.left_out_kinds:
        form = _INDEXES.get(kind, "index {}: over an expression")
        found.append(form.format(name))
    for index in table.indexes:
        for column, _ in index.parts:
            if column.collation in _COLLATIONS:
                found.append(f"index {index.name}: collation {column.collation}")
    found.extend(_without_overlaps(query, *place))
    return tuple(dict.fromkeys(found))


def foreign_keys(query: Query) -> dict[tuple[str, str], list[str]]:
    """By table: the foreign keys because of which FIRN refuses the table.

    They are the table's own, and those that refer to it.
    """
    found: dict[tuple[str, str], list[str]] = {}
    rows = query(
        "SELECT DISTINCT constraint_name, table_schema, table_name, referenced_table_schema, "
        "referenced_table_name FROM information_schema.key_column_usage "
        "WHERE referenced_table_name IS NOT NULL ORDER BY 2, 3, 1",
        (),
    )
    for name, database, table, to_database, to_table in (map(str, row) for row in rows):
        own, other = (database, table), (to_database, to_table)
        found.setdefault(own, []).append(f"foreign key {name} to {'.'.join(other)}")
        if own != other:
            text = f"foreign key {name} of {'.'.join(own)} refers to it"
            found.setdefault(other, []).append(text)
    return found


def of_server(query: Query) -> tuple[str, ...]:
    """Server settings under which FIRN refuses writes."""
    bad = {"wsrep_on": ("ON", "Galera replication (wsrep_on)")}
    values = _values(query, "SHOW GLOBAL VARIABLES", set(bad))
    return tuple(text for name, (value, text) in bad.items() if values.get(name) == value)


def _values(query: Query, statement: str, names: set[str]) -> dict[str, str]:
    rows: Sequence[Sequence[Any]] = query(statement, ())
    return {str(name).lower(): str(value).upper() for name, value in rows if name in names}


def _without_overlaps(query: Query, database: str, name: str) -> list[str]:
    try:
        rows = query(f"SHOW CREATE TABLE {quoted(database)}.{quoted(name)}", ())
    except LabError:
        return []  # The user lacks the privilege; reading the rows will report it.
    lines = str(rows[0][1]).splitlines()
    found = [match for match in map(_OVERLAPS.search, lines) if match]
    return [f"index {match[1] or 'PRIMARY'}: WITHOUT OVERLAPS" for match in found]
