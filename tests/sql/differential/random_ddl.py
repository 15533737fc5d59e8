"""Random DDL: a statement, and its effect on the model after both engines accepted it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .columns import Types
from .tables import Index, KeyPart, Table, random_index

Change = tuple[str, Callable[[], None]]


def alter(rng: Random, types: Types, tables: list[Table]) -> Change:
    """A random ALTER TABLE, CREATE or DROP INDEX, RENAME or TRUNCATE."""
    table = rng.choice(tables)
    makers = [add_column, drop_column, add_index, add_index, drop_index, rename, truncate,
              change_primary, widen, rebuild]  # fmt: skip
    return rng.choice(makers)(rng, types, table)


def _alter(table: Table, clause: str) -> str:
    return f"ALTER TABLE {{db}}.{table.name} {clause}"


def add_column(rng: Random, types: Types, table: Table) -> Change:
    """Adds a column with a constant default at any position."""
    column = types.column(table.fresh_name("c"))
    column.nullable = column.nullable or column.family == "point" or rng.random() < 0.5
    default = ""
    if not column.nullable or (rng.random() < 0.5 and column.family != "point"):
        value = column.literal(rng, 1.0)
        default = f" DEFAULT {value if value != 'NULL' or column.nullable else column.make(rng)}"
    place = rng.randrange(0, len(table.columns) + 1)
    where = " FIRST" if place == 0 else f" AFTER {table.columns[place - 1].name}"
    if place == len(table.columns):
        where = ""

    def apply() -> None:
        table.columns.insert(place, column)

    return _alter(table, f"ADD COLUMN {column.definition}{default}{where}"), apply


def drop_column(rng: Random, types: Types, table: Table) -> Change:
    """Drops a column that no key uses."""
    used = {part.column.name for index in table.indexes for part in index.parts}
    generated = " ".join(column.generated for column in table.columns)
    free = [c for c in table.columns if c.name not in used and c.name not in generated]
    if len(table.columns) < 3 or not free:
        return add_index(rng, types, table)
    column = rng.choice(free)
    return _alter(table, f"DROP COLUMN {column.name}"), lambda: table.columns.remove(column)


def add_index(rng: Random, types: Types, table: Table) -> Change:
    """Adds a unique or plain index on existing rows; duplicates make both engines fail."""
    unique = rng.random() < 0.4
    index = random_index(rng, table, table.fresh_name("k"), unique)
    if index is None:
        return truncate(rng, types, table)

    def apply() -> None:
        table.indexes.append(index)
        table.order_known = table.order_known and not unique

    if rng.random() < 0.5:
        parts = ", ".join(part.sql for part in index.parts)
        word = "UNIQUE INDEX" if unique else "INDEX"
        return f"CREATE {word} {index.name} ON {{db}}.{table.name} ({parts})", apply
    return _alter(table, f"ADD {index.sql}"), apply


def drop_index(rng: Random, types: Types, table: Table) -> Change:
    """Drops a secondary index."""
    secondary = [index for index in table.indexes if index.name != "PRIMARY"]
    if not secondary:
        return add_index(rng, types, table)
    index = rng.choice(secondary)
    return _alter(table, f"DROP INDEX {index.name}"), lambda: table.indexes.remove(index)


def rename(rng: Random, types: Types, table: Table) -> Change:
    """RENAME TABLE, or ALTER TABLE … RENAME."""
    new = f"{table.name.split('_')[0]}_{table.fresh_name('r')}"

    def apply() -> None:
        table.name = new

    if rng.random() < 0.5:
        return f"RENAME TABLE {{db}}.{table.name} TO {{db}}.{new}", apply
    return _alter(table, f"RENAME TO {{db}}.{new}"), apply


def truncate(rng: Random, types: Types, table: Table) -> Change:
    """TRUNCATE, or more often ANALYZE.

    A table with AUTO_INCREMENT is never truncated: its counter would restart below explicit values.
    """
    empties = rng.random() < 0.4 and not any(column.auto_increment for column in table.columns)
    verb = "TRUNCATE TABLE" if empties else "ANALYZE TABLE"
    return f"{verb} {{db}}.{table.name}", lambda: None


def change_primary(rng: Random, types: Types, table: Table) -> Change:
    """Drops the primary key or adds one."""
    primary = table.primary
    if primary is not None:
        if any(part.column.auto_increment for part in primary.parts):
            return rebuild(rng, types, table)
        return _alter(table, "DROP PRIMARY KEY"), lambda: table.indexes.remove(primary)
    free = [c for c in table.columns if not c.nullable and not c.generated and c.key_bytes > 0]
    free = [column for column in free if column.key_bytes < 1000]
    if not free:
        return add_index(rng, types, table)
    chosen = rng.sample(free, min(len(free), rng.choice([1, 2, 3])))
    index = Index("PRIMARY", [KeyPart(column) for column in chosen], unique=True)

    def apply() -> None:
        table.indexes.insert(0, index)

    return _alter(table, f"ADD {index.sql}"), apply


def widen(rng: Random, types: Types, table: Table) -> Change:
    """Lengthens a VARCHAR or VARBINARY, or renames a column."""
    column = rng.choice(table.columns)
    generated = " ".join(each.generated for each in table.columns)
    if column.type.startswith(("VARCHAR(", "VARBINARY(")) and column.key_bytes > 0:
        longer = column.length_max + rng.choice([1, 5, 200])
        head, tail = column.type.split("(")[0], column.type.split(")", 1)[1]
        wider = f"{head}({longer}){tail}"
        null = "" if column.nullable else " NOT NULL"

        def grow() -> None:
            column.type, column.length_max = wider, longer
            column.key_bytes = longer * column.prefix_unit + 2

        return _alter(table, f"MODIFY {column.name} {wider}{null}"), grow
    if column.name in generated or column.generated:
        return rebuild(rng, types, table)
    new = table.fresh_name("n")

    def renamed() -> None:
        column.name = new

    return _alter(table, f"RENAME COLUMN {column.name} TO {new}"), renamed


def rebuild(rng: Random, types: Types, table: Table) -> Change:
    """OPTIMIZE, or a copy of the whole table."""
    if rng.random() < 0.5:
        return f"OPTIMIZE TABLE {{db}}.{table.name}", lambda: None
    return _alter(table, "FORCE"), lambda: None
