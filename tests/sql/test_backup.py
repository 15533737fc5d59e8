"""`firn backup` while sessions write and change definitions.

Each restored copy is the state at its binary log position: a second server applies the binary log
up to there and must give the same dump.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import crash_workload
import pymysql
import pytest
import sysbench
from server import IS_FIRN, REPOSITORY, Server, free_port

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="firn backup is FIRN's")

TOOL = Path(os.environ.get("FIRN_TEST_TOOL", REPOSITORY / "build" / "bin" / "firn"))
BACKUPS = int(os.environ.get("FIRN_TEST_BACKUPS", "4"))
BINLOG = ["--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]
SMALL = ["--loose-firn-memtable-size=2097152"]
SYSBENCH = "sbtest"
SYSBENCH_THREADS = 4


def firn(*arguments: object, code: int = 0) -> Any:
    """Runs the tool with --json and returns its parsed output."""
    if not TOOL.is_file():
        pytest.fail(f"{TOOL} does not exist: 'make' builds it, FIRN_TEST_TOOL names another")
    command = [str(TOOL), "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout or done.stderr)


def back_up(server: Server, target: Path | str) -> Any:
    """Takes a backup of a running server; returns the tool's report."""
    return firn("backup", target, "--socket", server.socket, "--user", "root")


def restored(own_server: Callable[..., Server], target: Path, backup: str, *options: str) -> Server:
    """Starts a server on a restored copy."""
    copy = own_server(*options, load_engine=False)
    copy.stop()
    firn("restore", target, "--backup", backup, "--to", copy.data)
    copy.load_engine = True
    copy.start()
    return copy


def dump(server: Server, *databases: str) -> list[str]:
    """All rows, sorted, and all definitions without their AUTO_INCREMENT, which may differ."""
    command = ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "-uroot"]
    command += ["--skip-extended-insert", "--skip-comments", "--skip-dump-date", "--triggers"]
    command += ["--hex-blob"]
    done = subprocess.run(
        [*command, "--databases", *databases], capture_output=True, text=True, check=True
    )
    lines = re.sub(r" AUTO_INCREMENT=\d+", "", done.stdout).splitlines()
    # mariadb-dump prints the rows of a table without a primary key in their physical order, so sort
    # them.
    return sorted(lines, key=lambda line: line if line.startswith("INSERT") else "")


def expect_same(found: list[str], expected: list[str], what: str) -> None:
    """Fails with the first lines that differ."""
    if found != expected:
        more = sorted(set(found) - set(expected))[:3]
        less = sorted(set(expected) - set(found))[:3]
        pytest.fail(f"{what}: {len(found)} lines, {len(expected)} expected; {more}, not {less}")


