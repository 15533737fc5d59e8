"""`firn backup --with-innodb`: FIRN, InnoDB and the system tables of a server at one position.

Transactions write to tables of both engines while the backups run. Each restored server must be the
state at its binary log position: another server applies the binary log up to there.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
from background_sessions import BackgroundSessions
from server import IS_FIRN, Server
from test_backup import BINLOG, TOOL, Judge, dump, expect_same, firn

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="firn backup is FIRN's")

THREADS = 3
BACKUPS = 3


def back_up(server: Server, target: Path, *options: object, code: int = 0) -> Any:
    """Takes a backup of both engines; returns the tool's report."""
    command = ("backup", target, "--with-innodb", "--socket", server.socket, "--user", "root")
    return firn(*command, *options, code=code)


def restored(own_server: Callable[..., Server], target: Path, backup: str) -> Server:
    """Starts a server on a restored copy of the whole server."""
    copy = own_server(load_engine=False)
    copy.stop()
    shutil.rmtree(copy.data)
    firn("restore", target, "--backup", backup, "--to", copy.data)
    copy.load_engine = True
    copy.start()
    return copy


class Writers(BackgroundSessions):
    """Sessions whose transactions change a FIRN table and an InnoDB table alike, and DDL."""

    def __init__(self, server: Server, seed: int) -> None:
        works = [(self._write, number) for number in range(THREADS)]
        works.append((self._define, THREADS))
        super().__init__(partial(self._work, *work, seed) for work in works)
        self.server = server
        self.commits = 0

    def _work(self, work: Callable[..., None], number: int, seed: int) -> None:
        with self.server.connect("d", autocommit=False) as connection:
            work(connection.cursor(), number, Random(f"{seed} {number}"))

    def _write(self, cursor: Any, number: int, rng: Random) -> None:
        for step in range(10**9):
            if self.stop.is_set():
                return
            key = step * THREADS + number
            for table in rng.sample(["f", "i"], 2):
                row = f"({key}, {rng.randrange(9)}, REPEAT('x', 300))"
                cursor.execute(f"INSERT INTO {table} VALUES {row}")
                cursor.execute(f"UPDATE {table}_count SET n = n + 1 WHERE id = {number}")
            cursor.execute(rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            self.commits += 1

    def _define(self, cursor: Any, _number: int, rng: Random) -> None:
        while not self.stop.is_set():
            engine = rng.choice(["FIRN", "InnoDB"])
            columns = "(id INT PRIMARY KEY, a INT)"
            cursor.execute(f"CREATE OR REPLACE TABLE ddl {columns} ENGINE={engine}")
            cursor.execute("INSERT INTO ddl VALUES (1, 2)")
            cursor.execute("ALTER TABLE ddl ADD COLUMN b INT DEFAULT 7, ADD INDEX (a)")
            cursor.execute("COMMIT")
            if self.stop.wait(0.02):
                return


@pytest.fixture
def both(own_server: Callable[..., Server]) -> Server:
    """A server with tables of both engines, and a binary log."""
    server = own_server(*BINLOG, "--loose-firn-memtable-size=2097152")
    server.query("CREATE DATABASE d")
    for table, engine in (("f", "FIRN"), ("i", "InnoDB")):
        for definition in (
            f"CREATE TABLE d.{table} (id INT PRIMARY KEY, a INT, t VARCHAR(300), KEY (a))",
            f"CREATE TABLE d.{table}_count (id INT PRIMARY KEY, n INT)",
        ):
            server.query(f"{definition} ENGINE={engine}")
        server.query(f"INSERT INTO d.{table}_count SELECT seq, 0 FROM seq_0_to_{THREADS - 1}")
    server.query("CREATE VIEW d.v AS SELECT f.id FROM d.f JOIN d.i USING (id)")
    server.query("CREATE TRIGGER d.tr BEFORE DELETE ON d.f FOR EACH ROW SET @gone = OLD.id")
    server.query("CREATE USER someone@localhost IDENTIFIED BY 'x'")
    return server


def test_both_engines_are_restored_at_one_position(
    both: Server, own_server: Callable[..., Server], tmp_path: Path, seed: int
) -> None:
    judge = Judge(own_server(), both.data / "bin.000001")
    target = tmp_path / "backups"
    with Writers(both, seed) as writers:
        reports = [back_up(both, target) for _ in range(BACKUPS)]
    assert writers.commits > BACKUPS
    assert [report["with_innodb"] for report in reports] == [True] * BACKUPS
    firn("backup", "--verify", target)
    assert [listed["with_innodb"] for listed in firn("backups", target)] == [True] * BACKUPS
    for report in reports:
        copy = restored(own_server, target, report["id"])
        judge.advance(report["position"]["binlog_pos"])
        expect_same(dump(copy, "d"), dump(judge.server, "d"), report["id"])
        same = "SELECT (SELECT COUNT(*) FROM d.f), (SELECT COUNT(*) FROM d.i), COUNT(*) FROM d.v"
        counts = copy.query(same)[0]
        assert counts[0] == counts[1] == counts[2] > 0
        assert copy.query("SELECT COUNT(*) FROM mysql.user WHERE user = 'someone'")[0][0] == 1
        copy.query("INSERT INTO d.f VALUES (-1, 1, 'after')")
        copy.query("INSERT INTO d.i VALUES (-1, 1, 'after')")
        assert [row[3] for row in copy.query("CHECK TABLE d.f, d.i")] == ["OK", "OK"]
        copy.stop()
    assert not list((both.data / "#firn").glob("checkpoint-*"))


def test_a_backup_of_both_restores_single_firn_tables_and_refuses_what_it_cannot(
    both: Server, tmp_path: Path
) -> None:
    both.query("INSERT INTO d.f VALUES (1, 1, 'f')")
    target = tmp_path / "backups"
    sent = [back_up(both, target)["sent_bytes"] for _ in range(2)]
    # Most pieces are those of the first backup.
    assert sent[1] < sent[0] / 2
    restore = ("restore", target, "--to")
    only = tmp_path / "only"
    assert firn(*restore, only, "--table", "d.f")["tables"] == ["d/f"]
    assert sorted(path.name for path in only.iterdir()) == ["#firn", "d"]
    assert sorted(path.name for path in (only / "d").iterdir()) == [
        "db.opt",
        "f.TRG",
        "f.frm",
        "tr.TRN",
    ]
    firn(*restore, tmp_path / "none", "--table", "d.i", code=4)
    used = tmp_path / "used"
    (used / "mysql").mkdir(parents=True)
    said = firn(*restore, used, code=4)
    assert "not empty" in said["error"]
    assert [path.name for path in used.iterdir()] == ["mysql"]


def test_failures_of_the_copying_program_leave_nothing(both: Server, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    said = back_up(both, target, "--mariadb-backup", "/nowhere/mariadb-backup", code=4)
    assert "/nowhere/mariadb-backup" in said["error"]
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho the disk burns\nexit 3\n")
    broken.chmod(0o755)
    said = back_up(both, target, "--mariadb-backup", broken, code=4)
    assert "the disk burns" in said["error"]
    # This one ends well, but the server's engines are never asked to flush while commits wait.
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexit 0\n")
    idle.chmod(0o755)
    said = back_up(both, target, "--mariadb-backup", idle, code=4)
    assert "no checkpoint" in said["error"]
    assert not list((both.data / "#firn").glob("checkpoint-*"))
    assert not list(target.glob("running/*"))
    assert not list(target.glob("backups/*"))


def _await_disarmed(server: Server) -> None:
    """Waits until the server has noticed that the session is gone that armed a checkpoint."""
    deadline = time.monotonic() + 60
    while True:
        try:
            server.query("SET GLOBAL firn_backup_checkpoint = ''")
            return
        except pymysql.err.MySQLError as error:
            if "another session" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_the_armed_checkpoint_is_made_once_and_only_while_commits_wait(
    both: Server, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    other = both.connect("d")
    flush = "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS"
    with both.connect("d") as arming, arming.cursor() as cursor:
        cursor.execute("SET GLOBAL firn_backup_checkpoint = %s", [str(place)])
        with other.cursor() as backup:
            both.query(flush)
            for stage in ("START", "FLUSH", "BLOCK_DDL"):
                backup.execute(f"BACKUP STAGE {stage}")
                both.query(flush)
                assert not place.exists(), stage
            backup.execute("BACKUP STAGE BLOCK_COMMIT")
            # Another session than the one that blocks commits, as in mariadb-backup.
            both.query(flush)
            assert (place / "CURRENT").exists()
            shutil.rmtree(place)
            both.query(flush)
            assert not place.exists()
            # One that cannot be made fails the statement.
            cursor.execute("SET GLOBAL firn_backup_checkpoint = '/nowhere/at/all'")
            with pytest.raises(pymysql.err.MySQLError, match="no checkpoint"):
                both.query(flush)
            cursor.execute("SET GLOBAL firn_backup_checkpoint = %s", [str(place)])
    # The session that armed it has ended.
    _await_disarmed(both)
    with other.cursor() as backup:
        both.query(flush)
        assert not place.exists()
        backup.execute("BACKUP STAGE END")
    other.close()


def test_a_checkpoint_at_the_position_of_another_backup_is_refused(
    both: Server, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho Starting BACKUP STAGE START\nexec sleep 120\n")
    slow.chmod(0o755)
    tool = [str(TOOL), "--json", "backup", str(tmp_path / "backups"), "--with-innodb"]
    tool += ["--mariadb-backup", str(slow), "--socket", str(both.socket), "--user", "root"]
    with both.connect("d") as other, other.cursor() as cursor:
        cursor.execute("BACKUP STAGE START")
        cursor.execute("BACKUP STAGE BLOCK_COMMIT")
        with subprocess.Popen(tool, stderr=subprocess.PIPE, text=True) as running:
            deadline = time.monotonic() + 60
            while running.poll() is None and time.monotonic() < deadline:
                both.query("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS")
            _, said = running.communicate(timeout=60)
        cursor.execute("BACKUP STAGE END")
    assert running.returncode == 3, said
    assert "another backup" in said
    assert not list((both.data / "#firn").glob("checkpoint-*"))


def test_only_one_session_arms_at_a_time(both: Server, tmp_path: Path) -> None:
    arm = "SET GLOBAL firn_backup_checkpoint = %s"
    with both.connect("d") as one, one.cursor() as cursor, both.connect("d") as two:
        cursor.execute(arm, [str(tmp_path / "one")])
        cursor.execute(arm, [str(tmp_path / "again")])
        with two.cursor() as other:
            with pytest.raises(pymysql.err.MySQLError, match="another session"):
                other.execute(arm, [str(tmp_path / "two")])
            cursor.execute("SET GLOBAL firn_backup_checkpoint = ''")
            other.execute(arm, [str(tmp_path / "two")])


def test_databases_with_odd_names_and_what_killed_backups_have_left(
    both: Server, own_server: Callable[..., Server], tmp_path: Path
) -> None:
    for engine in ("FIRN", "InnoDB"):
        both.query(f"CREATE DATABASE xtrabackup_{engine}")
        both.query(f"CREATE TABLE xtrabackup_{engine}.t (id INT PRIMARY KEY) ENGINE={engine}")
        both.query(f"INSERT INTO xtrabackup_{engine}.t VALUES (7)")
    places = [both.data / "#firn", tmp_path / "copies"]
    for place in places:
        # No process has such a number.
        left = place / "checkpoint-20260131T235959Z-9000012.copy"
        left.mkdir(parents=True)
        (left / "data").touch()
    target = tmp_path / "backups"
    report = back_up(both, target, "--copy-dir", places[1])
    assert len([note for note in report["notes"] if "left behind" in note]) == 2
    assert [list(place.glob("checkpoint-*")) for place in places] == [[], []]
    copy = restored(own_server, target, "latest")
    for engine in ("FIRN", "InnoDB"):
        assert copy.query(f"SELECT * FROM xtrabackup_{engine}.t") == ((7,),)


def test_who_may_not_write_files_may_not_arm(both: Server, tmp_path: Path) -> None:
    both.query("GRANT SUPER ON *.* TO someone@localhost")
    with (
        both.connect("", user="someone", password="x") as other,
        other.cursor() as cursor,
        pytest.raises(pymysql.err.MySQLError) as refused,
    ):
        cursor.execute("SET GLOBAL firn_backup_checkpoint = %s", [str(tmp_path / "c")])
    assert refused.value.args[0] == 1227


def _wait_for(done: Callable[[], int]) -> int:
    """Waits until `done` returns something, and returns that."""
    deadline = time.monotonic() + 60
    while not (result := done()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return result


def _number(file: Path) -> int:
    """The number in a file; 0 if it is not there yet."""
    text = file.read_text(encoding="utf-8").strip()
    return int(text or 0)


def _runs(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    # The process may end between the opening of the file and the read.
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_backup_that_is_killed_is_cleared_away_by_the_next(
    both: Server, tmp_path: Path, sent: signal.Signals
) -> None:
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\necho $$ > "$(dirname "$0")/begun"\nexec sleep 600\n')
    slow.chmod(0o755)
    target = tmp_path / "backups"
    tool = ["backup", str(target), "--with-innodb", "--mariadb-backup", str(slow)]
    with subprocess.Popen([str(TOOL), *tool, "--socket", both.socket, "--user", "root"]) as running:
        copying = _wait_for(lambda: (tmp_path / "begun").exists() and _number(tmp_path / "begun"))
        assert list((both.data / "#firn").glob("checkpoint-*.copy"))
        assert _runs(copying)
        running.send_signal(sent)
    # However the backup ends, the copying program ends with it.
    _wait_for(lambda: not _runs(copying))
    left = list((both.data / "#firn").glob("checkpoint-*"))
    if sent == signal.SIGTERM:
        assert not left
        return
    assert left
    _await_disarmed(both)
    report = back_up(both, target)
    assert any("left behind" in note for note in report["notes"])
    assert not list((both.data / "#firn").glob("checkpoint-*"))
