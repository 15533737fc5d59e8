"""A damaged table file stops reads of its own rows, and nothing else.

Writers of another table and writers of the damaged one go on, beside the damage and over it, while
the tree is compacted. CHECK TABLE names the file, and DROP TABLE removes it.
FIRN_TEST_DAMAGE_SECONDS is the time for which they write.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from server import IS_FIRN, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

SECONDS = float(os.environ.get("FIRN_TEST_DAMAGE_SECONDS", "10"))
ROWS = 20_000
# L0 stops writers at 36 runs over one key, and slows them from nine on. On a busy machine it may
# come close to that. If nothing left L0, it would have a run for each flush, or writers would stop
# for good.
RUNS_MAX = 40
FLUSHES_MIN = 45
FLUSHES_SECONDS_MAX = 900.0
BATCH = 10
GONE_SECONDS_MAX = 60.0


class Writer(threading.Thread):
    """Replaces random rows, some per commit, and counts the commits that damage prevents."""

    def __init__(self, server: Server, table: str, seed: int) -> None:
        super().__init__()
        self.connection = server.connect("d")
        self.table = table
        self.random = random.Random(seed)
        self.rows: dict[int, int] = {}
        self.refused = 0
        self.error: Exception | None = None
        self.ends = threading.Event()

    def run(self) -> None:
        with contextlib.closing(self.connection), self.connection.cursor() as cursor:
            while not self.ends.is_set():
                value = self.random.randrange(1000)
                rows = self.random.sample(range(2 * ROWS), BATCH)
                values = ", ".join(f"({row}, {value}, RANDOM_BYTES(2000))" for row in rows)
                try:
                    cursor.execute(f"REPLACE INTO {self.table} VALUES {values}")
                    self.rows.update(dict.fromkeys(rows, value))
                except pymysql.err.MySQLError as error:
                    if "corrupt" not in str(error).lower() and "crashed" not in str(error).lower():
                        self.error = error
                        return
                    self.refused += 1


def file_of(server: Server, table: str) -> Path:
    """A large file in the last level that has rows of the table only."""
    files = server.query(
        "SELECT file_name, smallest_key, largest_key FROM information_schema.firn_files "
        "WHERE level = 6 ORDER BY stored_bytes DESC"
    )
    name = next(row[0] for row in files if table in row[1] and table in row[2])
    return next((server.data / "#firn").rglob(name))


def flip(file: Path) -> None:
    """Flips bits in the middle of the file, where its data blocks are."""
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 3)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 0x55]))


@pytest.mark.parametrize("running", [False, True])
def test_other_tables_go_on(own_server: Callable[..., Server], running: bool) -> None:
    server = own_server("--firn-memtable-size=4194304", "--firn-block-cache-size=8388608")
    server.query("CREATE DATABASE d")
    for table in ("hurt", "well"):
        server.query(
            f"CREATE TABLE d.{table} (id INT PRIMARY KEY, v INT, pad VARBINARY(2000)) ENGINE=FIRN"
        )
        server.query(
            f"INSERT INTO d.{table} SELECT 2 * seq, seq, RANDOM_BYTES(500) FROM seq_1_to_{ROWS}"
        )
        server.query(f"OPTIMIZE TABLE d.{table}")
    file = file_of(server, "d/hurt")
    if running:
        flip(file)
    else:
        server.stop()
        flip(file)
        server.start()
    writers = [Writer(server, table, seed) for seed, table in enumerate(("hurt", "well", "well"))]
    for writer in writers:
        writer.start()
    depth, flushes = 0, set()
    begun = time.monotonic()
    while time.monotonic() < begun + SECONDS or len(flushes) < FLUSHES_MIN:
        assert time.monotonic() < begun + FLUSHES_SECONDS_MAX, f"{len(flushes)} flushes"
        time.sleep(0.5)
        flushes.update(
            server.query(
                "SELECT number FROM information_schema.firn_compactions WHERE kind = 'flush'"
            )
        )
        runs = "SELECT COUNT(DISTINCT run) FROM information_schema.firn_files WHERE level = 0"
        depth = max(depth, server.query(runs)[0][0])
    for writer in writers:
        writer.ends.set()
        writer.join()
    assert [writer.error for writer in writers] == [None] * 3
    assert all(len(writer.rows) > 100 for writer in writers)
    assert [writer.refused for writer in writers[1:]] == [0, 0]
    assert depth < RUNS_MAX
    said = server.query("OPTIMIZE TABLE d.hurt")
    assert file.name in str(said), said
    assert server.query("OPTIMIZE TABLE d.well")[-1][3] == "OK"
    said = server.query("CHECK TABLE d.hurt EXTENDED")
    assert file.name in str(said), said
    assert server.query("CHECK TABLE d.well EXTENDED")[-1][3] == "OK"
    # Rows of the damaged table outside of the file read, and are the newest ones.
    hurt, read = writers[0], 0
    for row, value in list(hurt.rows.items())[:500]:
        with contextlib.suppress(pymysql.err.MySQLError):
            found = server.query("SELECT v FROM d.hurt WHERE id = %s", (row,))
            assert found == ((value,),), row
            read += 1
    assert read > 100
    server.query("DROP TABLE d.hurt")
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while file.exists():
        assert time.monotonic() < deadline, "the damaged file stays"
        time.sleep(0.2)
    assert server.query("OPTIMIZE TABLE d.well")[-1][3] == "OK"
    server.restart()
    assert server.query("CHECK TABLE d.well EXTENDED")[-1][3] == "OK"
