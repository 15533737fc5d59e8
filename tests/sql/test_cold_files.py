"""Cold files: table files in a directory or in buckets of an S3-compatible server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from server import IS_FIRN, REPOSITORY, Server, free_port, scratch_root
from test_backup import TOOL, back_up, firn, restored

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

ROWS = 30_000
# Blocks come from files.
SMALL_CACHES = ("--firn-block-cache-size=8M", "--firn-row-cache-size=0", "--firn-cold-after=0")


def _versitygw() -> str | None:
    named = os.environ.get("FIRN_VERSITYGW") or shutil.which("versitygw")
    built = REPOSITORY / "build" / "tools" / "versitygw"
    return named or (str(built) if built.is_file() else None)


class Bucket:
    """A running versitygw with the bucket `firn`, whose keys the server's environment has."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "objects" / "firn").mkdir(parents=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """As `firn_storage_url` names it."""
        return f"s3://firn/db1?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"

    def start(self) -> None:
        """Starts the process and waits until it listens."""
        program = _versitygw()
        assert program
        assert self.process is None
        keys = ["--access", "firn", "--secret", "firn-secret", "--quiet"]
        arguments = ["--port", f"127.0.0.1:{self.port}", *keys]
        self.process = subprocess.Popen(
            [program, *arguments, "posix", str(self.directory / "objects")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for(self._listens, "versitygw listens")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def directory() -> Iterator[Path]:
    """An empty directory."""
    path = scratch_root() / f"store{random.SystemRandom().randrange(10**9)}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def bucket(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of versitygw."""
    if _versitygw() is None:
        pytest.skip("versitygw is missing: scripts/versitygw.sh builds it")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "firn")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "firn-secret")
    served = Bucket(directory)
    yield served
    served.kill()


def _wait_for(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def _pad(row: int) -> str:
    return hashlib.md5(str(row).encode()).hexdigest() * 10


def _filled(make: Any, url: str, *options: str) -> Server:
    """A server with a table that is at rest."""
    server: Server = make(*SMALL_CACHES, f"--firn-storage-url={url}", *options)
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL, pad TEXT, KEY (v))")
    server.query(
        "INSERT INTO d.t SELECT seq, seq % 100, REPEAT(MD5(seq), 10) " f"FROM seq_1_to_{ROWS}"
    )
    server.query("OPTIMIZE TABLE d.t")
    return server


def _places(server: Server) -> dict[str, int]:
    rows = server.query(
        "SELECT location, COUNT(*) FROM information_schema.firn_files GROUP BY location"
    )
    return {place: int(count) for place, count in rows}


def _is_remote(server: Server) -> bool:
    """All files of tables in the last level are remote. The catalog has a file of its own."""
    local = server.query(
        "SELECT COUNT(*) FROM information_schema.firn_files "
        "WHERE location = 'local' AND level = 6 AND largest_key LIKE 'd/%'"
    )
    return int(local[0][0]) == 0 and _places(server).get("object store", 0) > 1


def _is_local(server: Server) -> bool:
    return "object store" not in _places(server)


def _check(server: Server) -> None:
    sums = server.query("SELECT COUNT(*), SUM(v), SUM(id), COUNT(DISTINCT pad) FROM d.t")
    ids = range(1, ROWS + 1)
    expected = (ROWS, sum(row % 100 for row in ids), sum(ids), ROWS)
    assert tuple(int(value) for value in sums[0]) == expected
    for row in random.Random(1).sample(ids, 20):
        assert server.query(f"SELECT pad FROM d.t WHERE id = {row}") == ((_pad(row),),)
    assert int(server.query("SELECT COUNT(pad) FROM d.t WHERE v = 7")[0][0]) == ROWS // 100
    checked = server.query("CHECK TABLE d.t EXTENDED")
    assert checked[-1][-1] == "OK", checked


def _moves(server: Server) -> None:
    """The table moves to the store and back, while it is used."""
    _check(server)
    assert _is_local(server)
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files of the last level are in the store")
    _check(server)
    server.restart()
    _check(server)
    server.query("SET GLOBAL firn_tier = cold")
    server.query("UPDATE d.t SET pad = CONCAT(pad, ''), v = v + 100 WHERE id % 3 = 0")
    server.query("UPDATE d.t SET v = v - 100 WHERE id % 3 = 0")
    server.query("OPTIMIZE TABLE d.t")
    _check(server)
    _wait_for(lambda: _is_remote(server), "all files are in the store again")
    server.kill()
    server.start()
    _check(server)
    server.query("SET GLOBAL firn_tier = 'local'")
    _wait_for(lambda: _is_local(server), "all files are back")
    _check(server)