class Ddl:
    """Creates, changes, renames, empties and drops tables until `stop` is set."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.done = 0
        self.unexpected = ""

    def run(self, server: Server, stop: threading.Event) -> None:
        """Runs life cycles of tables, one after another."""
        try:
            with server.connect("ddl") as connection, connection.cursor() as cursor:
                for number in range(10**6):
                    for statement in self._life(f"t{number % 7}"):
                        if stop.is_set():
                            return
                        cursor.execute(statement)
                        self.done += 1
        except pymysql.err.MySQLError as error:
            self.unexpected = str(error)

    def _life(self, name: str) -> list[str]:
        rng = self.rng
        rows = ", ".join(f"({i}, {rng.randrange(1000)}, 'x{i}')" for i in range(1, 60))
        life = [
            f"DROP TABLE IF EXISTS {name}, {name}_new",
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20)) ENGINE=FIRN"
            + rng.choice(["", " PARTITION BY HASH (id) PARTITIONS 3"]),
            f"INSERT INTO {name} VALUES {rows}",
            f"ALTER TABLE {name} ADD COLUMN c INT NOT NULL DEFAULT {rng.randrange(9)}",
            f"UPDATE {name} SET c = a WHERE id < 20",
            f"ALTER TABLE {name} ADD INDEX (a), ALTER COLUMN b SET DEFAULT 'd'",
            f"RENAME TABLE {name} TO {name}_new",
            f"TRUNCATE TABLE {name}_new",
            f"INSERT INTO {name}_new (id, a) VALUES (1, 2)",
        ]
        return life[: rng.randrange(3, len(life) + 1)]


class Judge:
    """A second server that executes the binary log up to one position after another.

    Its contents are the truth for each position.
    """

    def __init__(self, server: Server, log: Path) -> None:
        self.server = server
        self.log = log
        self.at = 4

    def advance(self, position: int) -> None:
        """Executes the binary log from the last position to this one."""
        if position == self.at:
            return
        read = ["mariadb-binlog", "--no-defaults", f"--start-position={self.at}"]
        read += [f"--stop-position={position}", str(self.log)]
        events = subprocess.run(read, capture_output=True, check=True).stdout
        apply = ["mariadb", "--no-defaults", f"--socket={self.server.socket}", "-uroot"]
        subprocess.run(apply, input=events, check=True)
        self.at = position


class Load:
    """The load during backups: writing clients, sysbench, and DDL, at the same time."""

    def __init__(self, server: Server, rng: Random) -> None:
        self.server = server
        self.stop = threading.Event()
        self.clients = [crash_workload.Client(n, Random(rng.randrange(2**30))) for n in range(4)]
        self.ddl = Ddl(Random(rng.randrange(2**30)))
        self.threads = [
            threading.Thread(target=self._write, args=(client,)) for client in self.clients
        ]
        self.threads.append(threading.Thread(target=self.ddl.run, args=(server, self.stop)))
        self.threads.append(threading.Thread(target=self._sysbench))
        self.per_second: list[float] = []

    def _sysbench(self) -> None:
        while not self.stop.is_set():
            self.per_second.append(self.tables.run("oltp_write_only", SYSBENCH_THREADS, 1))

    def _write(self, client: crash_workload.Client) -> None:
        with self.server.connect(crash_workload.DATABASE, autocommit=False) as connection:
            while not self.stop.is_set():
                client.begun = client.acknowledged + 1
                try:
                    client._transaction(connection, client.begun)
                    client.acknowledged = client.begun
                except pymysql.err.MySQLError as error:
                    if not client._may_retry(connection, error):
                        client.unexpected.append(str(error))
                        return

    def __enter__(self) -> Load:
        self.server.query(f"CREATE DATABASE {SYSBENCH}")
        self.tables = sysbench.Load(self.server.socket, SYSBENCH, "FIRN", 2, 5000)
        self.tables.prepare(threads=2)
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.ddl.unexpected, self.ddl.unexpected
        assert self.per_second, "sysbench failed"
        for client in self.clients:
            assert not client.unexpected, client.unexpected


def test_each_backup_is_the_state_at_its_position(
    own_server: Callable[..., Server], seed: int, tmp_path: Path
) -> None:
    rng = Random(seed)
    port = free_port()
    network = ["--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}"]
    server = own_server(*BINLOG, *SMALL, *network)
    crash_workload.create(server, dict.fromkeys(crash_workload.TABLES, "FIRN"))
    server.query("CREATE DATABASE ddl CHARACTER SET latin1")
    server.query("CREATE TABLE ddl.rest (id INT PRIMARY KEY, v TEXT) ENGINE=FIRN")
    server.query("CREATE TABLE ddl.inno (id INT PRIMARY KEY) ENGINE=InnoDB")
    server.query("INSERT INTO ddl.rest SELECT seq, REPEAT(MD5(seq), 6) FROM seq_1_to_30000")
    server.query("CREATE VIEW ddl.few AS SELECT * FROM ddl.rest WHERE id < 10")
    server.query("SET GLOBAL firn_flush_log_at_trx_commit = 1")
    databases = (crash_workload.DATABASE, "ddl", SYSBENCH)
    target = tmp_path / "backups"
    reports = []
    with Load(server, rng) as load:
        for _ in range(BACKUPS):
            time.sleep(rng.uniform(0.2, 1.0))
            reports.append(back_up(server, target))
        time.sleep(0.3)
    assert load.ddl.done > BACKUPS
    assert "mariadb-backup" not in server.log()
    sent = [report["sent_bytes"] for report in reports]
    pauses = sorted(report["pause_ms"] for report in reports)
    print(f"sent {sent}, writers waited {[round(ms, 1) for ms in pauses]} ms")
    print(f"sysbench: {[round(each) for each in load.per_second]} transactions a second")
    objects = [path for path in target.rglob("*") if path.is_file() and path.suffix != ".json"]
    # Backups share objects: each object was sent once, by the first backup that contains it.
    assert sum(sent) == sum(path.stat().st_size for path in objects), (sent, objects)
    assert not list((server.data / "#firn").glob("checkpoint*"))

    judge = Judge(own_server("--server-id=3"), server.data / "bin.000001")
    for report in reports:
        assert report["position"]["binlog_file"] == "bin.000001"
        judge.advance(report["position"]["binlog_pos"])
        copy = restored(own_server, target, report["id"])
        # A backup contains no tables of other engines.
        judge.server.query("DROP TABLE IF EXISTS ddl.inno")
        expect_same(dump(copy, *databases), dump(judge.server, *databases), report["id"])
        for row in copy.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema='ddl'"
        ):
            status = copy.query(f"CHECK TABLE ddl.`{row[0]}`")
            assert status[-1][3] == "OK", status
        crash_workload.expect_indexes_agree(copy)
        copy.destroy()
        judge.server.query("SET sql_log_bin=0")
        judge.server.query("CREATE TABLE IF NOT EXISTS ddl.inno (id INT PRIMARY KEY) ENGINE=InnoDB")

    assert firn("backup", "--verify", target)["sound"]
    kept = firn("prune", target, "--keep", 1)["kept"]
    assert kept == [reports[-1]["id"]]

    replica = restored(own_server, target, "latest", "--server-id=2")
    position = reports[-1]["position"]
    server.query("CREATE USER 'r'@'%' IDENTIFIED BY 'p'")
    server.query("GRANT REPLICATION SLAVE ON *.* TO 'r'@'%'")
    replica.query("CREATE TABLE ddl.inno (id INT PRIMARY KEY) ENGINE=InnoDB")
    replica.query(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='r', "
        "MASTER_PASSWORD='p', MASTER_LOG_FILE=%s, MASTER_LOG_POS=%s, MASTER_CONNECT_RETRY=1",
        (port, position["binlog_file"], position["binlog_pos"]),
    )
    replica.query("START SLAVE")
    file, at = server.query("SHOW MASTER STATUS")[0][:2]
    waited = replica.query("SELECT MASTER_POS_WAIT(%s, %s, 120)", (file, at))[0][0]
    assert waited is not None, replica.query("SHOW SLAVE STATUS")
    assert waited >= 0, replica.query("SHOW SLAVE STATUS")
    expect_same(dump(replica, *databases), dump(server, *databases), "replica")


def test_one_table_and_what_is_refused(own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    for name in ("one", "two"):
        server.query(f"CREATE TABLE d.{name} (id INT PRIMARY KEY, v TEXT, KEY (v(9))) ENGINE=FIRN")
        server.query(f"INSERT INTO d.{name} SELECT seq, MD5(seq) FROM seq_1_to_5000")
    server.query("CREATE TRIGGER d.tr BEFORE INSERT ON d.one FOR EACH ROW SET NEW.v = 'by trigger'")
    target = tmp_path / "backups"
    report = back_up(server, target)
    assert report["position"]["binlog_file"] == ""

    copy = own_server(load_engine=False)
    copy.stop()
    firn("restore", target, "--table", "d.one", "--to", copy.data)
    copy.load_engine = True
    copy.start()
    assert copy.query("SHOW TABLES FROM d") == (("one",),)
    assert copy.query("SELECT COUNT(*), MIN(v) FROM d.one") == server.query(
        "SELECT COUNT(*), MIN(v) FROM d.one"
    )
    assert copy.query("CHECK TABLE d.one EXTENDED")[0][3] == "OK"
    copy.query("INSERT INTO d.one VALUES (0, '')")
    assert copy.query("SELECT v FROM d.one WHERE id = 0") == (("by trigger",),)
    assert "two" not in str(copy.query("SELECT * FROM information_schema.firn_tables"))

    firn("restore", target, "--to", copy.data, code=4)
    firn("restore", target, "--to", tmp_path / "c", "--table", "d.three", code=4)
    error = firn("backup", target, "--socket", tmp_path / "nobody", "--user", "root", code=4)
    assert "connect" in error["error"], error
    assert len(firn("backups", target)) == 1


def test_a_dump_in_one_transaction_is_the_state_at_its_position(
    own_server: Callable[..., Server], seed: int
) -> None:
    server = own_server(*BINLOG)
    crash_workload.create(server, dict.fromkeys(crash_workload.TABLES, "FIRN"))
    server.query("CREATE DATABASE ddl")
    rng = Random(seed)
    dumps = []
    command = ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "-uroot"]
    command += ["--single-transaction", "--master-data=2", "--order-by-primary"]
    command += ["--skip-dump-date", "--databases", crash_workload.DATABASE]
    load = Load(server, rng)
    # The DDL changes only tables that are not dumped.
    with load:
        for _ in range(3):
            time.sleep(0.4)
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            dumps.append(done.stdout)
    judge = Judge(own_server("--server-id=3"), server.data / "bin.000001")
    for text in dumps:
        found = re.search(r"MASTER_LOG_FILE='bin\.000001', MASTER_LOG_POS=(\d+)", text)
        assert found, text[:2000]
        judge.advance(int(found[1]))
        loaded = own_server()
        apply = ["mariadb", "--no-defaults", f"--socket={loaded.socket}", "-uroot"]
        subprocess.run(apply, input=text, text=True, check=True)
        there = dump(judge.server, crash_workload.DATABASE)
        expect_same(dump(loaded, crash_workload.DATABASE), there, f"dump at {found[1]}")
        loaded.destroy()
