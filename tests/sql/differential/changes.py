"""Random statements that change rows.

The outcome of every statement is independent of the plan that an engine's statistics lead to: where
the order of rows could matter (a LIMIT, a range update of a unique index), the statement has a
total order.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from .columns import Column
from .tables import Table

# A statement: SQL with {db} for the database.
Maker = Callable[[Random, list[Table]], str]

OPERATORS = ["=", "=", "=", "<", "<=", ">", ">=", "<>", "<=>"]


def condition(rng: Random, column: Column, prefix: str = "") -> str:
    """A predicate on one column.

    It never uses LIKE if the collation has contractions or ignorable characters: the server then
    derives a range from the pattern that misses rows, on every engine.
    """
    name = prefix + column.name
    shape = rng.random()
    if shape < 0.1:
        return f"{name} IS {'NOT ' if rng.random() < 0.5 else ''}NULL"
    if column.opaque:
        name = f"CONCAT({name})"
    if column.family == "point":
        return f"{name} = {column.literal(rng)}"
    if shape < 0.25:
        return f"{name} BETWEEN {column.literal(rng)} AND {column.literal(rng)}"
    if shape < 0.4:
        values = ", ".join(column.literal(rng) for _ in range(rng.randrange(1, 6)))
        return f"{name} IN ({values})"
    if shape < 0.5 and column.text and column.plain_collation:
        start = rng.choice(["a", "A", "ab", "ch", "s", " ", "", "ä", "č"][: 7 + 2 * _wide(column)])
        return f"{name} LIKE _utf8mb4 x'{(start + '%').encode().hex()}'"
    return f"{name} {rng.choice(OPERATORS)} {column.literal(rng)}"


def _wide(column: Column) -> bool:
    return "utf8mb" in column.family


def where(rng: Random, table: Table, prefix: str = "") -> str:
    """A WHERE over one to three columns, preferring those an index starts with."""
    leading = [index.parts[0].column for index in table.indexes]
    terms = []
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        pool = leading if leading and rng.random() < 0.6 else table.columns
        terms.append(condition(rng, rng.choice(pool), prefix))
    glue = " AND " if rng.random() < 0.8 else " OR "
    return glue.join(terms)


def point(rng: Random, table: Table) -> str | None:
    """A WHERE that names at most one row, or None without a primary key."""
    primary = table.primary
    if primary is None or any(part.prefix for part in primary.parts):
        return None
    return " AND ".join(f"{p.column.name} = {p.column.literal(rng, 0.05)}" for p in primary.parts)


def _value(rng: Random, column: Column) -> str:
    if column.auto_increment:
        return str(rng.randrange(1, 60))
    return column.literal(rng)


def _rows(rng: Random, columns: list[Column], count: int) -> str:
    rows = (", ".join(_value(rng, column) for column in columns) for _ in range(count))
    return ", ".join(f"({row})" for row in rows)


def _names(columns: list[Column]) -> str:
    return ", ".join(column.name for column in columns)


def _automatic(table: Table) -> bool:
    return any(column.auto_increment for column in table.columns)


def insert(rng: Random, tables: list[Table]) -> str:
    """INSERT, INSERT IGNORE or REPLACE of one row or several, sometimes leaving columns out."""
    table = rng.choice(tables)
    columns = table.writable
    count = rng.choice([1, 1, 2, 3, 8, 20])
    verb = rng.choice(["INSERT INTO", "INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO"])
    if _automatic(table) and rng.random() < 0.6:
        # Insert a single row: engines may reserve different numbers of values for a statement of
        # many rows.
        columns, count, verb = columns[1:], 1, "INSERT INTO"
    elif rng.random() < 0.15:
        columns = [c for c in columns if not c.nullable or rng.random() < 0.6] or columns
    return f"{verb} {{db}}.{table.name} ({_names(columns)}) VALUES {_rows(rng, columns, count)}"


def upsert(rng: Random, tables: list[Table]) -> str:
    """INSERT … ON DUPLICATE KEY UPDATE."""
    table = rng.choice(tables)
    columns = table.writable
    if not table.order_known and len(table.unique_indexes) > 1:
        return insert(rng, tables)
    sets = ", ".join(
        f"{c.name} = {rng.choice([f'VALUES({c.name})', _value(rng, c)])}"
        for c in rng.sample(columns, min(len(columns), rng.choice([1, 1, 2])))
    )
    rows = _rows(rng, columns, rng.choice([1, 1, 2, 5]))
    head = f"INSERT INTO {{db}}.{table.name} ({_names(columns)}) VALUES {rows}"
    return f"{head} ON DUPLICATE KEY UPDATE {sets}"


def insert_select(rng: Random, tables: list[Table]) -> str:
    """INSERT … SELECT from this table or another one."""
    target, source = rng.choice(tables), rng.choice(tables)
    chosen = []
    for column in target.writable:
        like = [c for c in source.columns if c.family == column.family]
        if column.auto_increment:
            chosen.append(str(rng.randrange(60, 400)))
        elif like and rng.random() < 0.85:
            chosen.append(rng.choice(like).name)
        else:
            chosen.append(column.literal(rng))
    verb = rng.choice(["INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO"])
    return (
        f"{verb} {{db}}.{target.name} ({_names(target.writable)}) SELECT {', '.join(chosen)} "
        f"FROM {{db}}.{source.name} WHERE {where(rng, source)} "
        f"ORDER BY {source.total_order()} LIMIT {rng.choice([1, 3, 10])}"
    )


def _assignment(rng: Random, column: Column) -> str:
    if column.numeric and rng.random() < 0.4:
        return f"{column.name} = {column.name} {rng.choice(['+ 1', '- 1', '+ 7'])}"
    if column.text and rng.random() < 0.3:
        change = rng.choice(["UPPER({})", "LOWER({})", "CONCAT({},' ')", "CONCAT({},'b')"])
        return f"{column.name} = {change.format(column.name)}"
    return f"{column.name} = {_value(rng, column)}"


def update(rng: Random, tables: list[Table]) -> str:
    """UPDATE of a point or a range, of keys too; ordered when a unique index is touched."""
    table = rng.choice(tables)
    columns = rng.sample(table.writable, min(len(table.writable), rng.choice([1, 1, 2, 3])))
    sets = ", ".join(_assignment(rng, column) for column in columns)
    ignore = "IGNORE " if rng.random() < 0.2 else ""
    head = f"UPDATE {ignore}{{db}}.{table.name} SET {sets}"
    one = point(rng, table)
    if one is not None and rng.random() < 0.4:
        return f"{head} WHERE {one}"
    tail = f" WHERE {where(rng, table)}" if rng.random() < 0.9 else ""
    if any(table.in_unique(column) for column in columns) or rng.random() < 0.15:
        direction = f"ORDER BY {table.total_order()}{rng.choice(['', ' DESC'])}"
        limit = f" LIMIT {rng.choice([1, 2, 5, 50])}" if rng.random() < 0.6 else ""
        tail += f" {direction}{limit}"
    return head + tail


def delete(rng: Random, tables: list[Table]) -> str:
    """DELETE of a point, a range, or the first rows of an order."""
    table = rng.choice(tables)
    one = point(rng, table)
    if one is not None and rng.random() < 0.4:
        return f"DELETE FROM {{db}}.{table.name} WHERE {one}"
    order = f" ORDER BY {table.total_order()} LIMIT {rng.choice([1, 2, 5])}"
    tail = order if rng.random() < 0.6 else ""
    return f"DELETE FROM {{db}}.{table.name} WHERE {where(rng, table)}{tail}"


def join_condition(
    rng: Random, left: Table, right: Table, prefixes: tuple[str, str] = ("l.", "r.")
) -> str | None:
    """A condition `l.x = r.y` over columns that compare without conversion, or None."""
    pairs = [
        (a, b) for a in left.columns for b in right.columns
        if a.family == b.family and a.family not in ("point", "json", "enum", "set")
        and not a.opaque and not b.opaque
    ]  # fmt: skip
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    return f"{prefixes[0]}{a.name} = {prefixes[1]}{b.name}"


def multi_table(rng: Random, tables: list[Table]) -> str:
    """UPDATE or DELETE over a join, with values independent of which match comes first."""
    left, right = rng.choice(tables), rng.choice(tables)
    one, other = f"{{db}}.{left.name}", f"{{db}}.{right.name}"
    on = join_condition(rng, left, right, (f"{one}.", f"{other}."))
    free = [c for c in left.writable if not left.in_unique(c) and not c.auto_increment]
    if on is None or left is right or not free:
        return update(rng, tables)
    source = f"{one} JOIN {other} ON {on}"
    limit = where(rng, right, f"{other}.")
    if rng.random() < 0.5:
        return f"DELETE {rng.choice([one, other, f'{one}, {other}'])} FROM {source} WHERE {limit}"
    column = rng.choice(free)
    return f"UPDATE {source} SET {one}.{column.name} = {column.literal(rng)} WHERE {limit}"


def load_data(rng: Random, tables: list[Table], directory: Path) -> str:
    """LOAD DATA LOCAL of integers, dates and plain words into columns that accept them."""
    table = rng.choice(tables)
    columns = table.writable
    lines = []
    for _ in range(rng.choice([1, 5, 30])):
        cells = []
        for column in columns:
            literal = _value(rng, column)
            plain = literal.strip("'")
            usable = column.family in ("enum", "set") or plain.replace("-", "").isalnum()
            usable = usable or column.numeric
            cells.append("\\N" if literal == "NULL" else plain if usable else "7")
        lines.append("\t".join(cells))
    path = directory / f"load{rng.randrange(10**9)}.tsv"
    path.write_text("\n".join(lines) + "\n")
    mode = rng.choice(["IGNORE", "REPLACE"])
    return (
        f"LOAD DATA LOCAL INFILE '{path}' {mode} INTO TABLE {{db}}.{table.name} ({_names(columns)})"
    )


def _from_sequence(rng: Random, column: Column) -> str:
    """An expression over `seq` with many different values of the column's type."""
    if column.family == "int":
        return f"seq * {rng.choice([1, 3, 7, 101])} % {rng.choice([50, 120, 30000])}"
    if column.family.startswith(("float", "double", "decimal")):
        return f"(seq * 37 % {rng.choice([9, 90, 2000])}) / 4"
    if column.family in ("date", "datetime"):
        return f"DATE '1990-01-01' + INTERVAL seq * {rng.choice([1, 5])} % 4000 DAY"
    if column.text and column.length_max > 8:
        return f"CONCAT({column.literal(rng)}, seq * 7919 % {rng.choice([40, 5000])})"
    if column.family == "binary" and column.length_max >= 8:
        return f"UNHEX(LPAD(HEX(seq * {rng.choice([1, 40503, 65536])}), 8, '0'))"
    choices = " ".join(f"WHEN {i} THEN {column.literal(rng, 1.0)}" for i in range(5))
    return f"CASE seq % 6 {choices} ELSE {column.make(rng)} END"


def bulk(rng: Random, tables: list[Table]) -> str:
    """One statement that writes hundreds or thousands of rows, to fill many blocks."""
    table = rng.choice(tables)
    columns = [column for column in table.writable if not column.auto_increment]
    if _automatic(table):
        return insert(rng, tables)
    values = ", ".join(_from_sequence(rng, column) for column in columns)
    last = rng.choice([300, 1000, 4000])
    return (
        f"INSERT IGNORE INTO {{db}}.{table.name} ({_names(columns)}) "
        f"SELECT {values} FROM seq_1_to_{last} ORDER BY seq"
    )


CHANGES: list[tuple[int, Maker]] = [
    (40, insert), (8, upsert), (6, insert_select), (22, update), (10, delete), (4, multi_table),
]  # fmt: skip
