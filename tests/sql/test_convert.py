"""`firn convert`: schemas go to FIRN and back with rows and foreign keys, over interruptions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from server import IS_FIRN, Server
from test_backup import TOOL, firn

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="firn convert is FIRN's")

SAVED = "_firn_convert_constraints"

# Parents, children, a cycle, a table that refers to itself, composite keys, all actions, generated
# columns, triggers, a view, partitions, a versioned table, and names that need quotes.
SCHEMA = [
    "CREATE TABLE country (code CHAR(2) PRIMARY KEY, name VARCHAR(50)) ENGINE=InnoDB",
    "CREATE TABLE customer (id INT AUTO_INCREMENT PRIMARY KEY, country CHAR(2), boss INT,"
    " name VARCHAR(50), UNIQUE (name), CONSTRAINT lives FOREIGN KEY (country)"
    " REFERENCES country (code) ON UPDATE CASCADE ON DELETE SET NULL,"
    " FOREIGN KEY (boss) REFERENCES customer (id)) ENGINE=InnoDB",
    "CREATE TABLE `or``der` (shop INT, no INT, customer INT NOT NULL, total DECIMAL(10,2),"
    " half DECIMAL(10,2) AS (total / 2) STORED, PRIMARY KEY (shop, no),"
    " FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE) ENGINE=InnoDB",
    "CREATE TABLE line (shop INT, no INT, pos INT, what VARCHAR(30), PRIMARY KEY (shop, no, pos),"
    " CONSTRAINT `of it` FOREIGN KEY (shop, no) REFERENCES `or``der` (shop, no)"
    " ON UPDATE NO ACTION ON DELETE CASCADE) ENGINE=InnoDB",
    "CREATE TABLE chicken (id INT PRIMARY KEY, egg INT) ENGINE=InnoDB",
    "CREATE TABLE egg (id INT PRIMARY KEY, chicken INT,"
    " FOREIGN KEY (chicken) REFERENCES chicken (id)) ENGINE=InnoDB",
    "ALTER TABLE chicken ADD FOREIGN KEY (egg) REFERENCES egg (id)",
    "CREATE TABLE part (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=InnoDB"
    " PARTITION BY HASH (id) PARTITIONS 3",
    "CREATE TABLE history (id INT PRIMARY KEY, v INT) ENGINE=InnoDB WITH SYSTEM VERSIONING",
    "CREATE TABLE article (id INT PRIMARY KEY, body TEXT, FULLTEXT (body)) ENGINE=InnoDB",
    "CREATE TABLE comment (id INT PRIMARY KEY, article INT,"
    " FOREIGN KEY (article) REFERENCES article (id)) ENGINE=InnoDB",
    "CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE VIEW names AS SELECT name FROM customer",
    "CREATE TRIGGER count_up BEFORE INSERT ON line FOR EACH ROW SET NEW.what = UPPER(NEW.what)",
]
ROWS = [
    "INSERT INTO country VALUES ('de', 'Germany'), ('no', 'Norway')",
    "INSERT INTO customer (country, boss, name) VALUES ('de', NULL, 'Ada'), ('no', 1, 'Bo')",
    "INSERT INTO `or``der` (shop, no, customer, total)"
    " SELECT seq MOD 3, seq, 1 + seq MOD 2, seq / 7 FROM seq_1_to_200",
    "INSERT INTO line SELECT seq MOD 3, seq, 1, 'apples' FROM seq_1_to_200",
    "INSERT INTO chicken VALUES (1, NULL)",
    "INSERT INTO egg VALUES (1, 1)",
    "UPDATE chicken SET egg = 1",
    "INSERT INTO part SELECT seq, seq * 2 FROM seq_1_to_100",
    "INSERT INTO history VALUES (1, 1)",
    "UPDATE history SET v = 2",
    "INSERT INTO article VALUES (1, 'text')",
    "INSERT INTO comment VALUES (1, 1)",
]
MOVED = ["chicken", "country", "customer", "egg", "line", "or`der", "part"]


@pytest.fixture
def shop(own_server: Callable[..., Server]) -> Server:
    """A server with the schema in InnoDB."""
    server = own_server()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        connection.select_db("shop")
        for statement in SCHEMA + ROWS:
            cursor.execute(statement)
    return server


def convert(server: Server, *arguments: str, code: int = 0) -> Any:
    """Runs the command on schema `shop`."""
    return firn("convert", "shop", "-S", server.socket, "-u", "root", *arguments, code=code)


def dump(server: Server) -> str:
    """Definitions and rows, with engines blanked out."""
    command = ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "-uroot"]
    command += ["--skip-comments", "--skip-dump-date", "--triggers", "--order-by-primary"]
    done = subprocess.run(
        [*command, "--dump-history", "shop"], capture_output=True, text=True, check=True
    )
    text = re.sub(r"ENGINE=(FIRN|InnoDB)", "ENGINE=…", done.stdout)
    # The server puts an index that it makes for a foreign key behind the others, and names it by
    # the constraint: sort them, without names.
    text = re.sub(r"^  KEY `(?:[^`]|``)*` ", "  KEY ", text, flags=re.M)
    keys = re.compile(r"(?:^  (?:UNIQUE |FULLTEXT )?KEY .*\n)+", re.M)
    return keys.sub(lambda found: _sorted_lines(found.group()), text)


def _sorted_lines(lines: str) -> str:
    return "".join(sorted(line.rstrip(",\n") + "\n" for line in lines.splitlines(keepends=True)))


def engines(server: Server) -> dict[str, str]:
    """Engine of each table."""
    query = (
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = 'shop' AND TABLE_TYPE <> 'VIEW'"
    )
    return {name: engine.lower() for name, engine in server.query(query)}


def expect_moved(server: Server, engine: str) -> None:
    """All tables that can move are in `engine`, and nothing is left to do."""
    found = engines(server)
    assert {name: found[name] for name in MOVED} == dict.fromkeys(MOVED, engine)
    assert SAVED not in found
    assert (found["article"], found["comment"], found["old"]) == ("innodb", "innodb", "myisam")


def test_there_and_back_the_dump_is_the_same(shop: Server) -> None:
    before = dump(shop)
    report = convert(shop)
    assert sorted(done["table"] for done in report["converted"]) == sorted(
        f"shop.{name}" for name in MOVED
    )
    assert report["constraints"] == 6
    reasons = {kept["table"]: kept["reason"] for kept in report["stay"]}
    assert sorted(reasons) == ["shop.article", "shop.comment", "shop.history", "shop.old"]
    assert "FULLTEXT" in reasons["shop.article"]
    assert "links it to shop.article, which stays" in reasons["shop.comment"]
    expect_moved(shop, "firn")
    assert dump(shop) == before
    with pytest.raises(pymysql.err.IntegrityError) as refused:
        shop.query("INSERT INTO shop.egg VALUES (2, 77)")
    assert refused.value.args[0] == 1452

    assert convert(shop)["converted"] == []
    convert(shop, "--to", "innodb")
    expect_moved(shop, "innodb")
    assert dump(shop) == before


def test_a_dry_run_changes_nothing(shop: Server) -> None:
    before = dump(shop)
    report = convert(shop, "--dry-run")
    assert report["dry_run"]
    assert len(report["converted"]) == len(MOVED)
    assert set(engines(shop).values()) == {"innodb", "myisam"}
    assert dump(shop) == before


def test_a_row_without_parent_is_named_and_the_key_stays_saved(shop: Server) -> None:
    convert(shop)
    with shop.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute("INSERT INTO shop.egg VALUES (9, 77)")
    report = convert(shop, "--to", "innodb", code=1)
    assert [failure["name"] for failure in report["missing"]] == ["egg_ibfk_1 of shop.egg"]
    assert "(77)" in report["missing"][0]["reason"]
    assert SAVED in engines(shop)
    shop.query("DELETE FROM shop.egg WHERE id = 9")
    assert convert(shop, "--to", "innodb")["constraints"] == 1
    expect_moved(shop, "innodb")


@pytest.mark.parametrize("killed_after", [0.05, 0.15, 0.3, 0.6])
def test_a_killed_conversion_goes_on(shop: Server, killed_after: float) -> None:
    before = dump(shop)
    command = [str(TOOL), "convert", "shop", "-S", str(shop.socket), "-u", "root"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(killed_after)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    convert(shop)
    expect_moved(shop, "firn")
    assert dump(shop) == before


def test_one_conversion_works_at_a_time(shop: Server) -> None:
    with shop.connect() as other, other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK('firn convert', 0)")
        report = convert(shop, "--lock-wait", "0", code=3)
        assert f"connection {other.thread_id()} " in report["error"]
        assert firn("convert", "shop", "-S", shop.socket, "-u", "root", "--dry-run")["converted"]
        assert set(engines(shop).values()) == {"innodb", "myisam"}
    convert(shop)
    expect_moved(shop, "firn")


def test_a_failed_table_does_not_stop_the_others(shop: Server) -> None:
    with shop.connect() as blocker, blocker.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT COUNT(*) FROM shop.part")
        # The other tables may have to wait for threads that use InnoDB's tables in the background.
        report = convert(shop, "--lock-wait", "5", code=1)
        blocker.rollback()
    assert [failure["name"] for failure in report["failed"]] == ["shop.part"]
    assert "1205" in report["failed"][0]["reason"]
    assert len(report["converted"]) == len(MOVED) - 1
    assert [done["table"] for done in convert(shop)["converted"]] == ["shop.part"]
    expect_moved(shop, "firn")


def test_a_schema_of_the_server_or_an_unknown_one_is_refused(shop: Server) -> None:
    socket = ["-S", shop.socket, "-u", "root"]
    assert "schema of the server" in firn("convert", "mysql", *socket, code=4)["error"]
    assert "no schema" in firn("convert", "nowhere", *socket, code=4)["error"]


def test_linked_schemas_are_named_together(shop: Server) -> None:
    shop.query("CREATE DATABASE bills")
    shop.query(
        "CREATE TABLE bills.bill (id INT PRIMARY KEY, country CHAR(2),"
        " FOREIGN KEY (country) REFERENCES shop.country (code)) ENGINE=InnoDB"
    )
    reasons = [kept["reason"] for kept in convert(shop)["stay"]]
    assert any("bills.bill, whose schema is not named" in reason for reason in reasons)
    report = firn("convert", "shop", "bills", "-S", shop.socket, "-u", "root")
    assert report["constraints"] >= 2
    expect_moved(shop, "firn")
