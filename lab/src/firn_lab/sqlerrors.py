"""Classifies driver errors for a load: repeat, count, or give up."""

from __future__ import annotations

from enum import Enum

import psycopg
import pymysql


class Meaning(Enum):
    """Reaction to an error.

    RETRY: the transaction lost a conflict. ERROR: the error is counted, the session continues.
    LOST: the connection has no server. FULL: the disk is full.
    """

    RETRY = "retry"
    ERROR = "error"
    LOST = "lost"
    FULL = "full"


# Errors after which a client retries the transaction: ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK,
# ER_CHECKREAD (the row changed after the snapshot).
_MYSQL_RETRY = {1205, 1213, 1020}
# Errors of a lost connection: connection refused (socket, TCP), server gone, connection lost (two
# codes), server shutdown, connection killed.
_MYSQL_LOST = {2002, 2003, 2006, 2013, 2055, 1053, 1927}
# Errors of a full disk: ER_DISK_FULL, ER_RECORD_FILE_FULL. `meaning` also recognizes errors with
# ENOSPC in their text.
_MYSQL_FULL = {1021, 1114}
_POSTGRESQL_RETRY = {"40001", "40P01", "55P03"}
_POSTGRESQL_FULL = {"53100"}


def meaning(error: BaseException) -> Meaning:
    """Classifies an error of PyMySQL or psycopg; any other exception is an ERROR."""
    text = str(error)
    if "No space left" in text or "errno: 28" in text or "Errcode: 28" in text:
        return Meaning.FULL
    if isinstance(error, pymysql.err.InterfaceError):
        return Meaning.LOST
    if isinstance(error, pymysql.MySQLError):
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if code in _MYSQL_RETRY:
            return Meaning.RETRY
        if code in _MYSQL_FULL:
            return Meaning.FULL
        return Meaning.LOST if code in _MYSQL_LOST else Meaning.ERROR
    if isinstance(error, psycopg.Error):
        if error.sqlstate in _POSTGRESQL_RETRY:
            return Meaning.RETRY
        if error.sqlstate in _POSTGRESQL_FULL:
            return Meaning.FULL
        state = error.sqlstate or ""
        lost = state.startswith(("08", "57P")) or (
            not state and isinstance(error, psycopg.OperationalError)
        )
        return Meaning.LOST if lost else Meaning.ERROR
    if isinstance(error, ConnectionError | EOFError):
        return Meaning.LOST
    return Meaning.ERROR
