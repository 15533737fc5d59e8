"""The memory of the server, beyond what it takes without FIRN's work, stays within the limit.

Each test compares peaks of the resident memory: of the server under FIRN's work, and of the same
server before. It allows a tenth of `firn_memory_limit` and 32 MiB more, because the server itself
takes memory for the statements, and the code of the engine counts, too. What the engine reports
must stay within a tenth of the limit.

FIRN_TEST_MEMORY_ROWS (20000000, say), FIRN_TEST_MEMORY_CONNECTIONS (2000) and
FIRN_TEST_MEMORY_SECONDS make tables, transactions, and the number of connections larger.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from server import ENGINE, IS_FIRN, Server
from sysbench import Load

CONNECTIONS = int(os.environ.get("FIRN_TEST_MEMORY_CONNECTIONS", "300"))
ROWS = int(os.environ.get("FIRN_TEST_MEMORY_ROWS", "200000"))
SECONDS = int(os.environ.get("FIRN_TEST_MEMORY_SECONDS", "2"))
# A connection takes some 40 KiB, so the limit follows their number.
LIMITS_OF_CONNECTIONS = [64] if CONNECTIONS <= 300 else [256, 1024]
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about the memory limit of FIRN")

Make = Callable[..., Server]


@pytest.fixture(autouse=True)
def _one_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the memory of the server itself repeatable.

    With hundreds of connections, the C library's arenas grow by chance from run to run, by tens of
    MiB, under any engine.
    """
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")