def _store(server: Server, columns: str) -> tuple[Any, ...]:
    rows = server.query(f"SELECT {columns} FROM information_schema.firn_object_store")
    assert len(rows) == 1, rows
    return tuple(rows[0])


def _io(server: Server, source: str) -> dict[str, int]:
    rows = server.query(
        "SELECT class, read_count FROM information_schema.firn_io "
        f"WHERE source = '{source}' AND read_count > 0 AND latency_us_p99 >= latency_us_p50"
    )
    return {of: int(count) for of, count in rows}


def test_the_views_show_the_store(own_server: Any, bucket: Bucket) -> None:
    server = _filled(own_server, bucket.url)
    figures = "url, state, outage_seconds, owner, gets, puts, remote_files, get_latency_us_p50"
    assert _store(server, figures) == (bucket.url, "UP", None, None, 0, 0, 0, None)
    assert _io(server, "object store") == {}
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    local, remote = _store(server, "local_files, remote_files")
    assert _places(server) == {"local": local, "object store": remote}
    stored = server.query(
        "SELECT location, SUM(stored_bytes) FROM information_schema.firn_files GROUP BY location"
    )
    local, remote = _store(server, "local_bytes, remote_bytes")
    sizes = {place: int(size) for place, size in stored}
    assert sizes == {"local": local, "object store": remote}
    owner, uploaded, puts, latency = _store(
        server, "owner, uploaded_bytes, puts, put_latency_us_p99"
    )
    assert owner == "this server"
    assert uploaded >= remote > 0
    assert puts > 2
    assert latency > 0
    _check(server)
    _check(server)
    cached, fetched = _io(server, "file cache"), _io(server, "object store")
    assert cached["point"] + cached["range"] > 0, cached
    assert fetched["index"] > 0, fetched
    assert fetched["verify"] > 0, fetched
    assert set(cached) <= {"index", "point", "range", "scan"}, cached
    hits, misses, used, limit, gets, got = _store(
        server, "cache_hits, cache_misses, cache_bytes, cache_limit_bytes, gets, get_bytes"
    )
    assert hits > 0
    assert misses > 0
    assert 0 < used <= limit == 4 << 30
    assert gets > misses / 40
    assert got > used
    bucket.kill()

    def is_down() -> bool:
        server.query("CHECK TABLE d.t EXTENDED")
        return bool(_store(server, "state") == ("DOWN",))

    _wait_for(is_down, "the store is down")
    outage, outages, failed, error = _store(
        server, "outage_seconds, outages, gets_failed, last_error"
    )
    assert outage is not None
    assert outages == 1
    assert failed >= 3
    assert error
    bucket.start()
    server.query("SET GLOBAL firn_tier = 'local'")
    _wait_for(lambda: _is_local(server), "all files are back")
    assert _store(server, "state, outage_seconds, remote_bytes") == ("UP", None, 0)
    assert _store(server, "objects_to_delete > 0") == (1,)


def test_a_database_moves_to_a_directory_and_back(own_server: Any, directory: Path) -> None:
    server = _filled(own_server, f"file://{directory}")
    _moves(server)
    assert (directory / "db").read_text().startswith("firn database ")


def test_a_database_moves_to_a_bucket_and_back(own_server: Any, bucket: Bucket) -> None:
    server = _filled(own_server, bucket.url)
    _moves(server)


def test_a_server_lives_without_its_store(own_server: Any, bucket: Bucket) -> None:
    server = _filled(own_server, bucket.url, "--firn-file-cache-size=0")
    server.query("CREATE TABLE d.hot (id INT PRIMARY KEY, v INT)")
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    # The catalog is in a file, and not only in the log.
    server.query("OPTIMIZE TABLE d.hot")
    bucket.kill()
    server.restart()
    server.query("INSERT INTO d.hot VALUES (1, 1)")
    assert server.query("SELECT v FROM d.hot") == ((1,),)
    with pytest.raises(pymysql.Error, match="object store"):
        server.query("SELECT SUM(v), COUNT(pad) FROM d.t")
    checked = server.query("CHECK TABLE d.t")
    words = " ".join(str(row[-1]) for row in checked)
    assert "object store" in words, checked
    assert "orrupt" not in words, checked
    server.query("INSERT INTO d.hot VALUES (2, 2)")
    # A second restart, now that requests have failed.
    server.restart()
    assert server.query("SELECT COUNT(*) FROM d.hot") == ((2,),)
    bucket.start()

    def answers() -> bool:
        try:
            _check(server)
        except pymysql.Error:
            return False
        return True

    _wait_for(answers, "the store answers")


