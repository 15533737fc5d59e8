"""The memory pool: memcached nodes that hold blocks of table files.

A table that the block cache cannot hold lies on a disk that is slow by firn_debug_disk, because
nobody asks a pool that is slower than the disk.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest
from memcached import Memcached, is_installed
from server import IS_FIRN, Server, ServerError

pytestmark = [
    pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself"),
    pytest.mark.skipif(not is_installed(), reason="the package memcached is missing"),
]

ROWS = 12_000
# So slow that every machine asks the pool.
SLOW_DISK = ("--firn-debug-disk=6000us", "--firn-block-cache-size=8M", "--firn-row-cache-size=0")
SESSIONS = 8
# A value in a node begins with them.
NAME_LEN = 16
NONCE_LEN = 24
WRONG_VALUE_FOR_VAR = 1231


@pytest.fixture
def nodes() -> Iterator[list[Memcached]]:
    """Two nodes."""
    both = [Memcached(), Memcached()]
    yield both
    for node in both:
        node.kill()


def _list(nodes: list[Memcached]) -> str:
    return ",".join(node.address for node in nodes)


def _pad(row: int, version: int) -> str:
    return hashlib.md5(f"{row}-{version}".encode()).hexdigest() * 60


def _filled(make: Any, nodes: list[Memcached], *options: str) -> Server:
    """A server with a table in files, whose pool is on."""
    pool = ("--firn-pool=ON", f"--firn-pool-nodes={_list(nodes)}")
    server: Server = make(*SLOW_DISK, *pool, *options)
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL, pad TEXT)")
    server.query(
        "INSERT INTO d.t SELECT seq, 0, REPEAT(MD5(CONCAT(seq, '-0')), 60) " f"FROM seq_1_to_{ROWS}"
    )
    server.query("OPTIMIZE TABLE d.t")
    return server


def _read(server: Server, ids: list[int]) -> None:
    """Reads rows that nobody has changed, in several sessions, and checks them."""

    def read(some: list[int]) -> None:
        with server.connect("d") as session, session.cursor() as cursor:
            for row in some:
                cursor.execute("SELECT v, pad FROM t WHERE id = %s", (row,))
                assert cursor.fetchone() == (0, _pad(row, 0))

    with ThreadPoolExecutor(SESSIONS) as sessions:
        list(sessions.map(read, [ids[n::SESSIONS] for n in range(SESSIONS)]))


def _wait_for(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def _sum(server: Server, column: str) -> int:
    rows = server.query(f"SELECT CAST(SUM({column}) AS SIGNED) FROM information_schema.firn_pool")
    return int(rows[0][0] or 0)


def _pool_reads(server: Server, *classes: str) -> int:
    rows = server.query(
        "SELECT class, read_count FROM information_schema.firn_io WHERE source = 'pool'"
    )
    return sum(count for name, count in rows if not classes or name in classes)


def test_blocks_come_from_the_pool_also_after_a_restart(
    own_server: Any, nodes: list[Memcached]
) -> None:
    server = _filled(own_server, nodes)
    # More blocks than the block cache can hold.
    ids = random.Random(1).sample(range(1, ROWS + 1), 3000)

    def comes_from_the_pool() -> bool:
        _read(server, ids)
        return _pool_reads(server, "point") > 200

    _wait_for(comes_from_the_pool, "blocks come from the pool")
    expected = sorted((node.address, "ON", 1) for node in nodes)
    _wait_for(
        lambda: sorted(
            server.query("SELECT node, state, items > 0 FROM information_schema.firn_pool")
        )
        == expected,
        "the nodes have values",
    )
    assert _sum(server, "hits") >= _pool_reads(server) > 200
    assert _sum(server, "wrong") == 0
    percent = server.query("SELECT MAX(point_hit_percent) FROM information_schema.firn_pool")
    assert 0 < percent[0][0] <= 100

    # A scan, rows of a secondary index, and values out of line.
    server.query("CREATE TABLE d.b (id INT PRIMARY KEY, big LONGTEXT)")
    server.query("INSERT INTO d.b SELECT seq, REPEAT(MD5(seq), 6000) FROM seq_1_to_10")
    server.query("OPTIMIZE TABLE d.b")
    values = server.query("SELECT id, MD5(big) FROM d.b")
    sums = server.query("SELECT COUNT(*), SUM(CRC32(pad)) FROM d.t")

    def scans_do_too() -> bool:
        assert server.query("SELECT id, MD5(big) FROM d.b") == values
        assert server.query("SELECT COUNT(*), SUM(CRC32(pad)) FROM d.t") == sums
        return min(_pool_reads(server, "blob"), _pool_reads(server, "scan")) > 10

    _wait_for(scans_do_too, "blocks of scans and values out of line come from the pool")

    # Whoever starts learns what is there from the news of before.
    time.sleep(1.5)
    server.restart()

    _wait_for(comes_from_the_pool, "blocks come from the pool after the restart")
    assert server.query("SELECT COUNT(*), SUM(CRC32(pad)) FROM d.t") == sums

    # Off, nobody is asked.
    server.query("SET GLOBAL firn_pool = OFF")
    before = (_sum(server, "gets"), _pool_reads(server))
    _read(server, ids[300:600])
    assert (_sum(server, "gets"), _pool_reads(server)) == before
    states = server.query("SELECT DISTINCT state FROM information_schema.firn_pool")
    assert states == (("OFF",),)


class Load:
    """Sessions that read and change rows until they are stopped, and check each of them."""

    def __init__(self, server: Server, sessions: int = 4) -> None:
        self.server = server
        self.stops = threading.Event()
        self.problems: list[str] = []
        self.reads = 0
        workers = range(sessions)
        self.threads = [threading.Thread(target=self._work, args=(n, sessions)) for n in workers]
        for thread in self.threads:
            thread.start()

    def _work(self, number: int, sessions: int) -> None:
        try:
            self._work_until_stopped(number, sessions)
        except (pymysql.err.MySQLError, AssertionError) as problem:
            self.problems.append(repr(problem))

    def _work_until_stopped(self, number: int, sessions: int) -> None:
        chance = random.Random(number)
        # Each session changes rows of its own, so it knows what they hold.
        mine = dict.fromkeys(range(number + 1, ROWS + 1, sessions), 0)
        ids = list(mine)
        with self.server.connect("d", autocommit=True) as session, session.cursor() as cursor:
            while not self.stops.is_set():
                row = chance.choice(ids)
                if chance.random() < 0.1:
                    mine[row] += 1
                    change = "UPDATE t SET v = %s, pad = %s WHERE id = %s"
                    cursor.execute(change, (mine[row], _pad(row, mine[row]), row))
                elif chance.random() < 0.1:
                    some = "SELECT id, v, pad FROM t WHERE id BETWEEN %s AND %s + 40"
                    cursor.execute(some, (row, row))
                    found = cursor.fetchall()
                    assert len(found) == min(41, ROWS + 1 - row)
                    assert all(pad == _pad(at, v) for at, v, pad in found)
                else:
                    cursor.execute("SELECT v, pad FROM t WHERE id = %s", (row,))
                    assert cursor.fetchone() == (mine[row], _pad(row, mine[row]))
                self.reads += 1

    def go(self, seconds: float) -> None:
        """Lets the sessions work for a while; all of them must go on."""
        before = self.reads
        time.sleep(seconds)
        assert not self.problems, self.problems
        assert self.reads > before

    def stop(self) -> None:
        self.stops.set()
        for thread in self.threads:
            thread.join()
        assert not self.problems, self.problems


def test_nodes_that_die_hang_and_come_back_change_nothing(
    own_server: Any, nodes: list[Memcached]
) -> None:
    server = _filled(own_server, nodes)
    load = Load(server)
    try:
        load.go(2)
        first, second = nodes
        first.kill()
        load.go(0.7)
        first.start()
        load.go(0.7)
        second.pause()
        load.go(1)
        second.go_on()
        load.go(0.7)
        for value in (first.address, "", "127.0.0.1:1", _list(nodes) + "*3", _list(nodes)):
            server.query(f"SET GLOBAL firn_pool_nodes = '{value}'")
            load.go(0.5)
        for value in ("OFF", "ON"):
            server.query(f"SET GLOBAL firn_pool = {value}")
            load.go(0.5)
        for node in nodes:
            node.kill()
        load.go(0.5)
        for node in nodes:
            node.start()
        before = _sum(server, "hits")
        _wait_for(lambda: _sum(server, "hits") > before, "the pool has blocks again")
        load.go(0.5)
    finally:
        load.stop()
    assert _sum(server, "hits") > 0
    assert _sum(server, "wrong") == 0
    assert server.query("CHECK TABLE d.t EXTENDED")[0][3] == "OK"
    log = server.error_log_path.read_text()
    assert "memory pool: the nodes are now" in log
    assert f"{nodes[1].address} is not asked for now" in log


def _plain_share(values: list[bytes], at: int) -> float:
    """The share of values with the header of a stored block, which ends in two zeros, at `at`."""
    return sum(value[at + 2 : at + 4] == b"\0\0" for value in values) / len(values)


def test_values_are_encrypted_under_a_key(
    own_server: Any, nodes: list[Memcached], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    server = _filled(own_server, nodes, f"--firn-pool-key-file={key}")
    ids = random.Random(2).sample(range(1, ROWS + 1), 3000)

    def hits() -> bool:
        _read(server, ids)
        return _sum(server, "hits") > 50

    _wait_for(hits, "values are decrypted")
    assert _sum(server, "wrong") == 0
    encrypted = [value for node in nodes for value in node.values(200)]
    assert len(encrypted) > 50
    # A value has its name, a nonce under a key, and the block.
    assert _plain_share(encrypted, NAME_LEN + NONCE_LEN) < 0.1
    nonces = {value[NAME_LEN : NAME_LEN + NONCE_LEN] for value in encrypted}
    assert len(nonces) == len(encrypted)
    server.query("SET GLOBAL firn_pool = OFF")
    # Without a key, the header of a block is what it is in the file.
    for node in nodes:
        node.kill()
        node.start()
    server.stop()
    server.options = [option for option in server.options if "key-file" not in option]
    server.start()
    before = _sum(server, "hits")
    _wait_for(lambda: hits() and _sum(server, "hits") > before, "plain values")
    plain = [value for node in nodes for value in node.values(200)]
    assert _plain_share(plain, NAME_LEN) > 0.9
    server.options.append(f"--firn-pool-key-file={key}")
    # Others than the owner may read the key: the engine does not start.
    key.chmod(0o644)
    server.stop()
    with pytest.raises(ServerError, match="chmod 600"):
        server.start()
    key.chmod(0o600)
    server.start()
    _read(server, ids[:50])


def _certificates(directory: Path) -> None:
    """An authority, ca.pem, and what it has signed: node.pem for 127.0.0.1, server.pem."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("node", "server"):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key")
        address = ("-addext", "subjectAltName=IP:127.0.0.1")
        openssl(*new, "-days", "2", "-subj", f"/CN={name}", *address, *signed, *files)


