"""A replica holds what its primary holds, in every format and mode, also after kills of either.

The workload is that of the crash tests: clients that know what they have committed. So each
comparison of the two servers is also one with what the clients were told.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import crash_workload
import pymysql
import pytest
from crash_workload import Client
from replication import Diverged, Pair, catch_up, compare, execute, follow, parallel, slave_status
from server import ENGINE, IS_FIRN, Server

ROUNDS = int(os.environ.get("FIRN_TEST_REPLICATION_ROUNDS", "2"))
CLIENTS = 6
DATABASE = crash_workload.DATABASE
ALL_TESTED = dict.fromkeys(crash_workload.TABLES, ENGINE)
MIXED = ALL_TESTED | {"live": "InnoDB", "account": "InnoDB"}
SMALL = ["--loose-firn-memtable-size=1048576", "--loose-firn-wal-segment-size=4194304"]


def new_clients(rng: Random) -> list[Client]:
    """Writers that have written nothing yet."""
    return [Client(number, Random(rng.randrange(2**30))) for number in range(CLIENTS)]


@contextlib.contextmanager
def writing(server: Server, clients: list[Client]) -> Iterator[None]:
    """Context in which clients write to the server. They end with it, or when the server dies."""
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(server, stop)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def write(pair: Pair, clients: list[Client], seconds: float) -> None:
    """Writes for a while, then compares the servers with each other and with the clients.

    Each client commits at least once.
    """
    with writing(pair.primary, clients):
        time.sleep(seconds)
        deadline = time.monotonic() + 60
        while not all(client.acknowledged for client in clients):
            assert time.monotonic() < deadline, [client.acknowledged for client in clients]
            time.sleep(0.05)
    judge(pair, clients)


def judge(pair: Pair, clients: list[Client]) -> None:
    """Fails unless both servers hold what the clients have committed."""
    crash_workload.verify(pair.primary, clients)
    pair.expect_equal(DATABASE)
    crash_workload.verify(pair.replica, clients)


def engine_of(server: Server, table: str) -> str:
    """The engine of a table in the database `mysql`; empty if there is none."""
    rows = server.query(
        "SELECT engine FROM information_schema.tables "
        "WHERE table_schema = 'mysql' AND table_name = %s",
        (table,),
    )
    return str(rows[0][0]) if rows else ""


@pytest.mark.parametrize("mode", ["conservative", "optimistic"])
@pytest.mark.parametrize("binlog_format", ["ROW", "MIXED", "STATEMENT"])
def test_formats_and_modes(
    own_server: Callable[..., Server], seed: int, binlog_format: str, mode: str
) -> None:
    pair = Pair(own_server, [f"--binlog-format={binlog_format}"], parallel(mode))
    crash_workload.create(pair.primary, ALL_TESTED)
    clients = new_clients(Random(seed))
    write(pair, clients, 1.0)
    # The position is a row of the engine's own transaction.
    table = f"gtid_slave_pos_{ENGINE}"
    assert engine_of(pair.replica, table).upper() == ENGINE.upper()
    rows = pair.replica.query(f"SELECT domain_id, MAX(seq_no), COUNT(*) FROM mysql.{table}")
    domain, server_id, seq_no = pair.position().split("-")
    assert rows[0][:2] == (int(domain), int(seq_no)), (rows, server_id)


def test_replica_without_a_binary_log(own_server: Callable[..., Server], seed: int) -> None:
    """The engine alone commits the rows and the position, in the order of the primary."""
    rng = Random(seed)
    bare = ["--skip-log-bin", "--skip-log-slave-updates"]
    pair = Pair(own_server, ["--binlog-format=ROW"], [*SMALL, *bare, *parallel("optimistic")])
    crash_workload.create(pair.primary, ALL_TESTED)
    clients = new_clients(rng)
    for _ in range(2):
        with writing(pair.primary, clients):
            time.sleep(rng.uniform(0.3, 0.7))
            pair.replica.kill()
            restart(pair.replica, rng)
        judge(pair, clients)


def test_two_engines_in_a_transaction(own_server: Callable[..., Server], seed: int) -> None:
    pair = Pair(own_server, ["--binlog-format=ROW"], parallel("optimistic"))
    crash_workload.create(pair.primary, MIXED)
    write(pair, new_clients(Random(seed)), 1.0)


def test_old_positions_are_removed(own_server: Callable[..., Server]) -> None:
    """Each transaction adds a row to the table of positions; a batch of old ones goes with it."""
    pair = Pair(own_server, ["--binlog-format=ROW"], ["--gtid-cleanup-batch-size=10"])
    execute(
        pair.primary, "CREATE DATABASE r", f"CREATE TABLE r.t (id INT PRIMARY KEY) ENGINE={ENGINE}"
    )
    with contextlib.closing(pair.primary.connect("r")) as session, session.cursor() as cursor:
        for number in range(200):
            cursor.execute("INSERT INTO t VALUES (%s)", (number,))
    pair.expect_equal("r")
    table = f"mysql.gtid_slave_pos_{ENGINE}"
    deadline = time.monotonic() + 60
    while (left := pair.replica.query(f"SELECT COUNT(*) FROM {table}")[0][0]) > 30:
        assert time.monotonic() < deadline, f"{left} rows are left"
        time.sleep(0.1)


@pytest.mark.parametrize("binlog_format", ["STATEMENT", "MIXED"])
def test_generated_keys_are_logged_as_statements(
    own_server: Callable[..., Server], binlog_format: str
) -> None:
    """As with InnoDB: statements that know how many keys they want are safe, without a warning."""
    pair = Pair(own_server, [f"--binlog-format={binlog_format}"])
    execute(
        pair.primary,
        "CREATE DATABASE r",
        "USE r",
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={ENGINE}",
        f"CREATE TABLE u (v INT, id INT) ENGINE={ENGINE}",
        "INSERT INTO t (v) VALUES (1), (2), (3)",
        "REPLACE INTO t (v) VALUES (4), (5)",
        "INSERT INTO u VALUES (1, LAST_INSERT_ID())",
        "INSERT INTO t VALUES (50, 6), (NULL, 7)",
        "SET sql_auto_is_null = 1",
        "INSERT INTO t (v) VALUES (8)",
        "INSERT INTO u SELECT 2, id FROM t WHERE id IS NULL",
        "UPDATE t SET v = v + 1 WHERE id > 2",
        "DELETE FROM t WHERE id = 1",
        "OPTIMIZE TABLE t",
    )
    pair.expect_equal("r")
    assert [v for v, _ in pair.replica.query("SELECT * FROM r.u ORDER BY v")] == [1, 2]
    assert "Unsafe statement" not in pair.primary.log()
    events = pair.primary.query("SHOW BINLOG EVENTS IN 'bin.000001'")
    rows = [event for event in events if event[2].startswith("Write_rows")]
    assert not rows, rows
    # A SELECT of unknown length takes its keys in several pieces.
    execute(pair.primary, "USE r", "INSERT INTO t (v) SELECT v FROM t")
    pair.expect_equal("r")


def test_semi_synchronous_failover(own_server: Callable[..., Server], seed: int) -> None:
    """Commits that clients were told of are on the replica when the primary dies. The old primary
    then follows the new one, and forgets by itself the commits that it had not yet sent."""
    rng = Random(seed)
    semi = ["--rpl-semi-sync-slave-enabled=1", "--rpl-semi-sync-master-timeout=60000"]
    semi += ["--rpl-semi-sync-master-wait-point=AFTER_SYNC"]
    enabled = "--rpl-semi-sync-master-enabled=1"
    pair = Pair(own_server, [*semi, enabled], [*semi, *parallel("optimistic")])
    wait_for_status(pair.primary, "Rpl_semi_sync_master_clients", "1")
    crash_workload.create(pair.primary, ALL_TESTED)
    clients = new_clients(rng)
    with writing(pair.primary, clients):
        time.sleep(rng.uniform(0.5, 1.0))
        counts = dict(pair.primary.query("SHOW STATUS LIKE 'Rpl_semi_sync_master_%%_tx'"))
        pair.primary.kill()
    assert int(counts["Rpl_semi_sync_master_yes_tx"]) > 0
    assert int(counts["Rpl_semi_sync_master_no_tx"]) == 0
    # Everything that was sent is applied before the replica becomes the primary. A transaction that
    # was sent by half does not count.
    catch_up(pair.replica, slave_status(pair.replica)["Gtid_IO_Pos"])
    execute(
        pair.replica,
        "STOP SLAVE",
        "RESET SLAVE ALL",
        "SET GLOBAL rpl_semi_sync_master_enabled = 1",
    )
    crash_workload.verify(pair.replica, clients)
    old = pair.primary
    old.start(["--init-rpl-role=SLAVE", "--rpl-semi-sync-master-enabled=0"])
    pair.primary, pair.replica = pair.replica, old
    follow(old, int(pair.primary.query("SELECT @@port")[0][0]))
    wait_for_status(pair.primary, "Rpl_semi_sync_master_clients", "1")
    write(pair, clients, 0.5)


def wait_for_status(server: Server, name: str, value: str) -> None:
    """Waits until a status variable has a value."""
    deadline = time.monotonic() + 60
    while (found := server.query(f"SHOW STATUS LIKE '{name}'")[0][1]) != value:
        assert time.monotonic() < deadline, f"{name} is {found}"
        time.sleep(0.02)


class Delayed:
    """Transactions that a replica begins to apply while local sessions hold some of its rows.

    So a test decides which of two transactions comes first, as a busy replica does by chance.
    """

    def __init__(self, own_server: Callable[..., Server], mode: str) -> None:
        self.pair = Pair(own_server, ["--binlog-format=STATEMENT"], parallel(mode))
        execute(
            self.pair.primary,
            "CREATE DATABASE r",
            "USE r",
            f"CREATE TABLE hold (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}",
            "INSERT INTO hold VALUES (1, 0), (2, 0)",
            f"CREATE TABLE t (a INT PRIMARY KEY, b INT, KEY b (b)) ENGINE={ENGINE}",
            "INSERT INTO t VALUES (1, NULL), (2, 2), (3, NULL), (10, 10)",
            "INSERT INTO t SELECT seq, seq FROM seq_100_to_300",
        )
        self.pair.catch_up()
        execute(self.pair.replica, "STOP SLAVE SQL_THREAD")
        self.retries = self.pair.retries()

    def holder(self, statement: str) -> pymysql.Connection[Any]:
        """A session of the replica with a transaction that has executed the statement."""
        session = self.pair.replica.connect("r", autocommit=False)
        session.cursor().execute(statement)
        return session

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition on the replica."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.pair.replica.query("SHOW PROCESSLIST")
            time.sleep(0.02)

    def lock_waits(self) -> int:
        """Lock waits on the replica."""
        view = "firn_lock_waits" if IS_FIRN else "innodb_lock_waits"
        sql = f"SELECT COUNT(*) FROM information_schema.{view}"
        return int(self.pair.replica.query(sql)[0][0])

    def waits_for_prior(self) -> bool:
        """Whether a transaction of the replica waits for its turn to commit."""
        sql = (
            "SELECT COUNT(*) FROM information_schema.processlist "
            "WHERE state LIKE 'Waiting for prior transaction to commit%%'"
        )
        return bool(self.pair.replica.query(sql)[0][0])

    def new_retries(self) -> int:
        """Transactions rolled back and applied again since the beginning."""
        return self.pair.retries() - self.retries


def commit_in_one_group(server: Server, *transactions: list[str]) -> None:
    """Executes the transactions one after the other, and commits them in this order at once."""
    execute(
        server,
        "SET GLOBAL binlog_commit_wait_usec = 120000000",
        f"SET GLOBAL binlog_commit_wait_count = {len(transactions)}",
    )
    sessions = []
    for statements in transactions:
        sessions.append(server.connect("r", autocommit=False))
        for statement in statements:
            sessions[-1].cursor().execute(statement)
    threads = [threading.Thread(target=session.commit) for session in sessions]
    for number, thread in enumerate(threads, 1):
        thread.start()
        commits = "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'COMMIT'"
        deadline = time.monotonic() + 60
        while number < len(threads) and server.query(commits) != ((number,),):
            assert time.monotonic() < deadline, server.query("SHOW PROCESSLIST")
            time.sleep(0.02)
        # The server does not show that the transaction has joined the group.
        time.sleep(1.0)
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    execute(server, "SET GLOBAL binlog_commit_wait_count = 0")
    events = [str(event[5]) for event in server.query("SHOW BINLOG EVENTS IN 'bin.000001'")]
    groups = [text.split("cid=")[1] for text in events if "cid=" in text]
    assert groups, "no transaction was in a group"
    assert groups[-len(transactions) :] == groups[-1:] * len(transactions), "they were not in one"


def test_gap_locks_of_one_group_do_not_block(own_server: Callable[..., Server]) -> None:
    """The second transaction comes first on the replica, and locks the gap of the first's insert.
    The order in which they commit is fixed, so neither waits nor is rolled back."""
    delayed = Delayed(own_server, "conservative")
    commit_in_one_group(
        delayed.pair.primary,
        ["UPDATE hold SET v = 1 WHERE id = 1", "INSERT INTO t VALUES (7, NULL)"],
        ["DELETE FROM t WHERE b <= 3"],
    )
    local = delayed.holder("SELECT * FROM hold WHERE id = 1 FOR UPDATE")
    execute(delayed.pair.replica, "START SLAVE SQL_THREAD")
    delayed.until(delayed.waits_for_prior)
    local.rollback()
    delayed.pair.expect_equal("r")
    assert delayed.new_retries() == 0


def test_a_later_gap_lock_over_a_waiting_insert(own_server: Callable[..., Server]) -> None:
    """An insert waits for a session of the replica; a later transaction locks the same gap and
    waits for its turn. It is rolled back at once, not after a timeout."""
    delayed = Delayed(own_server, "optimistic")
    execute(
        delayed.pair.primary,
        "USE r",
        "INSERT INTO t VALUES (5, 5)",
        "BEGIN",
        "UPDATE hold SET v = 1 WHERE id = 2",
        "DELETE FROM t WHERE a BETWEEN 4 AND 6",
        "COMMIT",
    )
    gap = delayed.holder("SELECT * FROM t WHERE a = 5 FOR UPDATE")
    row = delayed.holder("SELECT * FROM hold WHERE id = 2 FOR UPDATE")
    execute(delayed.pair.replica, "START SLAVE SQL_THREAD")
    delayed.until(lambda: delayed.lock_waits() == 2)
    row.rollback()
    delayed.until(lambda: delayed.new_retries() > 0)
    gap.rollback()
    delayed.pair.expect_equal("r")
    assert delayed.new_retries() == 1


def test_the_later_transaction_is_the_victim(own_server: Callable[..., Server]) -> None:
    """Of two transactions in a deadlock the one that commits later goes, although it is larger."""
    delayed = Delayed(own_server, "optimistic")
    execute(
        delayed.pair.primary,
        "USE r",
        "BEGIN",
        "UPDATE t SET b = 1 WHERE a = 1",
        "UPDATE hold SET v = 1 WHERE id = 1",
        "UPDATE t SET b = 1 WHERE a = 2",
        "COMMIT",
        "BEGIN",
        "UPDATE hold SET v = 2 WHERE id = 2",
        "UPDATE t SET b = 3 WHERE a >= 100",
        "UPDATE t SET b = 2 WHERE a = 2",
        "UPDATE t SET b = 2 WHERE a = 1",
        "COMMIT",
    )
    earlier = delayed.holder("SELECT * FROM hold WHERE id = 1 FOR UPDATE")
    later = delayed.holder("SELECT * FROM hold WHERE id = 2 FOR UPDATE")
    execute(delayed.pair.replica, "START SLAVE SQL_THREAD")
    delayed.until(lambda: delayed.lock_waits() == 2)
    # The later one goes on once the earlier one has locked its row. If it came first, it would be
    # rolled back at once, and applied again after the earlier one's commit only.
    later.rollback()
    delayed.until(lambda: delayed.lock_waits() == 2)
    earlier.rollback()
    delayed.pair.expect_equal("r")
    assert delayed.new_retries() == 1


@pytest.mark.parametrize("mode", ["conservative", "optimistic"])
@pytest.mark.parametrize("engines", [ALL_TESTED, MIXED], ids=["alone", "with_innodb"])
def test_kills_of_either_server(
    own_server: Callable[..., Server], seed: int, engines: dict[str, str], mode: str
) -> None:
    """After a kill either server starts and goes on by itself, and both hold the same."""
    rng = Random(seed)
    formats = ["ROW", "MIXED"]
    pair = Pair(
        own_server, [*SMALL, f"--binlog-format={rng.choice(formats)}"], [*SMALL, *parallel(mode)]
    )
    crash_workload.create(pair.primary, engines)
    clients = new_clients(rng)
    for number in range(ROUNDS):
        before = sum(client.acknowledged for client in clients)
        with writing(pair.primary, clients):
            time.sleep(rng.uniform(0.1, 0.7))
            pair.replica.kill()
            time.sleep(rng.uniform(0.0, 0.2))
            restart(pair.replica, rng)
            time.sleep(rng.uniform(0.0, 0.5))
            pair.primary.kill()
        restart(pair.primary, rng)
        judge(pair, clients)
        done = sum(client.acknowledged for client in clients) - before
        print(f"round {number}: {done} commits, {pair.retries()} retries on the replica")
    assert any(client.acknowledged for client in clients), "nothing was committed at all"


def restart(server: Server, rng: Random) -> None:
    """Starts a killed server; one time in four, its recovery is killed first."""
    if rng.random() < 0.25:
        server.launch()
        time.sleep(rng.uniform(0.05, 0.8))
        server.kill()
    server.start()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM t WHERE id = 3",
        "UPDATE t SET v = 'x' WHERE id = 2",
        "INSERT INTO t VALUES (9, 'z')",
        "DROP TABLE t",
    ],
)
def test_a_difference_is_found_out(own_server: Callable[..., Server], damage: str) -> None:
    """The comparison detects a row that is missing, changed or invented on one side."""
    pair = Pair(own_server)
    execute(
        pair.primary,
        "CREATE DATABASE r",
        f"CREATE TABLE r.t (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE={ENGINE}",
        "INSERT INTO r.t VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    pair.expect_equal("r")
    execute(pair.replica, "USE r", "SET sql_log_bin = 0", damage)
    with pytest.raises(Diverged):
        compare(pair.primary, pair.replica, "r")
