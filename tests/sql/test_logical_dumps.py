"""mariadb-dump and mydumper: dumps of FIRN tables beside writers are one state, and load again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pymysql
import pytest
from background_sessions import BackgroundSessions
from server import ENGINE, Server
from test_backup import dump, expect_same

DEADLOCK = 1213
ACCOUNTS = 200
TOTAL = ACCOUNTS * 100


class Transfers(BackgroundSessions):
    """Sessions that move amounts between accounts of two tables; the sum never changes."""

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(partial(self._move, Random(f"{seed} {number}")) for number in range(3))
        self.server = server
        self.commits = 0

    def _move(self, rng: Random) -> None:
        with self.server.connect("shop", autocommit=False) as connection:
            cursor = connection.cursor()
            while not self.stop.is_set():
                try:
                    for table, sign in zip(rng.sample(["giro", "savings"], 2), "+-", strict=True):
                        cursor.execute(
                            f"UPDATE {table} SET amount = amount {sign} 5 "
                            f"WHERE id = {rng.randrange(ACCOUNTS // 2)}"
                        )
                    connection.commit()
                    self.commits += 1
                except pymysql.err.OperationalError as error:
                    connection.rollback()
                    if error.args[0] != DEADLOCK:
                        raise


@pytest.fixture
def shop(own_server: Callable[..., Server]) -> Server:
    """A server with tables of many kinds."""
    server = own_server("--log-bin=bin", "--server-id=1")
    server.query("CREATE DATABASE shop")
    for table in ("giro", "savings"):
        server.query(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, amount INT) ENGINE={ENGINE}")
        server.query(f"INSERT INTO shop.{table} SELECT seq, 100 FROM seq_0_to_{ACCOUNTS // 2 - 1}")
    for statement in (
        f"CREATE TABLE shop.p (id INT PRIMARY KEY, u VARCHAR(20) UNIQUE) ENGINE={ENGINE}",
        "CREATE TABLE shop.c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, b LONGBLOB, j JSON, "
        "g GEOMETRY, n DECIMAL(20,5), d DATETIME(6), v INT AS (p + 1) STORED, "
        f"FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) ENGINE={ENGINE}",
        f"CREATE TABLE shop.parts (id INT, k INT, KEY (k)) ENGINE={ENGINE} "
        "PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE VIEW shop.names AS SELECT u FROM shop.p",
        "CREATE TRIGGER shop.tr BEFORE INSERT ON shop.parts FOR EACH ROW SET NEW.k = NEW.id + 1",
        "INSERT INTO shop.p VALUES (1, 'Jörg''s \"x\"'), (2, NULL), (3, '\\\\')",
        "INSERT INTO shop.c (p, b, j, g, n, d) VALUES (1, REPEAT(CHAR(0, 39, 92, 255), 5000), "
        "'{\"a\": [1]}', POINT(1, 2), -1.5, '2026-01-31 23:59:59.000001'), "
        "(3, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO shop.parts (id) SELECT seq FROM seq_1_to_500",
    ):
        server.query(statement)
    return server


def expect_one_state(copy: Server, original: list[str]) -> None:
    """Fails unless the copy has one state of the accounts, and all of the other tables."""
    total = "SELECT SUM(amount) FROM (SELECT * FROM giro UNION ALL SELECT * FROM savings) a"
    with copy.connect("shop") as connection, connection.cursor() as cursor:
        cursor.execute(total)
        assert cursor.fetchall() == ((TOTAL,),)
        cursor.execute(
            "SELECT DISTINCT engine FROM information_schema.tables "
            "WHERE table_schema = 'shop' AND table_type = 'BASE TABLE'"
        )
        assert cursor.fetchall() == ((ENGINE,),)
    expect_same(steady(dump(copy, "shop")), steady(original), "the dump of the copy")


def steady(lines: list[str]) -> list[str]:
    """The lines of a dump without the rows that the writers change."""
    moving = ("INSERT INTO `giro`", "INSERT INTO `savings`")
    return [line for line in lines if not line.startswith(moving)]


def test_mariadb_dump(shop: Server, own_server: Callable[..., Server], seed: int) -> None:
    copy = own_server()
    command = ["mariadb-dump", "--no-defaults", f"--socket={shop.socket}", "-uroot"]
    command += ["--single-transaction", "--master-data=2", "--triggers", "--databases", "shop"]
    with Transfers(shop, seed) as transfers:
        made = subprocess.run(command, capture_output=True, check=True).stdout
    assert transfers.commits > 0
    assert b"CHANGE MASTER TO MASTER_LOG_FILE='bin.000001'" in made
    load = ["mariadb", "--no-defaults", f"--socket={copy.socket}", "-uroot"]
    subprocess.run(load, input=made, check=True)
    expect_one_state(copy, dump(shop, "shop"))


def test_mydumper(
    shop: Server, own_server: Callable[..., Server], tmp_path: Path, seed: int
) -> None:
    copy = own_server()
    where = tmp_path / "dump"
    command = ["mydumper", "--database=shop", "--user=root", f"--socket={shop.socket}"]
    command += ["--threads=2", "--triggers", f"--outputdir={where}"]
    with Transfers(shop, seed) as transfers:
        subprocess.run(command, check=True)
    assert transfers.commits > 0
    load = ["myloader", "--user=root", f"--socket={copy.socket}", f"--directory={where}"]
    subprocess.run([*load, "--threads=2"], check=True)
    expect_one_state(copy, dump(shop, "shop"))
