"""A commit for which others wait does not wait for a group of commits, as with InnoDB.

The server collects commits (binlog_commit_wait_count) unless an engine has reported that somebody
waits for a lock of the transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from server import ENGINE, IS_FIRN, Server

# Far longer than the test may take.
GROUP_WAIT_US = 600_000_000
PATIENCE_S = 120


def _in_background(run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _await_lock_wait(server: Server, engine: str) -> None:
    waits = "firn_lock_waits" if engine == ENGINE and IS_FIRN else "innodb_lock_waits"
    deadline = time.monotonic() + PATIENCE_S
    while server.query(f"SELECT COUNT(*) FROM information_schema.{waits}")[0][0] == 0:
        assert time.monotonic() < deadline, "nobody waits for the row"
        time.sleep(0.05)


@pytest.mark.parametrize("engine", sorted({"InnoDB", ENGINE}))
def test_a_commit_that_others_wait_for_goes_ahead(
    own_server: Callable[..., Server], engine: str
) -> None:
    server = own_server("--log-bin=bin", "--server-id=1")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE={engine}")
    server.query("INSERT INTO d.t VALUES (1, 0), (2, 0)")
    holder, waiter, other = (server.connect("d") for _ in range(3))
    server.query(f"SET GLOBAL binlog_commit_wait_usec = {GROUP_WAIT_US}")
    server.query("SET GLOBAL binlog_commit_wait_count = 2")
    with holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = 10 WHERE id = 1")
    waiting = _in_background(lambda: waiter.cursor().execute("UPDATE t SET v = v + 1 WHERE id = 1"))
    _await_lock_wait(server, engine)
    committing = _in_background(holder.commit)
    committing.join(PATIENCE_S)
    assert not committing.is_alive(), "the commit waits for a group"
    # The waiter and another commit are a group.
    grouped = _in_background(lambda: other.cursor().execute("UPDATE t SET v = 20 WHERE id = 2"))
    for thread in (waiting, grouped):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert server.query("SELECT v FROM d.t ORDER BY id") == ((11,), (20,))