def test_nodes_speak_tls(own_server: Any, tmp_path: Path) -> None:
    _certificates(tmp_path)
    node = Memcached(tls=tmp_path)
    tls = [
        f"--firn-pool-tls-{option}={tmp_path / file}"
        for option, file in (("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server.key"))
    ]
    try:
        server = _filled(own_server, [node], *tls)
        ids = random.Random(3).sample(range(1, ROWS + 1), 3000)

        def hits() -> bool:
            _read(server, ids)
            return _sum(server, "hits") > 50

        _wait_for(hits, "blocks come by TLS")
        assert _sum(server, "wrong") == 0
        rows = server.query("SELECT node, connect_error FROM information_schema.firn_pool")
        assert rows == ((node.address, None),)
        # The system's authorities have not signed the certificate of the node.
        server.stop()
        server.options = [option for option in server.options if "tls-" not in option]
        server.start()
        error = "SELECT connect_error FROM information_schema.firn_pool"
        _wait_for(lambda: "not trusted" in str(server.query(error)), "the reason is shown")
        reason = "cannot be reached: its certificate is not trusted"

        def logged() -> bool:
            _read(server, ids[:100])
            return reason in server.error_log_path.read_text()

        _wait_for(logged, "the reason is in the error log")
        # A file that is missing keeps the engine from starting.
        server.stop()
        server.options.append("--firn-pool-tls-ca=/nowhere/ca.pem")
        with pytest.raises(ServerError, match="firn_pool_tls: '/nowhere/ca.pem': No such file"):
            server.start()
        server.options.pop()
        server.start()
    finally:
        node.kill()


