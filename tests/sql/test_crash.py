"""A killed server recovers every acknowledged commit, and no transaction partially."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from random import Random

import crash_workload
import pytest
from crash_workload import Broken, Client
from server import ENGINE, NO_PURGE, Server

CLIENTS = 8
ROUNDS = int(os.environ.get("FIRN_TEST_CRASH_ROUNDS", "20"))

# Sizes so small that the server flushes and compacts while the clients write.
SMALL = [
    "--loose-firn-memtable-size=1048576",
    "--loose-firn-wal-segment-size=4194304",
    "--loose-firn-lock-wait-timeout=5",
    "--innodb-lock-wait-timeout=5",
]
# Transactions over two engines are atomic only with the binary log. Without it the server keeps
# their outcomes in tc.log, but recovery in 10.11 rolls every prepared transaction back, whatever
# that file says: `ha_recover` uses its list only for the binary log. An engine cannot repair that.
BINLOG = ["--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]
COORDINATED = [*BINLOG, NO_PURGE]
ALL_TESTED = dict.fromkeys(crash_workload.TABLES, ENGINE)
MIXED = ALL_TESTED | {"live": "InnoDB", "account": "InnoDB"}


def new_clients(rng: Random) -> list[Client]:
    """Clients that have not written anything yet."""
    return [Client(number, Random(rng.randrange(2**30))) for number in range(CLIENTS)]


def kill_under_load(server: Server, clients: list[Client], rng: Random) -> None:
    """Lets the clients write for a random time, then kills the server."""
    kill = threading.Event()
    timer = threading.Timer(rng.uniform(0.1, 0.9), kill.set)
    timer.start()
    crash_workload.write_until(server, clients, kill)


def recover(server: Server, rng: Random) -> None:
    """Starts the server; one time in four, recovery itself is killed first."""
    if rng.random() < 0.25:
        server.launch()
        time.sleep(rng.uniform(0.05, 0.8))
        server.kill()
    server.start()


@pytest.mark.parametrize(
    ("engines", "rounds"), [(ALL_TESTED, ROUNDS), (MIXED, max(1, ROUNDS // 4))],
    ids=["alone", "with_innodb"],
)  # fmt: skip
def test_kill_under_load(
    own_server: Callable[..., Server], seed: int, engines: dict[str, str], rounds: int
) -> None:
    rng = Random(seed)
    server = own_server(*SMALL, *([] if engines == ALL_TESTED else COORDINATED))
    crash_workload.create(server, engines)
    clients = new_clients(rng)
    for number in range(rounds):
        before = sum(client.acknowledged for client in clients)
        kill_under_load(server, clients, rng)
        recover(server, rng)
        crash_workload.verify(server, clients)
        done = sum(client.acknowledged for client in clients) - before
        print(f"round {number}: {done} commits")
    assert any(client.acknowledged for client in clients), "nothing was committed at all"
    server.stop()


def test_restart_after_clean_shutdown_keeps_everything(own_server: Callable[..., Server]) -> None:
    rng = Random(7)
    server = own_server(*SMALL)
    crash_workload.create(server, ALL_TESTED)
    clients = new_clients(rng)
    kill_under_load(server, clients, rng)
    server.start()
    crash_workload.verify(server, clients)
    for _ in range(2):
        server.restart()
        crash_workload.verify(server, clients)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM part WHERE client = 3 ORDER BY id DESC LIMIT 1",
        "DELETE FROM ledger WHERE client = 2 ORDER BY seq DESC LIMIT 1",
        "UPDATE account SET balance = balance + 1 WHERE id = 7",
        "INSERT INTO live VALUES (1, 100000, '')",
        "INSERT INTO ledger VALUES (5, 100000, 0, 'no such', 1)",
    ],
)
def test_damage_is_found_out(server: Server, damage: str) -> None:
    """The checker of the crash tests detects lost, duplicated and partial transactions."""
    server.query(f"DROP DATABASE IF EXISTS {crash_workload.DATABASE}")
    crash_workload.create(server, dict.fromkeys(crash_workload.TABLES, "InnoDB"))
    clients = new_clients(Random(1))
    for client in clients:
        connection = server.connect(crash_workload.DATABASE, autocommit=False)
        for seq in range(1, 8):
            client._transaction(connection, seq)
        client.acknowledged = client.begun = 7
        connection.close()
    crash_workload.verify(server, clients)
    server.query(
        damage.replace("FROM ", "FROM crash.")
        .replace("INTO ", "INTO crash.")
        .replace("UPDATE ", "UPDATE crash.")
    )
    with pytest.raises(Broken):
        crash_workload.verify(server, clients)
    server.query(f"DROP DATABASE {crash_workload.DATABASE}")