def peak(server: Server) -> int:
    """Largest resident memory of the server since `forget_peak`."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def resident(server: Server) -> int:
    """Resident memory of the server."""
    assert server.process is not None
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def forget_peak(server: Server) -> None:
    """Makes the present resident memory the peak."""
    assert server.process is not None
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def parts(server: Server) -> dict[str, int]:
    """Memory by component, as FIRN reports it."""
    rows = server.query("SELECT used_by, bytes FROM information_schema.firn_memory")
    return {str(part): int(size) for part, size in rows}


class Limited:
    """A server with a memory limit, and its peak before FIRN has any work."""

    def __init__(self, own_server: Make, limit_mib: int) -> None:
        self.limit = limit_mib * MIB
        self.server = own_server(
            f"--firn-memory-limit={self.limit}",
            f"--max-connections={CONNECTIONS + 50}",
            "--innodb-buffer-pool-size=8M",
            "--innodb-flush-log-at-trx-commit=2",
            "--back-log=2000",
            "--table-open-cache=8000",
            "--max-prepared-stmt-count=1000000",
        )
        self.server.query("CREATE DATABASE d")
        self.server.query("CREATE DATABASE other")
        self.before = peak(self.server)

    def check(self, phase: str) -> None:
        """Fails if the peak of the phase is over the limit; begins the next phase."""
        taken = peak(self.server) - self.before
        now = resident(self.server) - self.before
        report = (
            f"{phase}: {taken / MIB:.0f} MiB of {self.limit / MIB:.0f}, {taken / self.limit:.2f}, "
            f"{now / MIB:.0f} now"
        )
        print(report)
        # Background threads may be about to give memory back.
        deadline = time.monotonic() + 60
        while (memory := parts(self.server))["total"] > self.limit * 1.1:
            assert time.monotonic() < deadline, (report, memory)
            time.sleep(0.1)
        for part, size in memory.items():
            print(f"    {part}: {size / MIB:.1f}")
        assert taken <= self.limit * 1.1 + 32 * MIB, report
        forget_peak(self.server)


@pytest.mark.parametrize("limit_mib", [32, 64])
def test_loads_and_large_transactions(own_server: Make, limit_mib: int) -> None:
    limited = Limited(own_server, limit_mib)
    with (
        closing(limited.server.connect("d", read_timeout=7200)) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, k INT, c CHAR(120), pad CHAR(60), KEY (k)) "
            f"ENGINE={ENGINE}"
        )
        cursor.execute(
            "INSERT INTO t SELECT seq, (seq * 7919) % 1000003, SHA2(seq, 384), SHA1(seq) "
            f"FROM mysql.seq_1_to_{ROWS}"
        )
        limited.check("insert")
        cursor.execute("UPDATE t SET k = k + 1, c = REVERSE(c)")
        limited.check("update")
        cursor.execute(f"CREATE TABLE u (KEY (c)) ENGINE={ENGINE} SELECT * FROM t")
        limited.check("create as select")
        cursor.execute("ALTER TABLE u ADD KEY (pad), FORCE")
        limited.check("alter")
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT LEFT(c, 2)) FROM u FORCE INDEX (c)")
        assert cursor.fetchone() == (ROWS, 256)
        limited.check("scan")
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM u WHERE id % 2")
        limited.check("delete")
        cursor.execute("ROLLBACK")
        cursor.execute("SELECT COUNT(*) FROM u")
        assert cursor.fetchone() == (ROWS,)
        limited.check("rollback")


@pytest.mark.parametrize("limit_mib", LIMITS_OF_CONNECTIONS)
def test_load_by_threads_and_many_connections(own_server: Make, limit_mib: int) -> None:
    limited = Limited(own_server, limit_mib)
    server = limited.server

    def load(database: str, engine: str, rows: int) -> Load:
        return Load(server.socket, database, engine, 4, rows)

    # What the connections, their statements and open tables take in the server itself.
    other = load("other", "InnoDB", 10_000)
    other.prepare(4)
    for _ in range(3):
        limited.before = peak(server)
        other.run("oltp_read_write", CONNECTIONS, SECONDS)
        if peak(server) < limited.before + 2 * MIB:
            break
    limited.before = peak(server)
    server.query("FLUSH TABLES")
    forget_peak(server)
    firn = load("d", ENGINE, ROWS // 4)
    firn.prepare(4)
    limited.check("prepare")
    for workload in ("oltp_read_write", "oltp_write_only", "oltp_point_select"):
        assert firn.run(workload, 8, SECONDS) > 0
        limited.check(workload)
    for workload in ("oltp_read_write", "oltp_read_only"):
        assert firn.run(workload, CONNECTIONS, SECONDS) > 0
        limited.check(f"{workload} with {CONNECTIONS} connections")


@pytest.mark.parametrize("limit_mib", [24, 256])
def test_a_changed_limit_counts_at_once(own_server: Make, limit_mib: int) -> None:
    limited = Limited(own_server, 128)
    server = limited.server
    firn = Load(server.socket, "d", ENGINE, 1, 200_000)
    firn.prepare(1)
    server.query("SELECT COUNT(*), MAX(c) FROM d.sbtest1 FORCE INDEX (PRIMARY)")
    firn.run("oltp_read_only", 4, 1)
    # More than the lower limit allows.
    assert parts(server)["total"] > 1.5 * 24 * MIB
    limited.limit = limit_mib * MIB
    server.query(f"SET GLOBAL firn_memory_limit = {limited.limit}")
    firn.run("oltp_read_only", 4, 1)
    # Background threads give back the memory that the lower limit does not allow.
    deadline = time.monotonic() + 60
    while (now := resident(server) - limited.before) > limited.limit * 1.1 + 32 * MIB:
        assert time.monotonic() < deadline, now / MIB
        time.sleep(0.1)
    forget_peak(server)
    firn.run("oltp_read_write", 4, 2)
    limited.check("changed")
    memory = parts(server)
    assert memory["allocator: allocated"] <= memory["allocator: active"]
    assert memory["allocator: active"] <= memory["allocator: resident"]
    status = server.query("SHOW GLOBAL STATUS LIKE 'Firn_resident_bytes'")
    assert int(status[0][1]) > 0
    # The allocator has found its options, which depends on how the library was linked.
    engine_status = server.query("SHOW ENGINE FIRN STATUS")[0][2]
    assert "unused pages kept 500 ms, pieces kept by threads up to 1024 bytes" in engine_status
