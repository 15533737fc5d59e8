"""Clients that write until the server dies, and remember which commits were acknowledged.

Each client commits transactions numbered 1, 2, 3… Transaction n of client c, in one commit:

- inserts one row (c, n) into `ledger`, with the number of rows (c, n, i) that it puts into `part`;
- inserts (c, n) into `live` and deletes (c, n - LIVE), so that exactly the last LIVE remain;
- moves an amount between two rows of `account`, whose sum never changes.

So the expected contents follow from one number per client: its last committed transaction. That is
the last acknowledged one, or the next one, which was running when the server died.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pymysql
from server import ENGINE, IS_FIRN, Server

DATABASE = "crash"
ACCOUNTS = 40
BALANCE = 1000
LIVE = 5

# By table: the columns and indexes of its definition.
TABLES = {
    "account": (
        "id INT PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(40), KEY by_balance (balance)"
    ),
    "ledger": (
        "client INT, seq INT, parts INT NOT NULL, payload VARCHAR(600) NOT NULL, k INT NOT NULL, "
        "PRIMARY KEY (client, seq), KEY by_k (k, seq), UNIQUE KEY by_payload (payload(60))"
    ),
    "part": (
        "id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, seq INT NOT NULL, "
        "i INT NOT NULL, UNIQUE KEY by_seq (client, seq, i)"
    ),
    "live": "client INT NOT NULL, seq INT NOT NULL, t TEXT, KEY by_client (client, seq DESC)",
}
INDEXES = {
    "account": ["by_balance"],
    "ledger": ["by_k", "by_payload"],
    "part": ["by_seq"],
    "live": ["by_client"],
}
# By index: the columns that it covers, so that a query for them reads index entries and not rows.
COVERED = {
    "by_balance": "balance, id",
    "by_k": "k, seq, client",
    "by_payload": "client, seq, payload",
    "by_seq": "client, seq, i, id",
    "by_client": "client, seq",
}


class Broken(AssertionError):
    """A promise of the engine is broken."""


@dataclass
class Client:
    """State of one writer: transactions up to `acknowledged` are committed, `begun` may be."""

    number: int
    rng: Random
    acknowledged: int = 0
    begun: int = 0
    retries: int = 0
    unexpected: list[str] = field(default_factory=list)

    def run(self, server: Server, stop: threading.Event | None = None) -> None:
        """Commits transactions until the server is gone, or `stop` is set."""
        try:
            connection = server.connect(DATABASE, autocommit=False)
        except pymysql.err.MySQLError:
            return
        while not (stop and stop.is_set()):
            self.begun = self.acknowledged + 1
            try:
                self._transaction(connection, self.begun)
                self.acknowledged = self.begun
            except pymysql.err.MySQLError as error:
                if not self._may_retry(connection, error):
                    return
        connection.close()

    def _may_retry(self, connection: pymysql.Connection[Any], error: Exception) -> bool:
        number = error.args[0] if error.args else 0
        if number in (1205, 1213):
            self.retries += 1
            try:
                connection.rollback()
                return True
            except pymysql.err.MySQLError:
                return False
        # 0, 2006, 2013: the connection is lost; 1053, 1927: the server is shutting down.
        if number not in (0, 2006, 2013, 1053, 1927):
            self.unexpected.append(f"client {self.number}, transaction {self.begun}: {error}")
        return False

    def _transaction(self, connection: pymysql.Connection[Any], seq: int) -> None:
        rng = self.rng
        parts = rng.randrange(1, 4)
        payload = f"{self.number}-{seq}-" + rng.choice(["x", "yz", "é "]) * rng.randrange(10, 200)
        source, target = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randrange(1, 50)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO ledger VALUES (%s, %s, %s, %s, %s)",
                (self.number, seq, parts, payload, rng.randrange(100)),
            )
            values = ", ".join(f"({self.number}, {seq}, {i})" for i in range(parts))
            cursor.execute(f"INSERT INTO part (client, seq, i) VALUES {values}")
            cursor.execute("INSERT INTO live VALUES (%s, %s, %s)", (self.number, seq, payload))
            cursor.execute(
                "DELETE FROM live WHERE client = %s AND seq = %s", (self.number, seq - LIVE)
            )
            for account, change in ((source, -amount), (target, amount)):
                cursor.execute(
                    "UPDATE account SET balance = balance + %s, note = %s WHERE id = %s",
                    (change, payload[:20], account),
                )
        connection.commit()


def create(server: Server, engines: dict[str, str]) -> None:
    """Creates the tables, each with its engine."""
    server.query(f"CREATE DATABASE {DATABASE} DEFAULT CHARACTER SET utf8mb4")
    for name, definition in TABLES.items():
        server.query(f"CREATE TABLE {DATABASE}.{name} ({definition}) ENGINE={engines[name]}")
    rows = ", ".join(f"({i}, {BALANCE}, '')" for i in range(ACCOUNTS))
    server.query(f"INSERT INTO {DATABASE}.account VALUES {rows}")


def write_until(server: Server, clients: list[Client], kill: threading.Event) -> None:
    """Runs all clients until `kill` is set, then kills the server.

    Raises Broken when the server was gone before that.
    """
    threads = [threading.Thread(target=client.run, args=(server,)) for client in clients]
    for thread in threads:
        thread.start()
    kill.wait()
    alive = server.running()
    server.kill()
    for thread in threads:
        thread.join()
    if not alive:
        raise Broken(f"the server died by itself\n{server.log_tail()}")


def rows(server: Server, sql: str) -> list[tuple[Any, ...]]:
    """All rows that a query in the workload's database returns."""
    connection = server.connect(DATABASE)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    finally:
        connection.close()


