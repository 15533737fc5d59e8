"""Runs one statement on both engines and compares the results that a client sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants.ER import DUP_ENTRY, TRUNCATED_WRONG_VALUE
from server import ENGINE, IS_FIRN, Server

REFERENCE, TESTED = "ref", "dut"
INDEX_CORRUPT = 1712

# Different errors for the same refusal: a NULL that is not allowed, found by a copy (1265, 1048) or
# by the engine (1138).
SAME_ERROR = {1138: 1138, 1265: 1138, 1048: 1138}


@dataclass(frozen=True)
class Outcome:
    """The result of a statement, as the client sees it."""

    error: int
    affected: int
    rows: tuple[tuple[Any, ...], ...]
    warnings: tuple[int, ...]
    message: str = ""


class Mismatch(Exception):
    """The engines' results differ."""


def execute(connection: pymysql.Connection[Any], sql: str, warnings: bool = True) -> Outcome:
    """Runs a statement; errors are part of the outcome. Raises if the server is gone."""
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(sql)
            rows = tuple(cursor.fetchall())
            error, message = 0, ""
        except pymysql.err.MySQLError as caught:
            error, message = int(caught.args[0] or 0), str(caught.args[-1])
            if error == 0 or 2000 <= error < 2100:  # the connection is gone
                raise
            affected, rows = 0, ()
        codes: tuple[int, ...] = ()
        if warnings and not error:
            cursor.execute("SHOW WARNINGS")
            codes = tuple(sorted(int(row[1]) for row in cursor.fetchall()))
    return Outcome(SAME_ERROR.get(error, error), affected, rows, codes, message)


class Pair:
    """Two databases in one server: one with InnoDB tables, one with the tested engine's.

    With `one_session` a single session uses both, so that transactions span both engines; otherwise
    each has its own. A statement is text with {db} for the database's name. In CREATE TABLE the
    engine replaces {engine}, or is appended. Steps: `reset` creates databases and sessions, `run`
    executes and compares, `replay` does so for a whole log.
    """

    def __init__(
        self, server: Server, engines: tuple[str, str] = ("InnoDB", ENGINE), prefix: str = ""
    ) -> None:
        self.server = server
        self.engines = engines
        self.names = (prefix + REFERENCE, prefix + TESTED)
        self.sessions: list[pymysql.Connection[Any]] = []

    def reset(self, settings: list[str], one_session: bool) -> None:
        """Fresh databases and sessions, with these SET statements applied."""
        self.close()
        administrator = self._session()
        for name in self.names:
            for sql in (f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}"):
                with administrator.cursor() as cursor:
                    cursor.execute(sql)
        administrator.close()
        self.open_sessions(settings, one_session)

    def open_sessions(self, settings: list[str], one_session: bool) -> None:
        """Opens new sessions on the existing databases."""
        first = self._session()
        self.sessions = [first, first if one_session else self._session()]
        for session in dict.fromkeys(self.sessions):
            for sql in settings:
                execute(session, sql)

    def _session(self) -> pymysql.Connection[Any]:
        # Values as stored, in bytes: neither the server nor the driver converts them.
        connection = self.server.connect(conv={}, use_unicode=False, charset="utf8mb4")
        with connection.cursor() as cursor:
            cursor.execute("SET character_set_results = NULL")
        return connection

    def close(self) -> None:
        """Closes the sessions."""
        for session in dict.fromkeys(self.sessions):
            if session.open:
                session.close()
        self.sessions = []

    def run(self, sql: str, kind: str) -> Outcome:
        """Executes a statement on both and compares.

        `kind`: 'change' compares error, affected rows and warnings. 'ordered' and 'rows' compare a
        result as a list or as a multiset. 'ddl' compares only the error. 'session' runs once per
        session and compares the error. 'check' requires that CHECK TABLE reports OK on both.
        Raises Mismatch. Returns the reference's outcome.
        """
        if kind == "session":
            outcomes = [execute(session, sql, False) for session in dict.fromkeys(self.sessions)]
            reference, tested = outcomes[0], outcomes[-1]
        else:
            reference, tested = (
                execute(session, self.text(sql, which), kind == "change")
                for which, session in enumerate(self.sessions)
            )
        problem = compare(reference, tested, kind)
        if problem:
            raise Mismatch(f"{problem}\n  statement: {sql}")
        return reference

    def text(self, sql: str, which: int) -> str:
        """The statement for the reference (0) or the tested engine (1)."""
        text = sql.replace("{db}", self.names[which])
        if "{engine}" in text:
            return text.replace("{engine}", self.engines[which])
        if text.startswith("CREATE TABLE") and " LIKE " not in text:
            text += f" ENGINE={self.engines[which]}"
        return text

    def replay(self, log: list[tuple[str, str]], settings: list[str], one_session: bool) -> str:
        """Runs a log on fresh databases; returns the first mismatch, or ''."""
        self.reset(settings, one_session)
        for sql, kind in log:
            try:
                self.run(sql, kind)
            except Mismatch as mismatch:
                return str(mismatch)
        return ""


def compare(reference: Outcome, tested: Outcome, kind: str) -> str:
    """The difference of two outcomes, or ''."""
    # A copying ALTER fails at the first row that does not fit the new definition. InnoDB buffers
    # rows and detects duplicates last, so if a table has both errors it may report the other one.
    either = {reference.error, tested.error} == {DUP_ENTRY, TRUNCATED_WRONG_VALUE}
    if kind == "ddl" and either:
        return ""
    # InnoDB may find an index over virtual columns wrong after a restart, before its purge is done.
    if reference.error == INDEX_CORRUPT and not tested.error:
        return ""
    if reference.error != tested.error:
        return (
            f"error {reference.error} {reference.message!r} "
            f"against {tested.error} {tested.message!r}"
        )
    if kind in ("ordered", "rows"):
        return _compare_rows(reference.rows, tested.rows, kind == "ordered")
    if kind == "change":
        if reference.affected != tested.affected:
            return f"{reference.affected} rows affected against {tested.affected}"
        if reference.warnings != tested.warnings:
            return f"warnings {reference.warnings} against {tested.warnings}"
    if kind == "check":
        # InnoDB also warns of entries that its purge has not removed yet.
        rows = tested.rows if IS_FIRN else tested.rows[-1:]
        bad = [row for row in rows if row[3] not in (b"OK", "OK")]
        if bad:
            return f"CHECK TABLE says {bad}"
    return ""


def _compare_rows(reference: tuple[Any, ...], tested: tuple[Any, ...], ordered: bool) -> str:
    missing = Counter(reference) - Counter(tested)
    extra = Counter(tested) - Counter(reference)
    if missing or extra:
        return (
            f"{len(reference)} rows against {len(tested)}; "
            f"missing {_some(missing)}, not expected {_some(extra)}"
        )
    if ordered and reference != tested:
        at = next(i for i, (a, b) in enumerate(zip(reference, tested, strict=True)) if a != b)
        return f"order differs at row {at}: {_some([reference[at]])} against {_some([tested[at]])}"
    return ""


def _some(rows: Any) -> str:
    text = repr(list(rows)[:3])
    return text if len(text) < 600 else text[:600] + "…"
