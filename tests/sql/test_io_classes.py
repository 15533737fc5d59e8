"""FIRN_IO, which counts reads of files by purpose; firn_debug_disk, which makes them slow."""

from __future__ import annotations

import time
from typing import Any

import pytest
from server import IS_FIRN, Server, ServerError

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

ROWS = 20_000

# Classes of reads that a server may make at any time, apart from statements. Those of `index` are
# among them, because files are opened.
BACKGROUND = ("backup", "compaction", "index", "load", "log")


def _reads(server: Server) -> dict[str, int]:
    rows = server.query("SELECT class, read_count FROM information_schema.firn_io")
    return {row[0]: row[1] for row in rows}


def _classes(server: Server, *statements: str) -> dict[str, int]:
    """The numbers of reads that the statements make, by class."""
    before = _reads(server)
    for statement in statements:
        server.query(statement)
    return {name: n - before[name] for name, n in _reads(server).items() if n > before[name]}


def _query_classes(server: Server, *statements: str) -> dict[str, int]:
    """As `_classes`, without the classes of background work."""
    classes = _classes(server, *statements)
    return {name: n for name, n in classes.items() if name not in BACKGROUND}


def _filled(make: Any, *options: str) -> Server:
    """A server with a table that is in files, and with empty caches."""
    server: Server = make(*options)
    server.query("CREATE DATABASE d")
    server.query(
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, pad VARCHAR(200), big LONGTEXT, KEY v (v))"
    )
    server.query(
        "INSERT INTO d.t SELECT seq, seq * 7919 % 20011, REPEAT(MD5(seq), 4), "
        f"IF(seq % 1000 = 0, REPEAT(MD5(seq), 1000), NULL) FROM seq_1_to_{ROWS}"
    )
    server.query("OPTIMIZE TABLE d.t")
    server.restart()
    return server


def test_each_statement_counts_in_its_class(own_server: Any) -> None:
    server = _filled(own_server)
    server.query("SELECT COUNT(*) FROM d.t WHERE id < 0")
    point = "SELECT pad FROM d.t WHERE id = 1234"
    assert _query_classes(server, point) == {"point": 1}
    assert _query_classes(server, point) == {}
    by_v = "SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (v) WHERE v < 40"
    entries = _query_classes(server, by_v)
    assert entries["range"] > 20
    assert set(entries) == {"range"}
    scan = _query_classes(server, "SELECT SUM(LENGTH(pad)) FROM d.t")
    assert scan["scan"] > 0
    assert set(scan) <= {"range", "scan"}
    # The length of a value is in its row.
    lengths = _query_classes(server, "SELECT SUM(LENGTH(big)) FROM d.t WHERE id IN (1000, 2000)")
    assert "blob" not in lengths, lengths
    blobs = _query_classes(server, "SELECT MIN(MD5(big)) FROM d.t WHERE id IN (1000, 2000)")
    assert blobs["blob"] >= 2, blobs
    values = _query_classes(server, "SELECT MIN(MD5(big)) FROM d.t")
    assert values["blob"] >= ROWS // 1000, values
    # Values out of line are in the class of the reader of their rows. They are never cached.
    check = _query_classes(server, "CHECK TABLE d.t")
    assert set(check) == {"verify"}
    assert check["verify"] >= ROWS // 1000, check
    build = _classes(server, "ALTER TABLE d.t ADD KEY big (big(8)), ALGORITHM=INPLACE")
    assert build["load"] >= ROWS // 1000, build
    assert not {"blob", "point", "scan", "verify"} & set(build), build
    server.query("UPDATE d.t SET v = v + 1")
    compaction = _classes(server, "OPTIMIZE TABLE d.t")
    assert compaction["compaction"] > 0, compaction
    for row in server.query("SELECT * FROM information_schema.firn_io"):
        name, source, reads, size, p50, p95, p99, slowest = row
        assert source == "file"
        if reads:
            assert size > 0
            assert p50 <= p95 <= p99 <= slowest, row
        else:
            assert (size, p50, p95, p99, slowest) == (0, None, None, None, None), name


def test_a_slow_disk(own_server: Any) -> None:
    disk = "--firn-debug-disk=3000us,2000iops,200MBps"
    server = _filled(own_server, disk, "--firn-flush-log-at-trx-commit=1")
    assert "firn_debug_disk is for tests" in server.log()
    server.query("SELECT pad FROM d.t WHERE id = 1234")
    point = server.query(
        "SELECT read_count, latency_us_p50 FROM information_schema.firn_io WHERE class = 'point'"
    )
    assert point[0][0] == 1
    assert point[0][1] >= 3000
    begun = time.monotonic()
    server.query("INSERT INTO d.t (id) VALUES (-1)")
    assert time.monotonic() - begun >= 0.003, "the commit waits for a sync of the log"
    assert server.query("SELECT @@firn_debug_disk") == (("3000us,2000iops,200MBps",),)
    server.stop()
    for wrong in ("fast", "120", "120us,120us"):
        with pytest.raises(ServerError):
            server.start([f"--firn-debug-disk={wrong}"])
        assert f"firn_debug_disk: '{wrong}' describes no disk" in server.log()
    with pytest.raises(ServerError):
        server.start(["--firn-debug-disk=20000000us"])
    assert "us is from 1 to 10000000" in server.log()
    server.start(["--firn-debug-disk="])
    assert server.query("SELECT COUNT(*) FROM d.t") == ((ROWS + 1,),)
