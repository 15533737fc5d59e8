"""Runs statements on InnoDB and on the engine, each in a database of its own, and compares them.

Unlike `differential.pair`, it compares the texts of errors and warnings too: those of foreign keys
name tables and constraints, and clients read them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import pymysql
from server import ENGINE, Server

ENGINES = ("InnoDB", ENGINE)
Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Result:
    """The result of a statement, without names of engines, databases and copies."""

    error: int
    message: str
    affected: int
    rows: Rows
    warnings: Rows

    def without_keys(self) -> Result:
        """The same without the foreign keys that errors name."""

        def plain(text: Any) -> Any:
            return re.sub(r" fails \(.*", " fails", text) if isinstance(text, str) else text

        warnings = tuple(tuple(plain(value) for value in row) for row in self.warnings)
        return dataclasses.replace(self, message=plain(self.message), warnings=warnings)

    def without_purge(self) -> Result:
        """The same without InnoDB's warnings of entries that its purge has not removed yet."""
        unpurged = "Clustered index record not found"
        rows = tuple(row for row in self.rows if unpurged not in str(row[3]))
        affected = self.affected - len(self.rows) + len(rows)
        return dataclasses.replace(self, affected=affected, rows=rows)


def _plain(value: Any, database: str) -> Any:
    if not isinstance(value, str):
        return value
    text = value.replace(database, "db")
    text = re.sub(r"#sql-alter-[0-9a-f]+-[0-9a-f]+", "#sql-alter", text)
    # InnoDB has no name yet for some of the foreign keys that it refuses.
    text = re.sub(r"FOREIGN KEY constraint '[^']*'", "FOREIGN KEY constraint", text)
    return re.sub(r"\b(InnoDB|FIRN)\b", "ENGINE", text)


class KeyPair:
    """One database for each engine, and sessions that exist in both."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.databases = tuple(f"{name}_{engine.lower()}" for engine in ENGINES)
        self.sessions: dict[str, list[pymysql.Connection[Any]]] = {}
        # The statements so far, for the report of a failure.
        self.log: list[str] = []
        for database in self.databases:
            server.query(f"DROP DATABASE IF EXISTS {database}")
            server.query(f"CREATE DATABASE {database}")

    def connect(self, name: str) -> list[pymysql.Connection[Any]]:
        """The sessions called `name`, one for each engine."""
        if name not in self.sessions:
            pair = []
            for engine, database in zip(ENGINES, self.databases, strict=True):
                session = self.server.connect(database)
                with session.cursor() as cursor:
                    cursor.execute(f"SET default_storage_engine={engine}")
                    cursor.execute("SET sql_mode='STRICT_ALL_TABLES'")
                pair.append(session)
            self.sessions[name] = pair
        return self.sessions[name]

    def _one(self, connection: pymysql.Connection[Any], database: str, sql: str) -> Result:
        with connection.cursor() as cursor:
            error, message, affected, rows = 0, "", 0, ()
            try:
                affected = cursor.execute(sql.replace("{db}", database))
                rows = tuple(cursor.fetchall())
            except pymysql.err.MySQLError as caught:
                error, message = int(caught.args[0] or 0), str(caught.args[-1])
                if error == 0 or 2000 <= error < 2100:  # the connection is gone
                    raise
            cursor.execute("SHOW WARNINGS")
            warnings = tuple(row[:3] for row in cursor.fetchall())
        plain = tuple(tuple(_plain(value, database) for value in row) for row in rows)
        told = tuple(tuple(_plain(value, database) for value in row) for row in warnings)
        return Result(error, _plain(message, database), affected, plain, told)

    def results(self, sql: str, session: str = "a") -> tuple[Result, Result]:
        """Runs a statement on both."""
        pairs = zip(self.connect(session), self.databases, strict=True)
        first, second = (self._one(connection, database, sql) for connection, database in pairs)
        return first, second

    def run(self, sql: str, session: str = "a", any_key: bool = False) -> Result:
        """Runs a statement on both. Raises AssertionError if the results differ.

        With `any_key`, a row that breaks several foreign keys may be refused for any of them:
        InnoDB checks them in the order in which indexes were created.
        """
        reference, tested = self.results(sql, session)
        if sql.startswith("CHECK TABLE"):
            reference = reference.without_purge()
        if any_key:
            reference, tested = reference.without_keys(), tested.without_keys()
        self.log.append(f"{session}: {sql}  # {reference.error or reference.affected}")
        assert tested == reference, f"{sql}\n  InnoDB: {reference}\n  {ENGINE}: {tested}"
        return reference

    def close(self, drop: bool = True) -> None:
        """Closes the sessions and removes the databases."""
        for pair in self.sessions.values():
            for session in pair:
                with contextlib.suppress(pymysql.err.MySQLError):
                    session.close()
        self.sessions.clear()
        for database in self.databases if drop else ():
            self._drop(database)

    def _drop(self, database: str) -> None:
        session = self.server.connect("mysql")
        with session.cursor() as cursor:
            cursor.execute("SET foreign_key_checks=0")
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        session.close()
