"""Random queries whose result is independent of the plan."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .changes import condition, join_condition, point, where
from .tables import Index, Table


@dataclass
class Query:
    """A statement with {db}; `ordered` if it also determines the order of its rows."""

    sql: str
    ordered: bool


def _columns(rng: Random, table: Table, index: Index | None) -> str:
    """Columns to select: all, one, or those that the index covers."""
    shape = rng.random()
    if index is not None and shape < 0.45:
        return ", ".join(dict.fromkeys(part.column.name for part in index.parts))
    if shape < 0.85:
        return "*"
    return rng.choice(table.columns).name


def _force(index: Index | None) -> str:
    return f" FORCE INDEX ({index.name})" if index is not None else ""


def _index(rng: Random, table: Table) -> Index | None:
    return rng.choice(table.indexes) if table.indexes and rng.random() < 0.75 else None


def _order(rng: Random, table: Table, index: Index | None) -> str:
    """A total order: the index's, forward or backward, completed by the primary key."""
    if index is None or table.primary is None:
        return table.total_order() if table.primary is None else _directed(rng, table.primary)
    backward = rng.random() < 0.5
    parts = [p for p in index.parts if not p.prefix]
    seen = {p.column.name for p in parts}
    if len(parts) < len(index.parts):
        parts, seen = parts[:0], set()
    parts = parts + [p for p in table.primary.parts if p.column.name not in seen]
    return ", ".join(f"{p.column.name}{' DESC' * (p.descending != backward)}" for p in parts)


def _directed(rng: Random, index: Index) -> str:
    backward = rng.random() < 0.5
    parts = index.parts
    return ", ".join(f"{p.column.name}{' DESC' * (p.descending != backward)}" for p in parts)


def _index_where(rng: Random, index: Index, prefix: str = "") -> str:
    """Equality on the first parts and any predicate on the next: a range of the index."""
    count = rng.randrange(1, len(index.parts) + 1)
    terms = [
        f"{prefix}{part.column.name} = {part.column.literal(rng)}"
        for part in index.parts[: count - 1]
        if not part.column.opaque
    ]
    return " AND ".join([*terms, condition(rng, index.parts[count - 1].column, prefix)])


def select(rng: Random, table: Table) -> Query:
    """SELECT over a point, a range or everything, by any index, in either direction."""
    index = _index(rng, table)
    one = point(rng, table)
    if one is not None and rng.random() < 0.2:
        return Query(f"SELECT * FROM {{db}}.{table.name} WHERE {one}", False)
    filter_by = _index_where(rng, index) if index and rng.random() < 0.6 else where(rng, table)
    tail = f" WHERE {filter_by}" if rng.random() < 0.8 else ""
    columns = _columns(rng, table, index)
    body = f"SELECT {columns} FROM {{db}}.{table.name}{_force(index)}{tail}"
    if rng.random() < 0.6:
        limit = rng.choice(["", " LIMIT 1", " LIMIT 3", " LIMIT 2, 5", " LIMIT 20"])
        return Query(f"{body} ORDER BY {_order(rng, table, index)}{limit}", True)
    return Query(body, False)


def locking_select(rng: Random, table: Table) -> Query:
    """SELECT … FOR UPDATE or LOCK IN SHARE MODE."""
    query = select(rng, table)
    return Query(query.sql + rng.choice([" FOR UPDATE", " LOCK IN SHARE MODE"]), query.ordered)


def aggregate(rng: Random, table: Table) -> Query:
    """COUNT, MIN, MAX and SUM where they are exact, grouped or not."""
    index = _index(rng, table)
    measures = ["COUNT(*)"]
    for column in rng.sample(table.columns, min(3, len(table.columns))):
        if column.family == "point":
            continue
        measures.append(f"COUNT(DISTINCT {column.name})")
        if column.sortable:
            measures.append(f"MIN({column.name})")
            measures.append(f"MAX({column.name})")
        if column.numeric:
            measures.append(f"SUM({column.name})")
    filter_by = f" WHERE {where(rng, table)}" if rng.random() < 0.6 else ""
    chosen = rng.sample(measures, min(3, len(measures)))
    body = f"SELECT {', '.join(chosen)} FROM {{db}}.{table.name}{_force(index)}{filter_by}"
    groups = [column for column in table.columns if column.family != "point"]
    if rng.random() < 0.5 and groups:
        leading = index.parts[0].column if index is not None else None
        group = leading if leading in groups and rng.random() < 0.6 else rng.choice(groups)
        body += f" GROUP BY {group.name}"
    return Query(body, False)


def join(rng: Random, left: Table, right: Table) -> Query | None:
    """Inner, left or semi join on columns of one family."""
    on = join_condition(rng, left, right)
    if on is None:
        return None
    shape = rng.random()
    limit = where(rng, left, "l.")
    if shape < 0.3:
        inner, outer = on.split(" = ")[1].removeprefix("r."), on.split(" = ")[0]
        kind = rng.choice(["IN", "NOT IN"])
        sub = f"SELECT {inner} FROM {{db}}.{right.name} WHERE {inner} IS NOT NULL"
        return Query(
            f"SELECT l.* FROM {{db}}.{left.name} l WHERE {outer} {kind} ({sub}) AND {limit}", False
        )
    word = rng.choice(["JOIN", "LEFT JOIN"])
    sources = f"{{db}}.{left.name} l {word} {{db}}.{right.name} r ON {on}"
    if shape < 0.6:
        return Query(f"SELECT COUNT(*) FROM {sources} WHERE {limit}", False)
    return Query(f"SELECT * FROM {sources} WHERE {limit}", False)


def query(rng: Random, tables: list[Table]) -> Query:
    """A query of any kind above."""
    table = rng.choice(tables)
    shape = rng.random()
    if shape < 0.2:
        return aggregate(rng, table)
    if shape < 0.35:
        joined = join(rng, *rng.sample(tables, 2)) if len(tables) > 1 else None
        if joined is not None:
            return joined
    if shape < 0.45:
        return locking_select(rng, table)
    return select(rng, table)


def whole(table: Table) -> list[Query]:
    """Reads the whole table by a scan and by every index, which detects a corrupt index."""
    result = [Query(f"SELECT * FROM {{db}}.{table.name}", False)]
    for index in table.indexes:
        names = ", ".join(dict.fromkeys(part.column.name for part in index.parts))
        force = f"FROM {{db}}.{table.name} FORCE INDEX ({index.name})"
        order = ", ".join(f"{p.column.name}{' DESC' * p.descending}" for p in index.parts)
        result.append(Query(f"SELECT * {force} ORDER BY {order}", False))
        result.append(Query(f"SELECT {names} {force}", False))
        result.append(Query(f"SELECT COUNT(*) {force}", False))
    return result
