"""A server that is killed and then runs without the engine, but with a binary log, loses nothing.

In that run the engine's tables do not exist, and the server cannot ask the engine for its prepared
transactions. The next start with the engine finds transactions of the earlier run, whose numbers
were reused by the runs in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import crash_workload
import pymysql
import pytest
from pymysql.cursors import Cursor
from server import IS_FIRN, NO_PURGE, PLUGIN, SYSTEM_PLUGINS, Server, ServerError
from test_crash import COORDINATED, MIXED, SMALL, kill_under_load, new_clients

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="the server has the other engines built in")

ROUNDS = int(os.environ.get("FIRN_TEST_WITHOUT_ENGINE_ROUNDS", "4"))
SETTLED = "that an earlier run of the server prepared: "
LOADED = "--plugin-load-add=ha_firn"
FORCED = "--firn=FORCE_PLUS_PERMANENT"


class Engine:
    """The engine's library and files, which can be removed from the server and restored."""

    def __init__(self, server: Server, volume: Path | None) -> None:
        self.server = server
        self.volume = volume
        self.files = volume / "firn" if volume else server.data / "#firn"
        self.plugins = server.directory / "plugins"
        self.plugins.mkdir()
        for entry in SYSTEM_PLUGINS.iterdir() if SYSTEM_PLUGINS.is_dir() else ():
            (self.plugins / entry.name).symlink_to(entry)
        self.library = self.plugins / "ha_firn.so"
        self.library.unlink(missing_ok=True)
        self.library.symlink_to(PLUGIN.resolve())
        server.options.append(f"--plugin-dir={self.plugins}")
        if volume:
            server.options.append(f"--loose-firn-data-dir={self.files}")

    def ways(self) -> list[str]:
        """The ways to take the engine away from a server."""
        return ["library", "damage", *(["disk"] if self.volume else [])]

    @contextlib.contextmanager
    def without(self, way: str) -> Iterator[None]:
        """In the body, a server that starts has no engine, or one that cannot write."""
        if way == "library":
            away = self.library.with_suffix(".away")
            self.library.rename(away)
            yield
            away.rename(self.library)
        elif way == "damage":
            manifest = max(self.files.glob("MANIFEST-*"))
            sound = manifest.read_bytes()
            manifest.write_bytes(b"no manifest" + sound[11:])
            yield
            manifest.write_bytes(sound)
        else:
            assert self.volume is not None
            ballast = self.volume / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            yield
            ballast.unlink()

    def is_there(self) -> bool:
        """Whether the running server has the engine."""
        sql = "SELECT support FROM information_schema.engines WHERE engine = 'FIRN'"
        return self.server.query(sql) in ((("YES",),), (("DEFAULT",),))


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 128 MiB, or None if mounting is not permitted."""
    place = tmp_path / "volume"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, check=False)
    yield place if done.returncode == 0 else None
    if done.returncode == 0:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _server(
    own_server: Callable[..., Server], volume: Path | None, *options: str
) -> tuple[Server, Engine]:
    """A server that loads the engine, but starts without it if it is missing."""
    server = own_server(*options, load_engine=False)
    server.stop()
    engine = Engine(server, volume)
    server.options.append(LOADED)
    server.start()
    assert engine.is_there()
    return server, engine


def _use_numbers(server: Server, count: int) -> None:
    """Runs transactions on InnoDB alone.

    The server gives them numbers that the run with the engine has used.
    """
    server.query("CREATE TABLE IF NOT EXISTS mysql.other (id INT PRIMARY KEY) ENGINE=InnoDB")
    session = server.connect("mysql")
    with session.cursor() as cursor:
        for n in range(count):
            cursor.execute("REPLACE INTO other VALUES (%s)", (n,))
    session.close()


def test_kills_and_starts_without_the_engine(
    own_server: Callable[..., Server], seed: int, volume: Path | None
) -> None:
    rng = Random(seed)
    server, engine = _server(own_server, volume, *SMALL, *COORDINATED)
    crash_workload.create(server, MIXED)
    clients = new_clients(rng)
    session = server.connect(crash_workload.DATABASE)
    with session.cursor() as cursor:
        cursor.execute("CREATE TABLE xa (id INT PRIMARY KEY) ENGINE=FIRN")
        for sql in ("XA START 'x'", "INSERT INTO xa VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(sql)
    session.close()
    ways = engine.ways()
    for number in range(ROUNDS):
        if rng.random() < 0.3:
            server.query("FLUSH BINARY LOGS")
        kill_under_load(server, clients, rng)
        way = ways[number % len(ways)]
        with engine.without(way):
            for _ in range(rng.randrange(1, 3)):
                server.start()
                assert way == "disk" or not engine.is_there()
                _use_numbers(server, 400)
                if rng.random() < 0.5:
                    server.kill()
                else:
                    server.stop()
        server.start()
        crash_workload.verify(server, clients)
        print(f"round {number}, {way}: {sum(client.acknowledged for client in clients)} commits")
    assert any(client.acknowledged for client in clients)
    assert SETTLED in server.log(), "kills left nothing prepared"
    assert [bytes(row[3]) for row in server.query("XA RECOVER")] == [b"x"]
    server.query("XA COMMIT 'x'")
    assert server.query("SELECT * FROM crash.xa") == ((1,),)
    server.stop()


def _await_sync(cursor: Cursor) -> None:
    """Returns at the moment when the engine has synced its log, as it does once a second."""
    key = "id INT AUTO_INCREMENT PRIMARY KEY"
    cursor.execute(f"CREATE TABLE IF NOT EXISTS tick ({key}) ENGINE=FIRN")

    def syncs() -> object:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Firn_wal_syncs'")
        return cursor.fetchall()

    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, syncs()
        # The next sync is for the outcome of this transaction. There is none if the outcome was
        # synced before the first look.
        cursor.execute("INSERT INTO tick VALUES ()")
        before, until = syncs(), time.monotonic() + 3
        while time.monotonic() < until:
            if syncs() != before:
                return
            time.sleep(0.005)


def _commit_and_kill(server: Server, first: int, count: int) -> None:
    """Commits rows one by one, and kills the server.

    The engine's log does not have the outcomes of all these transactions yet, because it is not
    synced again between the last commit and the kill.
    """
    session = server.connect("d")
    with session.cursor() as cursor:
        _await_sync(cursor)
        for n in range(first, first + count):
            cursor.execute("INSERT INTO t VALUES (%s)", (n,))
    server.kill()
    with contextlib.suppress(pymysql.err.Error):
        session.close()


def _rows(server: Server) -> list[int]:
    return [row[0] for row in server.query("SELECT id FROM d.t ORDER BY id")]


BINLOG = ["--log-bin=bin", "--sync-binlog=0", "--binlog-format=ROW", "--server-id=1", NO_PURGE]


def _small(own_server: Callable[..., Server], *options: str) -> tuple[Server, Engine]:
    server, engine = _server(own_server, None, *(options or BINLOG))
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    return server, engine


def _run_without(server: Server, engine: Engine, *statements: str) -> None:
    """Starts and stops the server once without the engine."""
    with engine.without("library"):
        server.start()
        assert not engine.is_there()
        _use_numbers(server, 100)
        for sql in statements:
            server.query(sql)
        server.stop()


@pytest.mark.parametrize(
    "before",
    ["", "FLUSH BINARY LOGS", "RESET MASTER", "PURGE BINARY LOGS TO '{}'"],
    ids=["first_file", "rotated", "reset", "purged"],
)
def test_files_of_the_run_come_and_go(own_server: Callable[..., Server], before: str) -> None:
    server, engine = _small(own_server)
    server.query("INSERT INTO d.t VALUES (1)")
    if before.startswith("PURGE"):
        server.query("FLUSH BINARY LOGS")
    if before:
        server.query(before.format(server.query("SHOW MASTER STATUS")[0][0]))
    _commit_and_kill(server, 2, 5)
    _run_without(server, engine)
    # Without a binary log of its own, the server does not look into the existing ones.
    server.start(["--skip-log-bin"])
    assert _rows(server) == [1, 2, 3, 4, 5, 6]
    server.stop()
    server.start()
    assert _rows(server) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_cannot_be_read_at_first_is_noted_later(
    own_server: Callable[..., Server],
) -> None:
    server, engine = _small(own_server)
    server.query("INSERT INTO d.t VALUES (0)")
    server.restart()
    log = server.data / server.query("SHOW MASTER STATUS")[0][0]
    away = log.rename(server.directory / "away")
    for n in (1, 2):
        server.query(f"INSERT INTO d.t VALUES ({n})")
    assert server.log().count("cannot read the binary log in use") == 1
    away.rename(log)
    _commit_and_kill(server, 3, 5)
    _run_without(server, engine)
    server.start()
    assert _rows(server) == list(range(8))
    assert SETTLED in server.log()


def test_several_files_after_the_one_that_is_known(own_server: Callable[..., Server]) -> None:
    server, engine = _small(own_server, "--max-binlog-size=4096", *BINLOG)
    for first in range(0, 200, 40):
        _commit_and_kill(server, first, 40)
        _run_without(server, engine)
        server.start()
        assert _rows(server) == list(range(first + 40))


def test_a_missing_binary_log_is_named_and_can_be_put_back(
    own_server: Callable[..., Server],
) -> None:
    server, engine = _small(own_server)
    _commit_and_kill(server, 1, 5)
    logs = sorted(server.data.glob("bin.0*"))
    kept = server.directory / "kept"
    kept.mkdir()
    for log in logs:
        shutil.copy2(log, kept)
    with engine.without("library"):
        server.start()
        _use_numbers(server, 100)
        server.query("FLUSH BINARY LOGS")
        server.query(f"PURGE BINARY LOGS TO '{server.query('SHOW MASTER STATUS')[0][0]}'")
        server.kill()
        assert not logs[-1].exists()
    for _ in range(2):
        with pytest.raises(ServerError) as caught:
            server.start([FORCED])
        for words in (logs[-1].name, "are in doubt", "--tc-heuristic-recover=COMMIT"):
            assert words in str(caught.value)
    # Without the option that requires the engine, the server starts without the engine and keeps
    # everything.
    server.start()
    assert not engine.is_there()
    server.stop()
    for log in logs:
        shutil.copy2(kept / log.name, log)
    server.start([FORCED])
    assert _rows(server) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("told", ["COMMIT", "ROLLBACK"])
def test_the_server_decides_as_it_is_told(own_server: Callable[..., Server], told: str) -> None:
    server, engine = _small(own_server)
    server.query("INSERT INTO d.t VALUES (0)")
    _commit_and_kill(server, 1, 5)
    with engine.without("library"):
        server.start()
        _use_numbers(server, 100)
        server.stop()
    for log in server.data.glob("bin.*"):
        log.unlink()
    with pytest.raises(ServerError, match="decides them as --tc-heuristic-recover says"):
        server.start([f"--tc-heuristic-recover={told}"])
    server.start()
    assert _rows(server)[0] == 0
    assert len(_rows(server)) == 6 if told == "COMMIT" else len(_rows(server)) < 6


@pytest.mark.parametrize("way", ["library", "damage"])
def test_a_server_that_needs_the_engine_does_not_start_without(
    own_server: Callable[..., Server], way: str
) -> None:
    server, engine = _small(own_server)
    server.options.append(FORCED)
    server.restart()
    with pytest.raises(pymysql.err.MySQLError):
        server.query("UNINSTALL SONAME 'ha_firn'")
    _commit_and_kill(server, 1, 5)
    logs = sorted(server.data.glob("bin.0*"))
    with engine.without(way):
        for _ in range(2):
            with pytest.raises(ServerError, match="firn|FIRN"):
                server.start()
    # The server ended before it read or wrote any binary log.
    assert sorted(server.data.glob("bin.0*")) == logs
    server.start()
    assert _rows(server) == [1, 2, 3, 4, 5]
    assert SETTLED not in server.log(), "the server has its own binary log to ask"


def test_without_a_binary_log_nothing_is_left_behind(
    own_server: Callable[..., Server],
) -> None:
    """All acknowledged transactions over InnoDB and FIRN survive, and none stays in doubt."""
    server, engine = _small(own_server, NO_PURGE)
    server.query("CREATE TABLE d.i (id INT PRIMARY KEY) ENGINE=InnoDB")
    session: Any = server.connect("d")
    with session.cursor() as cursor:
        for n in range(1, 6):
            for sql in ("BEGIN", f"INSERT INTO t VALUES ({n})", f"INSERT INTO i VALUES ({n})"):
                cursor.execute(sql)
            cursor.execute("COMMIT")
    server.kill()
    _run_without(server, engine)
    server.start(["--log-bin=bin", "--server-id=1"])
    assert _rows(server) == [1, 2, 3, 4, 5]
