"""Common parts of workloads with SQL of their own: a counting session, seeded text, dialects.

Statements use only syntax of both MariaDB and PostgreSQL; parameters are `%s`.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from firn_lab.errors import UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import Workload

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# Each of the 62 characters is the image of four or five of the 256 byte values.
_TO_LETTERS = bytes(_LETTERS[value % len(_LETTERS)] for value in range(256))


class SqlSession:
    """A connection that counts statements. Without autocommit, `commit` ends a transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.queries = 0

    def rows(self, statement: str, arguments: Any = None) -> list[Any]:
        """All rows of a statement; empty for a statement without a result."""
        self.queries += 1
        self._cursor.execute(statement, arguments)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def changed(self, statement: str, arguments: Any = None) -> int:
        """The number of rows that a statement changed or found."""
        self.queries += 1
        self._cursor.execute(statement, arguments)
        return int(self._cursor.rowcount)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


def text(random: Random, length: int) -> str:
    """Random letters and digits, which compress to about three quarters at best."""
    return random.randbytes(length).translate(_TO_LETTERS).decode()


def digest(data: bytes | str) -> str:
    """The MD5 as the servers' MD5() prints it; it detects errors and is no secret."""
    raw = data.encode() if isinstance(data, str) else data
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def money(cents: int) -> str:
    """An amount as SQL text; creating a Decimal is many times slower."""
    return f"{cents // 100}.{cents % 100:02d}"


def number_option(workload: Workload, key: str, low: float = 1, high: float = 2**31 - 1) -> float:
    """A numeric option within a range."""
    try:
        value = float(workload.option(key))
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UsageError(f"{workload.name}: {key} is a number from {low:g} to {high:g}")
    return value


def scaled_option(workload: Workload, key: str, least: int = 1) -> int:
    """An option that counts rows, multiplied by the scale."""
    return max(least, round(number_option(workload, key) * workload.params.scale))


def sized_option(workload: Workload, row_bytes: float) -> int:
    """The option `rows`, or as many rows as make `cache` times the target's cache; scaled."""
    if not workload.option("cache"):
        return scaled_option(workload, "rows")
    params = workload.params
    data_bytes = number_option(workload, "cache", 0.001, 1000) * params.memory_bytes
    return max(1, round(data_bytes / row_bytes * params.scale))


def date_type(target: Target) -> str:
    """The type of date and time. MariaDB's TIMESTAMP would update itself."""
    return "DATETIME" if target.dialect == "mysql" else "TIMESTAMP"


def by_index(target: Target, index: str) -> str:
    """A hint after the table's name that forces this index; PostgreSQL has no such hint."""
    return f" FORCE INDEX ({index})" if target.dialect == "mysql" else ""


def md5(target: Target, column: str) -> str:
    """The MD5 of a column as hexadecimal digits, comparable whatever the character set."""
    return f"CAST(MD5({column}) AS BINARY)" if target.dialect == "mysql" else f"MD5({column})"


def drop_table(target: Target, name: str) -> None:
    target.query(f"DROP TABLE IF EXISTS {name}")


def create_table(target: Target, name: str, columns: str, *indexes: str) -> None:
    """Creates a table. `columns`: the text between the parentheses. `indexes`: `NAME (column, …)`
    or `UNIQUE NAME (…)`."""
    target.query(f"CREATE TABLE {name} ({columns}){target.create_suffix()}")
    for index in indexes:
        unique = index.startswith("UNIQUE ")
        index_name, _, rest = index.removeprefix("UNIQUE ").partition(" ")
        target.query(f"CREATE {'UNIQUE ' if unique else ''}INDEX {index_name} ON {name} {rest}")
