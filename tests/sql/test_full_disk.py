"""A completely full disk: DROP, TRUNCATE and DELETE work, and no acknowledged row is lost.

The data directory is a small tmpfs, which needs root. FIRN and InnoDB share it, which shows the
abilities of InnoDB on a full disk, too. FIRN_TEST_FULL_DISK_ROUNDS is the number of rounds. Each
round fills the disk, frees space, kills the server and starts it on a disk that is full again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from server import IS_FIRN, NO_PURGE, Server

ROUNDS = int(os.environ.get("FIRN_TEST_FULL_DISK_ROUNDS", "2"))
DISK_MIB = 192
# Rows of a table: so many that it has files of its own, which a DROP can delete without a rewrite.
ROWS = {"FIRN": 25_000, "InnoDB": 2_000}
RESUME_SECONDS_MAX = 60.0

OPTIONS = [
    "--loose-firn-memtable-size=4194304",
    "--loose-firn-wal-segment-size=4194304",
    # The server writes its own startup files to another disk, because a server that cannot start
    # does not test an engine.
    "--innodb-temp-data-file-path=../ibtmp1:12M:autoextend",
    NO_PURGE,
]
FULL = {1021, 1030, 1114, 1296, 3019}


@contextlib.contextmanager
def small_disk(server: Server) -> Iterator[Path]:
    """Puts the data directory of a stopped server on a small file system."""
    installed = server.directory / "installed"
    server.data.rename(installed)
    server.data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(server.data)]
    subprocess.run(mount, check=True)
    try:
        shutil.copytree(installed, server.data, dirs_exist_ok=True)
        yield server.data
    finally:
        server.kill()
        subprocess.run(["umount", "-l", str(server.data)], check=True)


def fill(disk: Path) -> None:
    """Fills the disk to the last free byte. The server may free some bytes afterwards."""
    with (disk / "filler").open("ab", buffering=0) as filler:
        for size in (1 << 20, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while filler.write(b"x" * size):
                    pass


def free(disk: Path) -> int:
    """Free bytes of the disk."""
    return shutil.disk_usage(disk).free


def tables(server: Server, number: int) -> None:
    """Creates tables of both engines: to delete from, to truncate, to drop."""
    for engine in ("FIRN", "InnoDB"):
        for name in ("deleted", "emptied", "dropped"):
            table = f"full.{engine}_{name}_{number}"
            server.query(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, k INT NOT NULL, "
                "v VARBINARY(400) NOT NULL, KEY (k)) "
                f"ENGINE={engine}"
            )
            server.query(
                f"INSERT INTO {table} SELECT seq, seq % 97, RANDOM_BYTES(400) "
                f"FROM seq_1_to_{ROWS[engine]}"
            )


def write_until_refused(server: Server, disk: Path, last: int) -> int:
    """Inserts rows, one per commit, until the disk is full.

    Returns the id of the last acknowledged row.
    """
    with contextlib.closing(server.connect("full")) as connection, connection.cursor() as cursor:
        for _ in range(40_000):
            try:
                cursor.execute("INSERT INTO kept VALUES (%s, REPEAT('r', 900))", (last + 1,))
            except pymysql.err.MySQLError as error:
                assert error.args[0] in FULL, error
                return last
            last += 1
            if last % 200 == 0:
                fill(disk)
    raise AssertionError("the disk never became full")


def kept(server: Server) -> tuple[int, int]:
    """Number of rows in `kept` and their highest id.

    A count by index and one by scan must agree.
    """
    count, highest = server.query("SELECT COUNT(*), MAX(id) FROM full.kept")[0]
    assert count == server.query("SELECT COUNT(*) FROM full.kept WHERE v = REPEAT('r', 900)")[0][0]
    return count, highest


def condition(server: Server) -> str:
    """The engine's condition, as the status variable shows it."""
    return dict(server.query("SHOW GLOBAL STATUS LIKE 'Firn_condition'"))["Firn_condition"]


def health(server: Server) -> str:
    """The engine's condition. The status variable and SHOW ENGINE FIRN STATUS must agree on it."""
    while True:
        before = condition(server)
        text = server.query("SHOW ENGINE FIRN STATUS")[0][2]
        if condition(server) == before:
            break
    (line,) = [line for line in text.splitlines() if line.startswith("health: ")]
    assert line.removeprefix("health: ").startswith(before), (line, before)
    return before


