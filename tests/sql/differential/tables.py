"""Random tables: the model of a table that the generators use, and its definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .columns import Column, Types

# InnoDB's limit for one index; the engine under test promises the same.
KEY_BYTES_MAX = 3072


@dataclass
class KeyPart:
    """A column in an index: `prefix` characters of it (0: all), ascending or descending."""

    column: Column
    prefix: int = 0
    descending: bool = False

    @property
    def sql(self) -> str:
        """The part in a definition."""
        length = f"({self.prefix})" if self.prefix else ""
        return f"{self.column.name}{length}{' DESC' if self.descending else ''}"

    @property
    def bytes_max(self) -> int:
        """The maximum size of the part in an index."""
        if self.prefix:
            return self.prefix * self.column.prefix_unit + 2
        return self.column.key_bytes


@dataclass
class Index:
    """An index; `name` is PRIMARY for the primary key."""

    name: str
    parts: list[KeyPart]
    unique: bool = False

    @property
    def sql(self) -> str:
        """The index in CREATE TABLE."""
        parts = ", ".join(part.sql for part in self.parts)
        if self.name == "PRIMARY":
            return f"PRIMARY KEY ({parts})"
        return f"{'UNIQUE ' if self.unique else ''}KEY {self.name} ({parts})"

    def uses(self, column: Column) -> bool:
        """Whether the column is a part."""
        return any(part.column is column for part in self.parts)


@dataclass
class Table:
    """A table as the generators see it.

    `order_known` is false once ALTER added a unique index: InnoDB then checks unique indexes in
    another order, and the row that ON DUPLICATE KEY UPDATE finds is not determined.
    """

    name: str
    columns: list[Column]
    indexes: list[Index] = field(default_factory=list)
    order_known: bool = True
    next_name: int = 0

    @property
    def primary(self) -> Index | None:
        """The primary key, if any."""
        return next((index for index in self.indexes if index.name == "PRIMARY"), None)

    @property
    def unique_indexes(self) -> list[Index]:
        """Indexes that can reject a row."""
        return [index for index in self.indexes if index.unique]

    @property
    def writable(self) -> list[Column]:
        """Columns that can be assigned."""
        return [column for column in self.columns if not column.generated]

    def create(self) -> str:
        """CREATE TABLE without the engine."""
        parts = [column.definition for column in self.columns]
        parts += [index.sql for index in self.indexes]
        # Explicit values stay below the counter's start, because engines move the counter by
        # different amounts when a row with an explicit value is rejected.
        automatic = any(column.auto_increment for column in self.columns)
        start = " AUTO_INCREMENT=1000" if automatic else ""
        return f"CREATE TABLE {{db}}.{self.name} ({', '.join(parts)}){start}"

    def fresh_name(self, prefix: str) -> str:
        """A name that no column or index of this table has had."""
        self.next_name += 1
        return f"{prefix}{self.next_name}"

    def in_unique(self, column: Column) -> bool:
        """Whether a unique index uses the column, or a column generated from it."""
        depending = [c for c in self.columns if c.generated and column.name in c.generated]
        return any(
            index.uses(each) for index in self.unique_indexes for each in [column, *depending]
        )

    def total_order(self) -> str:
        """ORDER BY expressions that distinguish all different rows."""
        primary = self.primary
        if primary is not None:
            return ", ".join(part.column.name for part in primary.parts)
        return ", ".join(f"HEX(CONCAT({column.name}))" for column in self.columns)


def random_part(rng: Random, column: Column, primary: bool = False) -> KeyPart | None:
    """The column as an index part, or None if it cannot be one."""
    if column.key_bytes < 0 or (column.generated and primary):
        return None
    prefix = 0
    wants_prefix = column.key_bytes == 0 or (column.length_max > 3 and rng.random() < 0.25)
    if wants_prefix:
        longest = min(column.length_max - (1 if column.key_bytes else 0), 700 // column.prefix_unit)
        if longest < 1:
            return None
        prefix = rng.choice([1, 2, 3, 5, 10, longest])
        prefix = max(1, min(prefix, longest))
        column.opaque = column.opaque or not column.plain_collation
    return KeyPart(column, prefix, rng.random() < 0.2)


def random_index(rng: Random, table: Table, name: str, unique: bool) -> Index | None:
    """An index of one to four parts that any engine with InnoDB's limits accepts."""
    count = rng.choice([1, 1, 1, 2, 2, 3, 4])
    parts: list[KeyPart] = []
    for column in rng.sample(table.columns, min(count, len(table.columns))):
        part = random_part(rng, column, primary=name == "PRIMARY")
        if part is None or sum(p.bytes_max for p in [*parts, part]) > KEY_BYTES_MAX - 100:
            continue
        parts.append(part)
    return Index(name, parts, unique) if parts else None


def random_table(rng: Random, types: Types, name: str) -> Table:
    """A table of two to nine columns, with or without primary key, with zero to five indexes."""
    table = Table(name, [types.column(f"c{i}") for i in range(rng.randrange(2, 10))])
    table.next_name = len(table.columns)
    if rng.random() < 0.15:
        _add_generated(rng, table)
    if rng.random() < 0.18:
        key = types.integer("id")
        key.nullable, key.auto_increment = False, True
        table.columns.insert(0, key)
        table.indexes.append(Index("PRIMARY", [KeyPart(key)], unique=True))
    elif rng.random() < 0.75:
        primary = random_index(rng, table, "PRIMARY", unique=True)
        if primary is not None:
            for part in primary.parts:
                part.column.nullable = False
            table.indexes.append(primary)
    for unique in [True] * rng.choice([0, 0, 0, 1, 1, 2]) + [False] * rng.choice([0, 1, 1, 2, 3]):
        index = random_index(rng, table, table.fresh_name("k"), unique)
        if index is not None:
            table.indexes.append(index)
    return table


def _add_generated(rng: Random, table: Table) -> None:
    numbers = [column for column in table.columns if column.family == "int"]
    if not numbers:
        return
    source = rng.choice(numbers)
    kind = rng.choice(["VIRTUAL", "PERSISTENT"])
    # Allow no index on a virtual column: the server itself loses rows of such an index in some
    # sorts. Another test covers these indexes.
    key_bytes = 8 if kind == "PERSISTENT" else -1
    table.columns.append(
        Column(
            "g", "INT", "int", lambda r: str(r.randrange(-7, 8)), numeric=True, key_bytes=key_bytes,
            generated=f"GENERATED ALWAYS AS ({source.name} % 7) {kind}",
        )
    )  # fmt: skip
