"""The memory of the server, beyond what it takes without FIRN's work, stays within the limit.

Each test compares peaks of the resident memory: of the server under FIRN's work, and of the same
server before. With many connections, "before" is the same connections and statements with InnoDB,
because the server itself takes a MiB for each connection. The test allows a tenth of
`firn_memory_limit` and 32 MiB more, because the server takes memory for other statements, and the
code of the engine counts, too. What the engine reports must stay within a tenth of the limit; with
more than 300 connections, sessions may take more than their half of it.

FIRN_TEST_MEMORY_ROWS (20000000, say), FIRN_TEST_MEMORY_CONNECTIONS (2000) and
FIRN_TEST_MEMORY_SECONDS make tables, transactions, and the number of connections larger.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from server import ENGINE, IS_FIRN, Server
from sysbench import Load

CONNECTIONS = int(os.environ.get("FIRN_TEST_MEMORY_CONNECTIONS", "300"))
ROWS = int(os.environ.get("FIRN_TEST_MEMORY_ROWS", "200000"))
SECONDS = int(os.environ.get("FIRN_TEST_MEMORY_SECONDS", "2"))
LIMITS_OF_CONNECTIONS = [64] if CONNECTIONS <= 300 else [64, 256, 1024]
WORKLOADS_OF_CONNECTIONS = ("oltp_read_write", "oltp_read_only")
# Transactions of each connection: enough that it has run all statements of the workload.
TRANSACTIONS = 3
# Rows of each table for each connection: enough that few transactions meet on a row. Otherwise
# thousands of connections spend the time on deadlocks, under any engine.
ROWS_OF_CONNECTION = 50
MIB = 1 << 20
# Thousands of connections find no free page in the smallest pool, and InnoDB stands still.
INNODB_POOL = (8 if CONNECTIONS <= 300 else 512) * MIB

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


def outside_heap(server: Server) -> int:
    """Resident memory of the server without the C library's heap, from which the server and the
    handlers take theirs. FIRN's core has an allocator of its own."""
    assert server.process is not None
    kib = 0
    counts = False
    for line in Path(f"/proc/{server.process.pid}/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            counts = not line.endswith("[heap]")
        elif counts and line.startswith("Rss:"):
            kib += int(line.split()[1])
    return kib << 10


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
            f"--innodb-buffer-pool-size={INNODB_POOL}",
            "--innodb-flush-log-at-trx-commit=2",
            "--back-log=2000",
            "--table-open-cache=8000",
            "--max-prepared-stmt-count=1000000",
        )
        self.server.query("CREATE DATABASE d")
        self.server.query("CREATE DATABASE other")
        self.before = peak(self.server)
        self.before_outside_heap = 0
        # With thousands of connections the server's own heap has GiB, and grows by a percent or
        # two from run to run, under any engine.
        self.heap_noise = 0

    def allowed(self, memory: dict[str, int]) -> float:
        """Bytes that FIRN may use."""
        # Sessions and what is not counted may exceed the half of the limit that they are allowed.
        fixed = memory["sessions"] + memory["not counted"]
        beyond = max(0, fixed - self.limit // 2) if CONNECTIONS > 300 else 0
        return self.limit * 1.1 + beyond

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
        while (memory := parts(self.server))["total"] > self.allowed(memory):
            assert time.monotonic() < deadline, (report, memory)
            time.sleep(0.1)
        for part, size in memory.items():
            print(f"    {part}: {size / MIB:.1f}")
        assert taken <= self.limit * 1.1 + 32 * MIB + self.heap_noise, report
        forget_peak(self.server)

    @contextlib.contextmanager
    def watched(self, judge: bool) -> Iterator[None]:
        """Watches what FIRN reports, and the resident memory outside the C library's heap.

        Fails if a watch that judges finds more than the limit allows beyond one that does not.
        """
        over: list[dict[str, int]] = []
        most = looks = 0
        done = threading.Event()

        def watch() -> None:
            nonlocal most, looks
            while not done.wait(0.2):
                looks += 1
                most = max(most, outside_heap(self.server))
                memory = parts(self.server)
                if judge and memory["total"] > self.allowed(memory):
                    over.append(memory)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        if not judge:
            self.before_outside_heap = max(self.before_outside_heap, most)
            return
        taken = most - self.before_outside_heap
        print(f"outside the heap {taken / MIB:.0f} MiB")
        # The allocator's figures may be a moment old, and background threads need a moment to give
        # memory back.
        assert len(over) <= max(2, looks // 4), over
        assert taken <= self.limit * 1.1 + 32 * MIB, taken / MIB


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

    # The server itself needs memory for connections, statements and open tables. The same
    # statements run with InnoDB first, to measure it. InnoDB's buffer pool stays in memory during
    # the rest. The server's memory grows until all connections have run all statements at once.
    rows = ROWS_OF_CONNECTION * CONNECTIONS if CONNECTIONS > 300 else 10_000
    other = load("other", "InnoDB", rows)
    other.prepare(4)
    for workload in WORKLOADS_OF_CONNECTIONS:
        for _ in range(3):
            limited.before = peak(server)
            with limited.watched(judge=False):
                other.run_transactions(workload, CONNECTIONS, TRANSACTIONS)
            if peak(server) < limited.before + 2 * MIB:
                break
    limited.before = peak(server)
    limited.heap_noise = limited.before // 20 if CONNECTIONS > 300 else 0
    server.query("FLUSH TABLES")
    forget_peak(server)
    firn = load("d", ENGINE, max(ROWS // 4, rows))
    firn.prepare(4)
    limited.check("prepare")
    for workload in ("oltp_read_write", "oltp_write_only", "oltp_point_select"):
        assert firn.run(workload, 8, SECONDS) > 0
        limited.check(workload)
    for workload in WORKLOADS_OF_CONNECTIONS:
        with limited.watched(judge=True):
            firn.run_transactions(workload, CONNECTIONS, TRANSACTIONS)
        limited.check(f"{workload} with {CONNECTIONS} connections")


def test_idle_sessions_count_and_keep_little(own_server: Make) -> None:
    tables, sessions = 4, 100
    server = Limited(own_server, 128).server
    for table in range(tables):
        server.query(
            f"CREATE TABLE d.t{table} (id INT PRIMARY KEY, k INT, c CHAR(120), KEY (k)) "
            f"ENGINE={ENGINE}"
        )
        server.query(
            f"INSERT INTO d.t{table} SELECT seq, seq % 97, SHA2(seq, 384) FROM mysql.seq_1_to_5000"
        )

    def settled() -> dict[str, int]:
        """The parts once the allocator's last reading is younger than this call."""
        time.sleep(0.3)
        return parts(server)

    before = settled()
    with contextlib.ExitStack() as stack:
        for number in range(sessions):
            session = stack.enter_context(closing(server.connect("d")))
            cursor = stack.enter_context(session.cursor())
            # Under LOCK TABLES each session keeps handlers of its own, with their cursors.
            cursor.execute("LOCK TABLES " + ", ".join(f"t{table} READ" for table in range(tables)))
            for table in range(tables):
                cursor.execute(f"SELECT c FROM t{table} WHERE id = {number}")
                cursor.execute(f"SELECT MAX(c) FROM t{table} WHERE id BETWEEN 100 AND 300")
                cursor.execute(f"SELECT MAX(c) FROM t{table} FORCE INDEX (k) WHERE k = {number}")
        during = settled()
    counted = (during["sessions"] - before["sessions"]) / sessions
    # A session and four cursors.
    assert 5 * 1024 <= counted <= 24 * 1024, (before, during)
    uncounted = (during["not counted"] - before["not counted"]) / sessions
    assert uncounted <= 16 * 1024, (before, during)
    # The server ends a session a moment after its client has gone, and then keeps its handlers in
    # the table cache. FLUSH TABLES closes only those that no session uses any more.
    for _ in range(300):
        server.query("FLUSH TABLES")
        after = settled()
        if after["sessions"] <= before["sessions"] + 64 * 1024:
            break
    assert after["sessions"] <= before["sessions"] + 64 * 1024, (before, after)


@pytest.mark.parametrize(
    ("column", "size", "sessions", "temporary"),
    [
        ("LONGBLOB", 8 * MIB, 10, False),
        ("LONGBLOB", 8 * MIB, 10, True),
        ("VARCHAR(60000) CHARACTER SET latin1", 60_000, 100, False),
    ],
)
def test_idle_cursors_keep_no_large_values(
    own_server: Make, column: str, size: int, sessions: int, temporary: bool
) -> None:
    server = Limited(own_server, 128).server
    server.query("SET GLOBAL max_allowed_packet = 64 << 20")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v {column}) ENGINE={ENGINE}")
    server.query(f"INSERT INTO d.t VALUES (1, 'small'), (2, REPEAT('x', {size}))")
    before = parts(server)
    with contextlib.ExitStack() as stack:
        for _ in range(sessions):
            session = stack.enter_context(closing(server.connect("d")))
            cursor = stack.enter_context(session.cursor())
            if temporary:
                cursor.execute(f"CREATE TEMPORARY TABLE u (id INT, v {column}) ENGINE={ENGINE}")
                cursor.execute("INSERT INTO u SELECT * FROM t")
                # An update reads through the cursor, and its reset comes before its unlock.
                cursor.execute("UPDATE u SET v = REVERSE(v)")
            else:
                cursor.execute("LOCK TABLES t READ")
                cursor.execute("SELECT LENGTH(CONCAT(v, '')) FROM t WHERE id = 2")
                assert cursor.fetchone() == (size,)
        time.sleep(0.3)
        during = parts(server)

    def not_counted(memory: dict[str, int]) -> int:
        # Each thread that has decompressed a block keeps a context of ZSTD, of 30 KB.
        return memory["not counted"] - memory["of these, ZSTD"]

    kept = not_counted(during) - not_counted(before)
    assert kept < sessions * size / 3 + 4 * MIB, (before, during)


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
    assert "unused pages kept 500 ms, pieces kept by threads up to 256 bytes" in engine_status
