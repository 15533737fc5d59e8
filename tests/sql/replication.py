"""A primary and its replica, with GTIDs, and the comparison of what they hold.

Both are private servers that speak TCP on the loopback interface only. The replica keeps its
position in a table of the engine under test, so that a kill cannot separate the position from the
rows. It starts to replicate by itself, as after a machine's restart: nothing here repairs anything.

    pair = Pair(own_server, primary=["--binlog-format=ROW"], replica=parallel("optimistic"))
    ... statements on pair.primary ...
    pair.expect_equal("crash")
    pair.destroy()
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pymysql.cursors
from server import ENGINE, IS_FIRN, NO_PURGE, Server, free_port

WORKERS = 4
# Longer than the lock timeout and one more try.
CATCH_UP_SECONDS_MAX = 180
USER = "replica"

COMMON = [
    "--log-bin=bin",
    "--sync-binlog=1",
    "--log-slave-updates",
    "--gtid-strict-mode=1",
    "--skip-networking=0",
    "--bind-address=127.0.0.1",
    NO_PURGE,
    # Longer than the tests wait for a state in which an applier waits for a lock.
    "--loose-firn-lock-wait-timeout=90",
    "--innodb-lock-wait-timeout=90",
    # Makes transactions commit in groups, which a conservative replica applies in parallel.
    "--binlog-commit-wait-count=4",
    "--binlog-commit-wait-usec=2000",
]
REPLICA = [
    f"--gtid-pos-auto-engines={ENGINE}",
    "--relay-log=relay",
    # A kill between the removal of a relay log and the note of it would stop the replica.
    "--relay-log-recovery=1",
    "--slave-net-timeout=10",
    # A conflict is retried; only a statement that can never succeed stops the replica.
    "--slave-transaction-retries=100",
]


class Diverged(AssertionError):
    """The replica does not hold what the primary holds, or does not replicate."""


def parallel(mode: str, workers: int = WORKERS) -> list[str]:
    """The options of a replica that applies transactions in parallel."""
    return [f"--slave-parallel-threads={workers}", f"--slave-parallel-mode={mode}"]


class Pair:
    """Two servers, `replica` of which replicates from `primary`."""

    def __init__(
        self,
        own_server: Callable[..., Server],
        primary: list[str] | None = None,
        replica: list[str] | None = None,
    ) -> None:
        self.port = free_port()
        self.primary = own_server(*COMMON, "--server-id=1", f"--port={self.port}", *(primary or []))
        self.replica = own_server(
            *COMMON, *REPLICA, "--server-id=2", f"--port={free_port()}", *(replica or [])
        )
        for server in (self.primary, self.replica):
            # Each server creates the account itself, without writing that to its binary log.
            execute(
                server,
                "SET sql_log_bin = 0",
                f"CREATE USER {USER}@'127.0.0.1'",
                f"GRANT REPLICATION SLAVE ON *.* TO {USER}@'127.0.0.1'",
            )
        follow(self.replica, self.port)

    def position(self) -> str:
        """The last GTID in the primary's binary log."""
        return str(self.primary.query("SELECT @@gtid_binlog_pos")[0][0])

    def catch_up(self) -> None:
        """Waits until the replica has applied everything. Raises Diverged if it stops or stalls."""
        catch_up(self.replica, self.position())

    def expect_equal(self, *databases: str) -> None:
        """Raises Diverged unless the replica catches up and holds the primary's rows."""
        self.catch_up()
        compare(self.primary, self.replica, *databases)

    def retries(self) -> int:
        """Transactions that the replica has rolled back and applied again since its start."""
        return int(self.replica.query("SHOW STATUS LIKE 'Slave_retried_transactions'")[0][1])


def execute(server: Server, *statements: str) -> None:
    """Runs statements in one session."""
    with contextlib.closing(server.connect("mysql")) as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def follow(replica: Server, port: int, position: str = "slave_pos") -> None:
    """Makes a server the replica of another one."""
    execute(
        replica,
        f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, "
        f"MASTER_USER = '{USER}', MASTER_USE_GTID = {position}, MASTER_CONNECT_RETRY = 1",
        "START SLAVE",
    )


def slave_status(replica: Server) -> dict[str, Any]:
    """SHOW SLAVE STATUS by column name."""
    session = replica.connect(cursorclass=pymysql.cursors.DictCursor)
    with contextlib.closing(session), session.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        return dict(cursor.fetchone() or {})


def catch_up(replica: Server, position: str) -> None:
    """Waits until the replica has applied all up to `position`.

    Raises Diverged if one of its threads ends with an error, or if it takes too long.
    """
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while True:
        done = replica.query("SELECT MASTER_GTID_WAIT(%s, 0.5)", (position,))[0][0]
        status = slave_status(replica)
        # The receiving thread may find the primary gone for a moment; it tries again by itself.
        if status.get("Last_SQL_Errno") or status.get("Slave_SQL_Running") != "Yes":
            raise Diverged(f"the replica stopped: {_summary(status)}\n{replica.log_tail(20)}")
        if done == 0:
            return
        if status.get("Slave_IO_Running") == "No":
            raise Diverged(f"the replica receives nothing: {_summary(status)}")
        if time.monotonic() > deadline:
            threads = replica.query("SHOW FULL PROCESSLIST")
            raise Diverged(f"the replica stalls before {position}: {_summary(status)}\n{threads}")


def _summary(status: dict[str, Any]) -> dict[str, Any]:
    names = ("Slave_IO_Running", "Slave_SQL_Running", "Last_IO_Error", "Last_SQL_Error")
    return {name: status.get(name) for name in (*names, "Gtid_Slave_Pos")}


def tables(server: Server, database: str) -> list[str]:
    """Names of the base tables of a database."""
    found = server.query(
        "SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = %s AND table_type = 'BASE TABLE' ORDER BY 1",
        (database,),
    )
    return [str(name) for (name,) in found]


def compare(primary: Server, replica: Server, *databases: str) -> None:
    """Raises Diverged unless both hold the same tables, rows, checksums and positions."""
    for database in databases:
        names = tables(primary, database)
        if names != tables(replica, database):
            raise Diverged(f"{database}: tables {names} and {tables(replica, database)}")
        for name in names:
            _compare_table(primary, replica, f"`{database}`.`{name}`")
    if replica.query("SELECT @@log_bin")[0][0]:
        name = "@@gtid_binlog_pos, @@gtid_binlog_state"
    else:
        name = "@@gtid_current_pos"
    there, here = (server.query(f"SELECT {name}")[0] for server in (primary, replica))
    if there != here:
        raise Diverged(f"the positions are {there} and {here}")


def _compare_table(primary: Server, replica: Server, table: str) -> None:
    # Rows first: they say more than a checksum.
    servers = (primary, replica)
    expected, found = (sorted(s.query(f"SELECT * FROM {table}"), key=repr) for s in servers)
    if expected != found:
        missing = [row for row in expected if row not in set(found)][:3]
        surplus = [row for row in found if row not in set(expected)][:3]
        raise Diverged(f"{table}: the replica lacks {missing} and has {surplus}")
    sums = [s.query(f"CHECKSUM TABLE {table}")[0][1] for s in servers]
    if sums[0] is None or sums[0] != sums[1]:
        raise Diverged(f"{table}: the checksums are {sums}")
    for server in servers:
        status = server.query(f"CHECK TABLE {table} EXTENDED")
        # InnoDB warns of entries that its purge has not removed; see crash_workload.py.
        if status[-1][3] != "OK" and IS_FIRN:
            raise Diverged(f"{table}: {status}")