def verify(server: Server, clients: list[Client]) -> None:
    """Raises Broken unless the tables hold exactly what the clients expect.

    Then updates each client's state to what was found.
    """
    expect_indexes_agree(server)
    ledger = {
        (c, s): parts for c, s, parts in rows(server, "SELECT client, seq, parts FROM ledger")
    }
    part = rows(server, "SELECT client, seq, COUNT(*) FROM part GROUP BY client, seq")
    live = set(rows(server, "SELECT client, seq FROM live"))
    for client in clients:
        if client.unexpected:
            raise Broken("; ".join(client.unexpected))
        found = sorted(s for c, s in ledger if c == client.number)
        last = found[-1] if found else 0
        if found != list(range(1, last + 1)):
            missing = sorted(set(range(1, last + 1)) - set(found))
            raise Broken(f"client {client.number}: transactions {missing[:5]} are missing")
        if not client.acknowledged <= last <= client.begun:
            raise Broken(
                f"client {client.number}: transaction {client.acknowledged} was acknowledged, "
                f"{client.begun} begun, {last} is there"
            )
        expected = {(client.number, s) for s in range(max(1, last - LIVE + 1), last + 1)}
        if {row for row in live if row[0] == client.number} != expected:
            raise Broken(f"client {client.number}: live is not the last {LIVE} of {last}")
        client.acknowledged = last
    if {(c, s): count for c, s, count in part} != ledger:
        raise Broken("part and ledger disagree: a transaction is there by half")
    total = rows(server, "SELECT SUM(balance), COUNT(*) FROM account")[0]
    if (int(total[0]), total[1]) != (ACCOUNTS * BALANCE, ACCOUNTS):
        raise Broken(f"accounts hold {total}, not {ACCOUNTS * BALANCE} in {ACCOUNTS} rows")


def is_tested(server: Server, table: str) -> bool:
    """Whether the table belongs to the engine under test."""
    asked = (
        "SELECT engine FROM information_schema.tables "
        f"WHERE table_schema = '{DATABASE}' AND table_name = '{table}'"
    )
    return [engine.upper() for (engine,) in rows(server, asked)] == [ENGINE.upper()]


def expect_indexes_agree(server: Server) -> None:
    """Raises Broken if CHECK TABLE reports an error, or an index and the rows differ."""
    for table, indexes in INDEXES.items():
        # CHECK TABLE and the indexes of InnoDB's tables beside the tested ones are ignored: after a
        # kill its purge and rollbacks are still running, and entries that these have not removed
        # yet cause warnings, and now and then rows of an index-only read.
        if not is_tested(server, table):
            continue
        status = rows(server, f"CHECK TABLE {table} EXTENDED")
        bad = [row for row in (status if IS_FIRN else status[-1:]) if row[3] != "OK"]
        if bad:
            raise Broken(f"CHECK TABLE: {bad}")
        for index in indexes:
            columns = COVERED[index]
            # `USE INDEX ()` makes the first query read the rows.
            truth = rows(server, f"SELECT {columns} FROM {table} USE INDEX ()")
            story = rows(server, f"SELECT {columns} FROM {table} FORCE INDEX ({index})")
            if sorted(truth) != sorted(story):
                raise Broken(f"{table}: index {index} has {len(story)} of {len(truth)} rows")
