"""Hundreds of sessions update one row; some time out, some are killed. The count is exact.

FIRN_TEST_HOT_SESSIONS and FIRN_TEST_HOT_SECONDS make the test longer. `firn-lab hot-row` measures
the same with 10,000 sessions.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest
from server import ENGINE, IS_FIRN, REPOSITORY, Server

sys.path.insert(0, str(REPOSITORY / "lab" / "src"))

from firn_lab.hot_row.sessions import QUERY_KILLED, TIMED_OUT, HotRow, Mix

SESSIONS = int(os.environ.get("FIRN_TEST_HOT_SESSIONS", "500"))
SECONDS = float(os.environ.get("FIRN_TEST_HOT_SECONDS", "3"))
# Less than the 50 s after which plain sessions time out, too.
BLOCKED_SECONDS_MAX = 45.0


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
        errors: Counter[int] = Counter()
        deadline = time.monotonic() + BLOCKED_SECONDS_MAX
        while not (errors[TIMED_OUT] and errors[QUERY_KILLED]):
            assert time.monotonic() < deadline, errors
            blocked = row.round(0.0, 1.5, drain=False)
            assert blocked.commits == 0
            errors += blocked.errors
            # The pool begins a few statements only while the row is held, perhaps no hasty one, and
            # the kills wait behind the others.
            if threads == "pool-of-threads":
                break
        holder.close()
        deadline = time.monotonic() + 60
        while row.round(0.0, SECONDS).commits == 0:
            assert time.monotonic() < deadline
        assert row.check() == []
        if IS_FIRN:
            # No wait, and no lock of a killed or timed out session is left.
            for view in ("firn_lock_waits", "firn_locks"):
                deadline = time.monotonic() + 60
                while left := server.query(f"SELECT * FROM information_schema.{view}"):
                    # A session that was killed may not have ended yet.
                    assert time.monotonic() < deadline, left
                    time.sleep(0.1)
        server.crash_and_recover()
        assert row.check() == []