def test_variables_that_make_no_sense_are_refused(own_server: Any, directory: Path) -> None:
    server: Server = own_server()
    with pytest.raises(pymysql.Error, match="firn_storage_url is empty"):
        server.query("SET GLOBAL firn_tier = cold")
    with pytest.raises(pymysql.Error, match="not supported yet"):
        server.query("SET GLOBAL firn_tier = 'all'")
    with pytest.raises(pymysql.Error):
        server.query("SET GLOBAL firn_tier = 'warm'")
    assert server.query("SELECT @@firn_tier") == (("local",),)
    server.query("SET GLOBAL firn_tier = 'local'")


def _tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOL), *arguments], capture_output=True, text=True, check=False)


def _scratch(name: str) -> Path:
    return scratch_root() / f"{name}{random.SystemRandom().randrange(10**9)}"


def test_the_tool_takes_no_remote_file_for_a_missing_one(own_server: Any, directory: Path) -> None:
    server = _filled(own_server, f"file://{directory}")
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    server.stop()
    data = str(server.data)
    inspected = _tool("inspect", data, "--files", "--json")
    assert inspected.returncode == 0, inspected.stderr
    places = {file["location"] for file in json.loads(inspected.stdout)["files"]}
    assert len(places) == 2, places
    checked = _tool("check", data)
    assert checked.returncode == 4, checked
    assert "object store" in checked.stdout
    assert "damage:" not in checked.stdout, checked
    assert "DAMAGED" not in checked.stdout, checked
    target = _scratch("repaired")
    repaired = _tool("repair", data, str(target))
    assert repaired.returncode == 4, repaired
    assert "object store" in repaired.stderr + repaired.stdout
    # A manifest that is gone tells nothing of remote files, but the directory knows its store.
    for path in (server.data / "#firn").glob("MANIFEST*"):
        path.unlink()
    repaired = _tool("repair", data, str(target))
    assert repaired.returncode == 4, repaired
    assert "object store" in repaired.stderr + repaired.stdout


def test_a_copy_of_a_data_directory_changes_nothing_in_the_store(
    own_server: Any, directory: Path
) -> None:
    server = _filled(own_server, f"file://{directory}")
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    server.stop()
    copy: Server = own_server(
        *SMALL_CACHES, f"--firn-storage-url=file://{directory}", "--firn-tier=cold"
    )
    copy.stop()
    shutil.rmtree(copy.data)
    shutil.copytree(server.data, copy.data)
    objects = {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}
    copy.start()
    _check(copy)
    copy.query("UPDATE d.t SET v = v + 1")
    copy.query("OPTIMIZE TABLE d.t")

    def is_refused() -> bool:
        return "another copy of this database" in copy.error_log_path.read_text()

    _wait_for(is_refused, "the copy is refused")
    copy.stop()
    assert objects == {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}
    server.start()
    _check(server)
    server.query("SET GLOBAL firn_tier = 'local'")
    _wait_for(lambda: _is_local(server), "all files are back")
    _check(server)


def test_the_tool_checks_and_repairs_with_the_store(own_server: Any, directory: Path) -> None:
    url = f"file://{directory}"
    server = _filled(own_server, url)
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    server.stop()
    engine = server.data / "#firn"
    before = {path.name for path in engine.iterdir()}
    objects = {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}
    checked = firn("check", server.data, "--storage-url", url)
    assert checked["sound"], checked
    assert checked["rows"] == ROWS, checked
    target = _scratch("repaired")
    repaired = firn("repair", server.data, target, "--storage-url", url)
    assert repaired["complete"], repaired
    assert repaired["tables"]["d/t"] == ROWS, repaired
    assert before == {path.name for path in engine.iterdir()}
    # A block of an object is damaged; the store that is not there is no damage.
    moved = directory.with_name(f"{directory.name}-away")
    directory.rename(moved)
    checked = _tool("check", str(server.data), "--storage-url", url)
    assert checked.returncode == 4, checked
    assert "damage:" not in checked.stdout, checked
    assert "DAMAGED" not in checked.stdout, checked
    moved.rename(directory)
    assert objects == {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}
    largest = max(directory.rglob("sst/*/*"), key=lambda path: path.stat().st_size)
    whole = largest.read_bytes()
    largest.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    checked = firn("check", server.data, "--storage-url", url, code=1)
    places = [one["place"] for one in checked["findings"] if one["severity"] == "damage"]
    number = int(largest.name.split("-")[0])
    assert f"{number:010}.sst" in places, checked
    largest.write_bytes(whole)
    # The new directory needs no store.
    shutil.rmtree(engine)
    target.rename(engine)
    server.options = [*SMALL_CACHES]
    server.start()
    _check(server)
    assert _is_local(server)


