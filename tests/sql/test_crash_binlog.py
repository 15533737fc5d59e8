"""With the binary log on, the log and the engine agree after a kill.

A replica would apply exactly the transactions that the tables hold, not one more or less.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import crash_workload
import pytest
from server import Server
from test_crash import (
    ALL_TESTED,
    BINLOG,
    COORDINATED,
    MIXED,
    SMALL,
    kill_under_load,
    new_clients,
    recover,
)

ROUNDS = 5

INSERT = re.compile(r"^### INSERT INTO `crash`\.`ledger`$")
VALUE = re.compile(r"^###   @(\d)=(\S+)")


def logged_transactions(files: list[Path]) -> list[tuple[int, int]]:
    """The transactions that the binary log has completely, as (client, number).

    Both come from the row that each transaction inserts into `ledger`.
    """
    command = ["mariadb-binlog", "--no-defaults", "--base64-output=DECODE-ROWS", "-v"]
    # The last event may be torn: mariadb-binlog prints everything before it, then reports an error.
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, errors="replace", check=False
    )
    complete: list[tuple[int, int]] = []
    pending: list[tuple[int, int]] = []
    values: dict[str, str] | None = None
    for line in done.stdout.splitlines():
        if INSERT.match(line):
            values = {}
        elif values is not None and (match := VALUE.match(line)):
            values[match[1]] = match[2]
            if len(values) == 2:
                pending.append((int(values["1"]), int(values["2"])))
                values = None
        elif line.startswith("COMMIT"):
            complete += pending
            pending = []
        elif line.startswith(("START TRANSACTION", "BEGIN", "ROLLBACK")):
            pending = []
    return complete


@pytest.mark.parametrize("engines", [ALL_TESTED, MIXED], ids=["alone", "with_innodb"])
def test_binary_log_and_engine_agree_after_a_kill(
    own_server: Callable[..., Server], seed: int, engines: dict[str, str]
) -> None:
    rng = Random(seed)
    server = own_server(*SMALL, *(BINLOG if engines == ALL_TESTED else COORDINATED))
    crash_workload.create(server, engines)
    clients = new_clients(rng)
    logged: list[tuple[int, int]] = []
    read: set[Path] = set()
    for number in range(ROUNDS):
        kill_under_load(server, clients, rng)
        recover(server, rng)
        crash_workload.verify(server, clients)
        # The server begins a new binary log file at each start; the earlier files are complete.
        files = [path for path in sorted(server.data.glob("bin.0*")) if path not in read]
        logged += logged_transactions(files)
        read |= set(files[:-1])
        there = set(crash_workload.rows(server, "SELECT client, seq FROM ledger"))
        assert len(logged) == len(set(logged)), "a transaction is in the log twice"
        assert set(logged) == there, (
            f"round {number}: only in the log {sorted(set(logged) - there)[:5]}, "
            f"only in the table {sorted(there - set(logged))[:5]}"
        )
    assert logged


def test_rollbacks_stay_out_of_the_binary_log(own_server: Callable[..., Server]) -> None:
    server = own_server(*BINLOG)
    crash_workload.create(server, ALL_TESTED)
    connection = server.connect(crash_workload.DATABASE, autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger VALUES (1, 1, 0, 'kept', 1)")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO ledger VALUES (1, 2, 0, 'taken back', 1)")
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        cursor.execute("INSERT INTO ledger VALUES (1, 3, 0, 'kept too', 1)")
        connection.commit()
        cursor.execute("INSERT INTO ledger VALUES (1, 4, 0, 'rolled back', 1)")
        connection.rollback()
        with pytest.raises(Exception, match="Duplicate"):
            cursor.execute("INSERT INTO ledger VALUES (1, 5, 0, 'e', 1), (1, 1, 0, 'f', 1)")
        cursor.execute("INSERT INTO ledger VALUES (1, 6, 0, 'after the error', 1)")
        connection.commit()
    connection.close()
    server.stop()
    files = sorted(server.data.glob("bin.0*"))
    assert logged_transactions(files) == [(1, 1), (1, 3), (1, 6)]


def test_a_lost_log_entry_is_found_out(own_server: Callable[..., Server]) -> None:
    """The checker detects a transaction that is in the table but not in the log."""
    server = own_server(*BINLOG)
    crash_workload.create(server, dict.fromkeys(crash_workload.TABLES, "InnoDB"))
    connection = server.connect(crash_workload.DATABASE)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger VALUES (1, 1, 0, 'logged', 1)")
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("INSERT INTO ledger VALUES (1, 2, 0, 'not logged', 1)")
    connection.close()
    server.stop()
    assert logged_transactions(sorted(server.data.glob("bin.0*"))) == [(1, 1)]