def exits(server: Server, engine: str, number: int) -> dict[str, str]:
    """Frees space by DELETE, TRUNCATE and DROP; returns for each "done" or its error."""
    statements = {
        "DELETE": f"DELETE FROM {engine}_deleted_{number} WHERE id <= {ROWS[engine]}",
        "TRUNCATE": f"TRUNCATE {engine}_emptied_{number}",
        "DROP": f"DROP TABLE {engine}_dropped_{number}",
    }
    if engine == "InnoDB":
        # InnoDB's TRUNCATE finds no space for its new file. After a kill, InnoDB 10.11.19 then does
        # not start ("Missing FILE_CREATE, FILE_DELETE or FILE_MODIFY before FILE_CHECKPOINT").
        del statements["TRUNCATE"]
    done = {}
    with contextlib.closing(server.connect("full")) as connection, connection.cursor() as cursor:
        for name, statement in statements.items():
            try:
                cursor.execute(statement)
                done[name] = "done"
            except pymysql.err.MySQLError as error:
                done[name] = str(error)
    return done


def wait_for(what: str, met: object) -> None:
    """Waits until `met()` is true."""
    deadline = time.monotonic() + RESUME_SECONDS_MAX
    while not met():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def resumes(server: Server, row: int) -> bool:
    """Whether the engine accepts a new row."""
    try:
        server.query("INSERT INTO full.kept VALUES (%s, REPEAT('r', 900))", (row,))
    except pymysql.err.MySQLError as error:
        assert error.args[0] in FULL, error
        return False
    return True


@pytest.mark.skipif(not IS_FIRN, reason="judges FIRN beside InnoDB")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
def test_a_full_disk_leaves_the_exits_open() -> None:
    server = Server(OPTIONS)
    try:
        with small_disk(server) as disk:
            server.start()
            server.query("CREATE DATABASE full")
            server.query("CREATE TABLE full.kept (id INT PRIMARY KEY, v TEXT NOT NULL) ENGINE=FIRN")
            last = 0
            for number in range(ROUNDS):
                last = one_round(server, disk, number, last)
            server.stop()
    finally:
        server.destroy()


def one_round(server: Server, disk: Path, number: int, last: int) -> int:
    """Fills the disk, frees space in each way, kills the server, and restarts it on a full disk."""
    tables(server, number)
    # The server has a log file of its own for DROP; make it allocate its blocks before the disk is
    # full.
    server.query("CREATE TABLE full.warm (id INT PRIMARY KEY) ENGINE=FIRN")
    server.query("DROP TABLE full.warm")
    assert health(server) == "good"
    fill(disk)
    last = write_until_refused(server, disk, last)
    fill(disk)
    assert kept(server) == (last, last)
    wait_for("the health stays good", lambda: health(server) == "disk full")

    firn = exits(server, "FIRN", number)
    print(f"round {number}: {last} rows; FIRN {firn}")
    assert set(firn.values()) == {"done"}, firn
    assert server.query(f"SELECT COUNT(*) FROM full.FIRN_deleted_{number}") == ((0,),)
    assert server.query(f"SELECT COUNT(*) FROM full.FIRN_emptied_{number}") == ((0,),)
    # Wait for the space that FIRN gives back, before InnoDB frees any.
    wait_for("no room came back", lambda: free(disk) > 8 << 20)
    innodb = exits(server, "InnoDB", number)
    assert set(innodb.values()) == {"done"}, innodb

    # Kill the server, and let another file take all free space before it starts again.
    server.kill()
    fill(disk)
    server.start()
    fill(disk)
    assert kept(server) == (last, last)
    assert health(server) != "writes stopped"
    assert server.query(f"SELECT COUNT(*) FROM full.FIRN_deleted_{number}") == ((0,),)
    assert server.query(f"SELECT COUNT(*) FROM full.FIRN_emptied_{number}") == ((0,),)

    (disk / "filler").unlink()
    wait_for("writes do not resume", lambda: resumes(server, last + 1))
    last += 1
    wait_for("the health stays bad", lambda: health(server) == "good")
    assert kept(server) == (last, last)
    server.crash_and_recover()
    assert kept(server) == (last, last)
    for name in (f"InnoDB_deleted_{number}", f"InnoDB_emptied_{number}", f"InnoDB_dropped_{number}",
                 f"FIRN_deleted_{number}", f"FIRN_emptied_{number}"):  # fmt: skip
        server.query(f"DROP TABLE IF EXISTS full.{name}")
    return last