def _moves_on(server: Server) -> None:
    """All remote files are replaced, and their objects deleted if nothing keeps them."""
    server.query("UPDATE d.t SET v = v + 1")
    server.query("OPTIMIZE TABLE d.t")
    server.query("UPDATE d.t SET v = v - 1")
    server.query("OPTIMIZE TABLE d.t")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_backup_has_the_remote_files(own_server: Any, bucket: Bucket, stopped: bool) -> None:
    server = _filled(own_server, bucket.url)
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    server.query("UPDATE d.t SET v = v + 1 WHERE id = 1")
    server.query("UPDATE d.t SET v = v - 1 WHERE id = 1")
    remote = int(_store(server, "remote_bytes")[0])
    target = _scratch("backups")
    source = ("--socket", server.socket, "--user", "root")
    if stopped:
        server.stop()
        source = ("--from-dir", server.data)
        without = firn("backup", target, *source, code=4)
        assert "--storage-url" in str(without), without
        source = (*source, "--storage-url", bucket.url)
    taken = firn("backup", target, *source)
    assert taken["sent_bytes"] >= remote, taken
    if stopped:
        server.start()
    # The second one sends no table file again.
    again = back_up(server, target)
    assert again["sent_bytes"] < remote, again
    assert again["tables"] == 1, again
    assert firn("backup", "--verify", target)
    left = [path.name for path in (server.data / "#firn").glob("checkpoint-*")]
    assert left == []
    _moves_on(server)
    _check(server)
    bucket.kill()
    for backup in (taken["id"], again["id"]):
        copy = restored(own_server, target, backup)
        _check(copy)
        assert _is_local(copy)
        assert not (copy.data / "#firn" / "STORE").exists()
        copy.stop()
        assert firn("check", copy.data)["sound"]


def test_a_backup_fails_without_the_store(own_server: Any, bucket: Bucket) -> None:
    server = _filled(own_server, bucket.url)
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    bucket.kill()
    target = _scratch("backups")
    source = ("--socket", server.socket, "--user", "root")
    failed = firn("backup", target, *source, code=4)
    assert "object store" in str(failed), failed
    assert list((server.data / "#firn").glob("checkpoint-*")) == []
    bucket.start()
    firn("backup", target, *source)


@pytest.mark.parametrize("armed", [False, True])
def test_a_checkpoint_while_commits_wait_is_refused(
    own_server: Any, directory: Path, armed: bool
) -> None:
    server = _filled(own_server, f"file://{directory}")
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    target = _scratch("checkpoint")
    variable = "firn_backup_checkpoint" if armed else "firn_create_checkpoint"
    make = f"SET GLOBAL {variable} = '{target}'"
    with contextlib.closing(server.connect()) as session, session.cursor() as cursor:
        cursor.execute("SET SESSION firn_backup_client = 1")
        cursor.execute("BACKUP STAGE START")
        if armed:
            cursor.execute(make)
            make = "FLUSH ENGINE LOGS"
        cursor.execute("BACKUP STAGE BLOCK_COMMIT")
        with pytest.raises(pymysql.err.MySQLError, match="object store"):
            cursor.execute(make)
        assert not target.exists()
        cursor.execute("BACKUP STAGE END")
    _check(server)


def test_a_checkpoint_stands_alone(own_server: Any, directory: Path) -> None:
    server = _filled(own_server, f"file://{directory}")
    server.query("SET GLOBAL firn_tier = cold")
    _wait_for(lambda: _is_remote(server), "all files are in the store")
    target = _scratch("checkpoint")
    server.query(f"SET GLOBAL firn_create_checkpoint = '{target}'")
    assert _is_remote(server)
    _moves_on(server)
    server.stop()
    checked = firn("check", target)
    assert checked["sound"], checked
    assert checked["rows"] == ROWS, checked
    shutil.rmtree(server.data / "#firn")
    target.rename(server.data / "#firn")
    shutil.rmtree(directory)
    directory.mkdir()
    server.options = [*SMALL_CACHES]
    server.start()
    _check(server)
    assert _is_local(server)
