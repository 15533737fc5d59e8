"""SET GLOBAL firn_create_checkpoint: its result, its refusals, and the effect of BACKUP STAGE."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import crash_workload
import pymysql
import pytest
from server import IS_FIRN, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="checkpoints are FIRN's")


def open_copy(own_server: Callable[..., Server], source: Server, checkpoint: Path) -> Server:
    """Starts a server on the files of a checkpoint, with the definitions of its source."""
    copy = own_server(load_engine=False)
    copy.stop()
    for directory in source.data.iterdir():
        if directory.is_dir() and directory.name in ("d", crash_workload.DATABASE):
            target = copy.data / directory.name
            target.mkdir()
            for file in directory.iterdir():
                (target / file.name).write_bytes(file.read_bytes())
    checkpoint.rename(copy.data / "#firn")
    copy.load_engine = True
    copy.start()
    return copy


def test_a_checkpoint_under_load_is_consistent(
    own_server: Callable[..., Server], seed: int
) -> None:
    rng = Random(seed)
    server = own_server("--log-bin=bin", "--loose-firn-memtable-size=4194304")
    crash_workload.create(server, dict.fromkeys(crash_workload.TABLES, "FIRN"))
    clients = [crash_workload.Client(number, Random(rng.randrange(2**30))) for number in range(6)]
    kill = threading.Event()
    load = threading.Thread(target=crash_workload.write_until, args=(server, clients, kill))
    load.start()
    pauses = []
    checkpoints = []
    begun: list[list[int]] = []
    try:
        for number in range(4):
            time.sleep(1.0)
            path = server.directory / f"checkpoint{number}"
            with contextlib.closing(server.connect()) as session, session.cursor() as cursor:
                cursor.execute("SET SESSION firn_backup_client = 1")
                for stage in ("START", "FLUSH", "BLOCK_DDL"):
                    cursor.execute(f"BACKUP STAGE {stage}")
                start = time.monotonic()
                cursor.execute("BACKUP STAGE BLOCK_COMMIT")
                before = [client.acknowledged for client in clients]
                cursor.execute(f"SET GLOBAL firn_create_checkpoint = '{path}'")
                cursor.execute("SHOW MASTER STATUS")
                position = cursor.fetchone()
                after = [client.begun for client in clients]
                cursor.execute("BACKUP STAGE END")
                pauses.append((time.monotonic() - start) * 1000)
            info = (path / "CHECKPOINT").read_text().splitlines()
            # The checkpoint's last commit is the last one of the binary log.
            assert position is not None
            assert f"binlog {position[1]} ./{position[0]}" in info or (
                f"binlog {position[1]} {position[0]}" in info
            ), (position, info)
            checkpoints.append(path)
            begun.append([before, after])  # type: ignore[list-item]
    finally:
        kill.set()
        load.join()
    assert "mariadb-backup" not in server.log()
    for path, (before, after) in zip(checkpoints, begun, strict=True):
        copy = open_copy(own_server, server, path)
        then = [crash_workload.Client(client.number, client.rng) for client in clients]
        for client, least, most in zip(then, before, after, strict=True):
            client.acknowledged, client.begun = least, most  # type: ignore[assignment]
        crash_workload.verify(copy, then)
        copy.destroy()
    print(f"writers paused for {[round(ms, 1) for ms in pauses]} ms")


def test_what_is_refused(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT) ENGINE=FIRN")
    server.query("INSERT INTO d.t VALUES (1, 'one')")
    make = "SET GLOBAL firn_create_checkpoint = %s"
    here = server.directory

    server.query(make, "")
    server.query("SET GLOBAL firn_create_checkpoint = NULL")
    assert server.query("SELECT @@firn_create_checkpoint") in (((None,),), (("",),))
    for path, words in [
        (here, "exists"),
        (here / "missing" / "c", "no such directory"),
        ("x" * 600, "too long"),
    ]:
        with pytest.raises(pymysql.err.MySQLError, match=words):
            server.query(make, [str(path)])
    with pytest.raises(pymysql.err.MySQLError):
        server.query("SET SESSION firn_create_checkpoint = 'x'")

    server.query("CREATE USER u IDENTIFIED BY 'p'")
    with contextlib.closing(server.connect(user="u", password="p")) as session:
        cursor = session.cursor()
        for grant, words in [(None, "SUPER"), ("SUPER", "FILE"), ("FILE", None)]:
            if grant:
                server.query(f"GRANT {grant} ON *.* TO u")
                session.close()
                session.connect()
                cursor = session.cursor()
            expected = pytest.raises(pymysql.err.MySQLError, match=words) if words else None
            with expected or contextlib.nullcontext():
                cursor.execute(make, [str(here / "by_user")])
    assert (here / "by_user" / "CURRENT").is_file()

    allowed = here / "allowed"
    allowed.mkdir()
    server.restart([f"--secure-file-priv={allowed}"])
    with pytest.raises(pymysql.err.MySQLError, match="secure-file-priv"):
        server.query(make, [str(here / "elsewhere")])
    assert not (here / "elsewhere").exists()
    server.query(make, [str(allowed / "c")])
    server.query("INSERT INTO d.t VALUES (2, 'two')")
    copy = open_copy(own_server, server, allowed / "c")
    assert copy.query("SELECT * FROM d.t") == ((1, "one"),)
    assert copy.query("CHECK TABLE d.t EXTENDED")[0][3] == "OK"
    copy.query("INSERT INTO d.t VALUES (3, 'three')")
    assert server.query("SELECT id FROM d.t") == ((1,), (2,))


def test_a_checkpoint_on_another_file_system_is_a_copy(own_server: Callable[..., Server]) -> None:
    other = Path("/dev/shm")
    server = own_server()
    if not other.is_dir() or other.stat().st_dev == server.data.stat().st_dev:
        pytest.skip("no second file system")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    server.query("INSERT INTO d.t SELECT seq FROM seq_1_to_1000")
    with tempfile.TemporaryDirectory(dir=other) as fresh:
        path = Path(fresh) / "c"
        server.query("SET GLOBAL firn_create_checkpoint = %s", [str(path)])
        assert (path / "CURRENT").is_file()
        assert all(file.stat().st_nlink == 1 for file in path.iterdir())


def test_other_backups_are_warned_of(own_server: Callable[..., Server]) -> None:
    server = own_server()
    backup = ("START", "BLOCK_COMMIT", "END")

    def run(announced: bool) -> bool:
        before = server.log().count("mariadb-backup does not copy them")
        with contextlib.closing(server.connect()) as session, session.cursor() as cursor:
            if announced:
                cursor.execute("SET SESSION firn_backup_client = 1")
            for stage in backup:
                cursor.execute(f"BACKUP STAGE {stage}")
        return server.log().count("mariadb-backup does not copy them") > before

    assert not run(announced=False)
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    assert run(announced=False)
    assert not run(announced=True)
    server.query("DROP TABLE d.t")
    assert not run(announced=False)
