"""The schema of a server's tables, read from information_schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Runs a statement with arguments and returns its rows.
Query = Callable[[str, Sequence[Any]], Sequence[Any]]

_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")


@dataclass(frozen=True)
class Column:
    """A column; `octets` is the maximum number of bytes of a text or binary column."""

    name: str
    kind: str
    type_text: str
    nullable: bool
    precision: int
    scale: int
    fraction: int
    octets: int
    charset: str
    collation: str
    virtual: bool

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.type_text


@dataclass(frozen=True)
class Index:
    """An index; `parts` are columns with a prefix length, or None for the whole column."""

    name: str
    parts: tuple[tuple[Column, int | None], ...]
    primary: bool


@dataclass(frozen=True)
class Table:
    """A table; row count and bytes come from InnoDB's statistics.

    `indexes`: the primary index comes first. `left_out_kinds`: names and kinds of the indexes that
    FIRN does not support. `kind`: the type of the table in information_schema; only base tables are
    sampled. `packed`: InnoDB compresses the table.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    rows: int
    data_bytes: int
    index_bytes: int
    left_out_kinds: tuple[tuple[str, str], ...] = ()
    kind: str = "BASE TABLE"
    packed: bool = False

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.left_out_kinds)

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def primary(self) -> Index | None:
        return self.indexes[0] if self.indexes and self.indexes[0].primary else None


def tables(query: Query, database: str | None, names: Sequence[str]) -> list[Table]:
    """InnoDB tables of a database, or of all but system databases; `names` filters if not empty."""
    rows = query(
        "SELECT table_schema, table_name, COALESCE(table_rows, 0), COALESCE(data_length, 0), "
        "COALESCE(index_length, 0), table_type, COALESCE(row_format, ''), "
        "COALESCE(create_options, '') FROM information_schema.tables "
        "WHERE table_type <> 'VIEW' AND engine = 'InnoDB' AND "
        "(%s IS NULL OR table_schema = %s) ORDER BY data_length + index_length DESC",
        (database, database),
    )
    return [
        replace(
            _table(query, str(row[0]), str(row[1]), int(row[2]), int(row[3]), int(row[4])),
            kind=str(row[5]),
            packed="COMPRESSED" in f"{row[6]} {row[7]}".upper(),
        )
        for row in rows
        if row[0] not in _SYSTEM and (not names or row[1] in names)
    ]


def _table(query: Query, database: str, name: str, rows: int, data: int, index: int) -> Table:
    columns = tuple(
        _column(row)
        for row in query(
            "SELECT column_name, data_type, column_type, is_nullable, numeric_precision, "
            "numeric_scale, datetime_precision, character_octet_length, character_set_name, "
            "collation_name, extra FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, name),
        )
    )
    by_name = {column.name: column for column in columns}
    parts: dict[str, list[tuple[Column, int | None]]] = {}
    left_out: dict[str, str] = {}
    for key, column, prefix, kind in query(
        "SELECT index_name, column_name, sub_part, index_type FROM information_schema.statistics "
        "WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index",
        (database, name),
    ):
        # FIRN has no FULLTEXT, SPATIAL or expression indexes, and no UNIQUE indexes over hashes of
        # long values.
        if kind != "BTREE" or column not in by_name:
            left_out[str(key)] = str(kind) if column in by_name else "EXPRESSION"
        else:
            length = None if prefix is None else int(prefix)
            parts.setdefault(str(key), []).append((by_name[column], length))
    indexes = [
        Index(key, tuple(found), key == "PRIMARY")
        for key, found in parts.items()
        if key not in left_out
    ]
    indexes.sort(key=lambda each: not each.primary)
    return Table(
        database, name, columns, tuple(indexes), rows, data, index, tuple(left_out.items())
    )


def _column(row: Sequence[Any]) -> Column:
    def number(value: Any) -> int:
        return 0 if value is None else int(value)

    return Column(
        name=str(row[0]),
        kind=str(row[1]).lower(),
        type_text=str(row[2]).lower(),
        nullable=row[3] == "YES",
        precision=number(row[4]),
        scale=number(row[5]),
        fraction=number(row[6]),
        octets=number(row[7]),
        charset=row[8] or "",
        collation=row[9] or "",
        virtual="VIRTUAL" in str(row[10]).upper(),
    )


def quoted(name: str) -> str:
    """Quotes an identifier for a statement with arguments, where % must be doubled."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"
