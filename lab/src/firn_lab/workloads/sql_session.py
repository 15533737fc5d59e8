"""Common parts of workloads with SQL of their own: a counting session, seeded text, dialects.

Statements keep to what MariaDB and PostgreSQL both understand; parameters are `%s`.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from firn_lab.errors import UsageError
from firn_lab.targets.base import Target
from firn_lab.workloads.base import Workload

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# Of 256 values, each letter gets four or five.
_TO_LETTERS = bytes(_LETTERS[value % len(_LETTERS)] for value in range(256))


class SqlSession:
    """A connection whose statements are counted. `autocommit` off: `commit` ends a transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.queries = 0

    def rows(self, statement: str, arguments: Any = None) -> list[Any]:
        """All rows of a statement; none of one that has no result."""
        self.queries += 1
        self._cursor.execute(statement, arguments)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def changed(self, statement: str, arguments: Any = None) -> int:
        """How many rows a statement changed or found."""
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
    """Letters and digits, which no codec makes much smaller than three quarters."""
    return random.randbytes(length).translate(_TO_LETTERS).decode()


def digest(data: bytes | str) -> str:
    """As the servers' MD5() writes it: a sum against mistakes, no secret."""
    raw = data.encode() if isinstance(data, str) else data
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def money(cents: int) -> str:
    """As SQL reads it; a Decimal takes many times as long to make."""
    return f"{cents // 100}.{cents % 100:02d}"


def number_option(workload: Workload, key: str, low: float = 1, high: float = 2**31 - 1) -> float:
    """An option that is a number within a range."""
    try:
        value = float(workload.option(key))
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UsageError(f"{workload.name}: {key} is a number from {low:g} to {high:g}")
    return value


def scaled_option(workload: Workload, key: str, least: int = 1) -> int:
    """An option that counts rows, times the scale."""
    return max(least, round(number_option(workload, key) * workload.params.scale))


def date_type(target: Target) -> str:
    """A date with a time. MariaDB's TIMESTAMP would change by itself."""
    return "DATETIME" if target.dialect == "mysql" else "TIMESTAMP"


def by_index(target: Target, index: str) -> str:
    """Behind a table's name: this index and no other. PostgreSQL takes no such advice."""
    return f" FORCE INDEX ({index})" if target.dialect == "mysql" else ""


def md5(target: Target, column: str) -> str:
    """In hexadecimal digits, to be compared with a column whatever its character set."""
    return f"CAST(MD5({column}) AS BINARY)" if target.dialect == "mysql" else f"MD5({column})"


def drop_table(target: Target, name: str) -> None:
    target.query(f"DROP TABLE IF EXISTS {name}")


def create_table(target: Target, name: str, columns: str, *indexes: str) -> None:
    """`columns` as between the parentheses; indexes as `NAME (column, …)` or `UNIQUE NAME (…)`."""
    target.query(f"CREATE TABLE {name} ({columns}){target.create_suffix()}")
    for index in indexes:
        unique = index.startswith("UNIQUE ")
        index_name, _, rest = index.removeprefix("UNIQUE ").partition(" ")
        target.query(f"CREATE {'UNIQUE ' if unique else ''}INDEX {index_name} ON {name} {rest}")
