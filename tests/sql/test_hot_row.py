"""Hundreds of sessions update one row; some time out, some are killed. The count is exact.

FIRN_TEST_HOT_SESSIONS and FIRN_TEST_HOT_SECONDS make the test longer. `firn-lab hot-row` measures
the same with 10,000 sessions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
from server import ENGINE, IS_FIRN, REPOSITORY, Server

sys.path.insert(0, str(REPOSITORY / "lab" / "src"))

from firn_lab.hot_row.sessions import QUERY_KILLED, TIMED_OUT, HotRow, Mix

SESSIONS = int(os.environ.get("FIRN_TEST_HOT_SESSIONS", "500"))
SECONDS = float(os.environ.get("FIRN_TEST_HOT_SECONDS", "3"))


@pytest.mark.parametrize("threads", ["one-thread-per-connection", "pool-of-threads"])
def test_the_count_is_exact(own_server: Callable[..., Server], threads: str) -> None:
    server = own_server(f"--max-connections={SESSIONS + 50}", f"--thread-handling={threads}")
    server.query("CREATE DATABASE d")
    mix = Mix(SESSIONS, hasty=0.1, killed=0.2, kills_per_second=50)
    with HotRow(lambda: server.connect("d", autocommit=True), ENGINE, mix) as row:
        row.create()
        row.connect()
        # Another transaction holds the row first, so that hasty sessions time out for sure.
        holder = server.connect("d")
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE hot SET n = n + 0 WHERE id = 1")
        blocked = row.round(0.0, 1.5, drain=False)
        holder.close()
        done = row.round(0.0, SECONDS)
        assert blocked.commits == 0
        if threads == "one-thread-per-connection":
            assert blocked.errors[TIMED_OUT] > 0
            assert blocked.errors[QUERY_KILLED] > 0
        # The pool begins a few statements only while the row is held, perhaps no hasty one, and
        # the kills wait behind the others.
        assert done.commits > 0
        assert row.check() == []
        if IS_FIRN:
            # No wait, and no lock of a killed or timed out session is left.
            for view in ("firn_lock_waits", "firn_locks"):
                assert server.query(f"SELECT * FROM information_schema.{view}") == ()
        server.crash_and_recover()
        assert row.check() == []
