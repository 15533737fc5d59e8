"""No file can be opened: the limit on descriptors of the server is lowered from outside.

Commits go on, since the log has its next segment and its directory open. A statement that needs a
new file is refused, and works again once the limit is raised. Nothing stops for good.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator

import pymysql
import pytest
from pymysql.cursors import Cursor
from server import IS_FIRN, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="the log of FIRN is tested")

SECONDS = float(os.environ.get("FIRN_TEST_DESCRIPTORS_SECONDS", "10"))
WRITERS = 4


@contextlib.contextmanager
def no_descriptor(server: Server) -> Iterator[Callable[[], None]]:
    """Lowers the limit below the lowest free descriptor, so that no file can be opened.

    Gives a function that does so again, because the server may close a file.
    """
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def lower() -> None:
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        lowest = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))

    try:
        lower()
        yield lower
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


class Writer(threading.Thread):
    """Inserts rows, one per commit, through a session that is open already."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__()
        self.connection = server.connect("d")
        self.number = number
        self.rows = 0
        self.error: Exception | None = None
        self.ends = threading.Event()

    def run(self) -> None:
        with contextlib.closing(self.connection), self.connection.cursor() as cursor:
            while not self.ends.is_set():
                row = self.rows * WRITERS + self.number
                try:
                    cursor.execute("INSERT INTO kept VALUES (%s, REPEAT('r', 200))", (row,))
                except pymysql.err.MySQLError as error:
                    self.error = error
                    return
                self.rows += 1
                time.sleep(0.002)


def create_tables(cursor: Cursor, then: Callable[[], None]) -> None:
    """Creates some tables, each of which needs a new file."""
    for number in range(20):
        cursor.execute(f"CREATE TABLE refused_{number} (id INT PRIMARY KEY) ENGINE=FIRN")
        then()


def condition(server: Server) -> str:
    """Value of the status variable."""
    return dict(server.query("SHOW GLOBAL STATUS LIKE 'Firn_condition'"))["Firn_condition"]


def test_commits_go_on_without_descriptors(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.kept (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=FIRN")
    server.query("INSERT INTO d.kept VALUES (-1, '')")
    writers = [Writer(server, number) for number in range(WRITERS)]
    asking = server.connect("d")
    for writer in writers:
        writer.start()
    time.sleep(1.0)
    with no_descriptor(server) as lower:
        with (
            contextlib.closing(asking),
            asking.cursor() as cursor,
            pytest.raises(pymysql.err.MySQLError),
        ):
            create_tables(cursor, lower)
        time.sleep(SECONDS)
        # Each writer still goes on. The commit that is on its way does not count.
        before = [writer.rows for writer in writers]
        deadline = time.monotonic() + 60
        while any(writer.rows < rows + 2 for writer, rows in zip(writers, before, strict=True)):
            assert time.monotonic() < deadline, [writer.error for writer in writers]
            time.sleep(0.1)
    time.sleep(1.0)
    for writer in writers:
        writer.ends.set()
        writer.join()
    assert [writer.error for writer in writers] == [None] * WRITERS
    deadline = time.monotonic() + 60
    while (found := condition(server)) != "good":
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    # Statements that need files work again.
    server.query("CREATE TABLE d.made (id INT PRIMARY KEY) ENGINE=FIRN")
    rows = 1 + sum(writer.rows for writer in writers)
    assert server.query("SELECT COUNT(*) FROM d.kept")[0][0] == rows
    server.kill()
    server.start()
    assert server.query("SELECT COUNT(*) FROM d.kept")[0][0] == rows
    assert condition(server) == "good"
    assert server.query("SELECT COUNT(*) FROM d.made")[0][0] == 0
