"""`firn backup` and its environment: option files, users, names, signals, large values."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest
from server import IS_FIRN, Server
from test_backup import TOOL, back_up, firn, restored

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="firn backup is FIRN's")

WAIT_SECONDS_MAX = 60.0


def checkpoints(server: Server) -> list[Path]:
    """Checkpoints that backups created and did not remove."""
    return list((server.data / "#firn").glob("checkpoint*"))


def test_option_files_do_not_change_what_is_sent(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = own_server("--log-bin=bin")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    server.query("INSERT INTO d.t VALUES (1)")
    server.query("CREATE USER weak@localhost")
    server.query("GRANT FILE, SUPER, REPLICATION CLIENT ON *.* TO weak@localhost")
    target = tmp_path / "backups"

    def run(options: str, user: str, code: int) -> str:
        file = tmp_path / "options"
        file.write_text(f"[client]\nsocket={server.socket}\nuser={user}\n[mariadb]\n{options}\n")
        return str(firn("backup", target, "--defaults-file", file, code=code))

    # The user may not execute BACKUP STAGE. The option `force` tells clients to go on after an
    # error, but the backup must fail.
    error = run("force", "weak", 4)
    assert "RELOAD" in error, error
    assert not checkpoints(server)
    assert not (target / "backups").exists()
    for options in [
        "table",
        "vertical",
        "xml",
        "html",
        "raw",
        "verbose",
        "show-warnings",
        "force",
        "delimiter=$$",
        "init-command=SET SESSION sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    ]:
        run(options, "root", 0)
    copy = restored(own_server, target, "latest")
    assert copy.query("SELECT * FROM d.t") == ((1,),)


def test_names_that_files_have_otherwise(own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    server.query("CREATE DATABASE `d-\u00e4`")
    names = ["a-b", "t\u00e4", "plain"]
    for name in names:
        table = f"`d-\u00e4`.`{name}`"
        server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT) ENGINE=FIRN")
        server.query(
            f"CREATE TRIGGER `d-\u00e4`.`on {name}` BEFORE INSERT ON {table} "
            "FOR EACH ROW SET NEW.v = 7"
        )
        server.query(f"INSERT INTO {table} VALUES (1, 0)")
    target = tmp_path / "backups"
    back_up(server, target)
    for chosen in [*names, None]:
        copy = own_server(load_engine=False)
        copy.stop()
        only = ["--table", f"d-\u00e4.{chosen}"] if chosen else []
        firn("restore", target, "--to", copy.data, *only)
        copy.load_engine = True
        copy.start()
        there = [chosen] if chosen else names
        tables = copy.query("SHOW TABLES FROM `d-\u00e4`")
        assert {row[0] for row in tables} == set(there)
        for name in there:
            table = f"`d-\u00e4`.`{name}`"
            copy.query(f"INSERT INTO {table} VALUES (2, 0)")
            assert copy.query(f"SELECT v FROM {table} ORDER BY id") == ((7,), (7,))
        copy.destroy()


@contextlib.contextmanager
def stuck_bucket(stuck: threading.Event) -> Iterator[dict[str, str]]:
    """Serves a bucket that never answers a request that sends a file of the database.

    `stuck` is set by the first such request.
    """
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: bytes = b"") -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("ETag", '"e"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

        def do_PUT(self) -> None:
            if "/files/" in self.path:
                stuck.set()
                ended.wait()
                return
            self.answer()

        def log_message(self, *_: object) -> None:
            pass

    bucket = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    bucket.daemon_threads = True
    threading.Thread(target=bucket.serve_forever).start()
    try:
        yield os.environ | {
            "AWS_ENDPOINT": f"http://127.0.0.1:{bucket.server_port}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_REGION": "eu",
        }
    finally:
        ended.set()
        bucket.shutdown()
        bucket.server_close()


def test_what_a_killed_backup_leaves_goes(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    server.query("INSERT INTO d.t VALUES (1)")
    command = [str(TOOL), "backup", "s3://b/p", "--socket", str(server.socket), "--user", "root"]
    for how, left in [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, 1)]:
        stuck = threading.Event()
        with stuck_bucket(stuck) as environment:
            process = subprocess.Popen(command, env=environment)
            try:
                assert stuck.wait(WAIT_SECONDS_MAX)
                assert len(checkpoints(server)) == 1
                # A second backup must not remove the checkpoint that the first one reads.
                back_up(server, tmp_path / "beside")
                assert len(checkpoints(server)) == 1
            finally:
                process.send_signal(how)
                process.wait()
        assert process.returncode == -how
        assert len(checkpoints(server)) == left
    mine = server.data / "#firn" / "checkpoint-mine"
    server.query("SET GLOBAL firn_create_checkpoint = %s", [str(mine)])
    report = back_up(server, tmp_path / "backups")
    assert "left behind" in str(report["notes"]), report
    assert checkpoints(server) == [mine]


def test_it_does_not_wait_for_ever(own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=FIRN")
    options = ["--socket", server.socket, "--user", "root"]
    with contextlib.closing(server.connect()) as session, session.cursor() as cursor:
        cursor.execute("BACKUP STAGE START")
        error = firn("backup", tmp_path / "backups", *options, "--lock-wait", 1, code=3)
        assert "--lock-wait" in error["error"], error
        cursor.execute("BACKUP STAGE END")
    assert not list((tmp_path / "backups" / "running").iterdir())
    firn("backup", tmp_path / "backups", *options)


def test_large_values_are_sent_once(
    own_server: Callable[..., Server], seed: int, tmp_path: Path
) -> None:
    rng = Random(seed)
    server = own_server("--loose-firn-memtable-size=1048576")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB) ENGINE=FIRN")
    values: dict[int, bytes] = {}

    def put(number: int, size: int) -> None:
        values[number] = rng.randbytes(size)
        server.query("REPLACE INTO d.t VALUES (%s, %s)", (number, values[number]))

    def rows(of: Server) -> dict[int, bytes]:
        return dict(of.query("SELECT id, v FROM d.t"))  # type: ignore[arg-type]

    def allocated(*suffixes: str) -> int:
        """Allocated bytes of the files with these suffixes."""
        total = 0
        for file in (server.data / "#firn").iterdir():
            # The server may delete the file between the listing and the call of stat.
            with contextlib.suppress(FileNotFoundError):
                total += file.stat().st_blocks * 512 if file.suffix in suffixes else 0
        return total

    def blob_bytes() -> int:
        return allocated(".blob")

    def wait_until_given_back(limit: int) -> None:
        until = time.monotonic() + WAIT_SECONDS_MAX
        while blob_bytes() > limit and time.monotonic() < until:
            server.query("OPTIMIZE TABLE d.t")
            time.sleep(0.2)

    target = tmp_path / "backups"
    states = []

    def take() -> int:
        report = back_up(server, target)
        states.append((report["id"], dict(values)))
        return int(report["sent_bytes"])

    for number in range(40):
        put(number, 400_000)
    first = take()
    assert first >= 16_000_000
    # Only the new part of a blob file that grew is sent, with the piece that contains its old end.
    put(100, 400_000)
    grown = take()
    assert grown < first // 2, (first, grown)
    # Delete every second value: the blob gc punches holes between the others, or moves them to
    # another file.
    for number in range(0, 40, 2):
        del values[number]
        server.query("DELETE FROM d.t WHERE id = %s", (number,))
    wait_until_given_back(12_000_000)
    taken = blob_bytes()
    take()
    size = sum(file.stat().st_size for file in (target / "files").iterdir())
    whole = firn("backups", target)[-1]["bytes"]
    print(f"sent {first}, {grown}; {taken} in blob files, {whole} in the backup, {size} in all")
    # Rewrite the values that are left.
    for number in range(1, 40, 2):
        put(number, 200_000)
    take()
    assert firn("backup", "--verify", target)["sound"]
    for backup, state in states:
        copy = restored(own_server, target, backup)
        assert rows(copy) == state, backup
        assert copy.query("CHECK TABLE d.t EXTENDED")[0][3] == "OK"
        copy.destroy()
    # The first backup to a target sends the allocated bytes of the files, without their holes.
    # The blob gc may punch more of them before or after the files are sent.
    before = allocated(".blob", ".sst", ".wal")
    fresh = back_up(server, tmp_path / "fresh")
    most = max(before, allocated(".blob", ".sst", ".wal"))
    assert fresh["sent_bytes"] <= most + (1 << 20), (fresh, most)
