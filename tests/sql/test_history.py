"""Concurrent sessions see nothing that the isolation level forbids, also across kills.

FIRN_TEST_HISTORY_SECONDS is the time per level; `make soak` runs for half an hour or longer. A
history with findings is kept at the path in the message. InnoDB, which also locks gaps, validates
the judge: with the same sessions it must have no findings.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import history
import pytest
from server import IS_FIRN, Server

SECONDS = float(os.environ.get("FIRN_TEST_HISTORY_SECONDS", "20"))
ROUND_SECONDS = 4.0
# Small limits make memtables freeze and large transactions spill. The binary log makes each commit
# a two-phase commit.
SMALL = [
    "--loose-firn-memtable-size=1048576",
    "--loose-firn-txn-memory-limit=1048576",
    "--loose-firn-wal-segment-size=4194304",
    "--loose-firn-lock-wait-timeout=2",
    "--innodb-lock-wait-timeout=2",
]
BINLOG = ["--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW", "--server-id=1"]
# Half an hour writes tens of gigabytes of binary log, so let the server delete old files.
BINLOG += ["--max-binlog-size=64M", "--binlog-expire-logs-seconds=60"]
# With the names of optimistic tables behind the engine's; the others are pessimistic.
ENGINES = ["FIRN", "FIRN-psu", "FIRN-su", "InnoDB"] if IS_FIRN else ["InnoDB"]


@pytest.fixture
def engine_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the tested engine, and with the binary log for one of the levels."""
    engine, level = request.getfixturevalue("engine"), request.getfixturevalue("level")
    engine = engine.split("-")[0]
    binlog = BINLOG if level == "RR" and engine == "FIRN" else []
    server = Server([*SMALL, *binlog], engine=engine)
    server.start()
    yield server
    server.destroy()


def told(verdict: dict[str, Any]) -> str:
    """Text of the findings of a verdict. It keeps the history, at a path that the text names."""
    kept = Path(tempfile.mkdtemp(prefix="firn-history-")) / "history.jsonl"
    shutil.move(verdict["history"], kept)
    lines = [f"{finding['name']}: {finding['story']}" for finding in verdict["findings"]]
    return "\n".join([f"{len(lines)} findings in {kept}", *lines[:10]])


@pytest.mark.parametrize("level", ["RC", "RR", "SR"])
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_seen_that_the_level_forbids(
    engine_server: Server, engine: str, level: str, seed: int
) -> None:
    engine, _, optimistic = engine.partition("-")
    run = history.Run(engine_server, engine, level, Random(f"{seed} {level}"), optimistic)
    # InnoDB only validates the judge, so a short run suffices. Its server is never killed, because
    # its purge sometimes crashes afterwards.
    seconds = SECONDS if engine == "FIRN" else min(SECONDS, ROUND_SECONDS)
    if optimistic:
        # Two runs of half the time.
        seconds /= 2
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        kills = run.rounds % 2 if engine == "FIRN" else 0
        verdict = run.round(min(ROUND_SECONDS, seconds), kills)
        assert not verdict["findings"], told(verdict)
    print(f"{engine} {optimistic} {level}: {run.rounds} rounds: {run.totals}")
    assert run.totals["ok"] > 20
    assert run.totals["lock"] > 10


def test_a_driver_that_forgets_a_statement_is_found_out(server: Server, seed: int) -> None:
    """The judge finds a history wrong in which one commit that succeeded is recorded as failed."""
    run = history.Run(server, "InnoDB", "RC", Random(seed))
    forgetful = run.judge
    forgotten = [False]

    def forget(noted: list[dict[str, Any]], shared: history.Shared) -> dict[str, Any]:
        committed = [txn for txn in noted if txn["outcome"] == "ok"]
        readers: dict[int, set[int]] = {}
        for txn in committed:
            for row in (row for op in txn["ops"] for row in op.get("rows", [])):
                for element in row["log"]:
                    readers.setdefault(element, set()).add(txn["id"])

        def is_read(txn: dict[str, Any]) -> bool:
            """Whether another transaction has read what this one has appended."""
            done = [op for op in txn["ops"] if op["do"] == "append" and op["status"] == "done"]
            return any(readers.get(op["element"], set()) - {txn["id"]} for op in done)

        read = [txn for txn in committed if is_read(txn)]
        forgotten[0] = bool(read)
        if read:
            read[len(read) // 2]["outcome"] = "failed"
        return forgetful(noted, shared)

    run.judge = forget  # type: ignore[method-assign]
    deadline = time.monotonic() + 60
    while True:
        verdict = run.round(1)
        if forgotten[0]:
            break
        # On a busy machine, a round may be too short for a read of what another has written.
        assert time.monotonic() < deadline
    assert "G1a" in {finding["name"] for finding in verdict["findings"]}