def test_variables_of_the_pool_are_checked(own_server: Any, nodes: list[Memcached]) -> None:
    server = own_server()
    assert server.query("SELECT @@firn_pool, @@firn_pool_nodes") == ((0, ""),)
    assert server.query("SELECT * FROM information_schema.firn_pool") == ()
    server.query(f"SET GLOBAL firn_pool_nodes = '{_list(nodes)}'")
    wrong = {
        "a:1,a:1": "listed twice",
        "a": "the port is missing",
        "tls:a:x": "the port",
        "unix:relative": "absolute path",
        "a:1,": "empty",
    }
    for value, reason in wrong.items():
        with pytest.raises(pymysql.err.MySQLError, match=reason) as refused:
            server.query(f"SET GLOBAL firn_pool_nodes = '{value}'")
        assert refused.value.args[0] == WRONG_VALUE_FOR_VAR
        assert server.query("SELECT @@firn_pool_nodes") == ((_list(nodes),),)
    server.query("SET GLOBAL firn_pool_nodes = DEFAULT")
    assert server.query("SELECT @@firn_pool_nodes") == (("",),)
    with pytest.raises(pymysql.err.MySQLError):
        server.query("SET GLOBAL firn_pool_key_file = '/k'")
    server.stop()
    with pytest.raises(ServerError, match="listed twice"):
        server.start(["--firn-pool-nodes=a:1,a:1"])
