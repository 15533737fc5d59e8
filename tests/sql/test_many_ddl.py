"""Thousands of TRUNCATE, CREATE and DROP statements leave nothing behind.

Neither the manifest nor the memory grows with the number of statements. FIRN_TEST_DDL_STATEMENTS
makes the test longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from server import ENGINE, IS_FIRN, Server

STATEMENTS = int(os.environ.get("FIRN_TEST_DDL_STATEMENTS", "400"))
# The statements are measured in this many rounds.
ROUNDS = 20
MEMORY_ROOM = 4 << 20
RESIDENT_ROOM = 16 << 20
MANIFEST_MAX = 4 << 20

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="reads FIRN's files and views")


COUNTED = ("memtables", "write sets", "indexes and filters")


def memory(server: Server) -> int:
    """Memory of the engine without its caches, which fill up to their limits."""
    rows = server.query("SELECT used_by, bytes FROM information_schema.firn_memory")
    parts = {str(part): int(size) for part, size in rows}
    return sum(parts[part] for part in COUNTED)


def resident(server: Server) -> int:
    """Resident memory of the server's process."""
    assert server.process is not None
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def manifest(server: Server) -> int:
    """Bytes of all manifests."""
    size = 0
    for file in (server.data / "#firn").glob("MANIFEST-*"):
        # The server may delete the file between the listing and the call of stat.
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


@pytest.mark.parametrize("kind", ["truncate", "create"])
def test_many_statements_leave_nothing_behind(own_server: Callable[..., Server], kind: str) -> None:
    server = own_server("--loose-firn-memory-limit=67108864")
    server.query("CREATE DATABASE d")
    definition = f"(a INT AUTO_INCREMENT PRIMARY KEY, b INT, KEY (b)) ENGINE={ENGINE}"
    sizes = []
    with closing(server.connect("d")) as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t {definition}")
        for _ in range(ROUNDS):
            for _ in range(STATEMENTS // ROUNDS):
                cursor.execute("INSERT INTO t VALUES (NULL, 1), (NULL, 2)")
                if kind == "truncate":
                    cursor.execute("TRUNCATE TABLE t")
                else:
                    cursor.execute("DROP TABLE t")
                    cursor.execute(f"CREATE TABLE t {definition}")
            sizes.append((memory(server), resident(server), manifest(server)))
        cursor.execute("INSERT INTO t VALUES (NULL, 3)")
    early, late = sizes[: ROUNDS // 2], sizes[ROUNDS // 2 :]
    for part, room in enumerate((MEMORY_ROOM, RESIDENT_ROOM)):
        assert max(s[part] for s in late) <= max(s[part] for s in early) + room, sizes
    assert max(size[2] for size in sizes) <= MANIFEST_MAX, sizes
    server.kill()
    server.start()
    assert server.query("SELECT a, b FROM d.t") == ((1, 3),)
    indexes = "SELECT COUNT(*) FROM information_schema.firn_indexes WHERE table_schema = 'd'"
    assert server.query(indexes) == ((2,),)
