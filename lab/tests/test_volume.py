"""A server's life with much data: rows, sizes, samples, checks, and the command in small."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from random import Random

import pytest
from conftest import SMALL

from firn_lab import cli
from firn_lab.cli.volume import disk_bytes, require_room
from firn_lab.errors import CheckFailed, LabError, UsageError
from firn_lab.targets import Budget, Target, make_target
from firn_lab.targets.engine import EngineTarget
from firn_lab.volume.life import Phase
from firn_lab.volume.load import load
from firn_lab.volume.page import draw, most, page
from firn_lab.volume.read import ALL_ROWS, ONE_ROW, sums
from firn_lab.volume.rows import ROW_BYTES, Table, lines, plan_tables
from firn_lab.volume.samples import files, parse_memory, parse_status
from firn_lab.volume.updates import Updates, require_sums


def test_the_bytes_are_divided_among_the_tables() -> None:
    tables = plan_tables(30e9, 10_000, 10, 1000)
    assert (len(tables.small), len(tables.large), len(tables.all)) == (9990, 10, 10_000)
    assert tables.small[0] == Table("small1", 1000)
    assert 0 <= 30e9 - tables.user_bytes < 10 * ROW_BYTES
    assert len({table.name for table in tables.all}) == 10_000
    only_large = plan_tables(1e9, 4, 4, 1000)
    assert not only_large.small
    with pytest.raises(UsageError, match="nothing is left"):
        plan_tables(1e9, 10_000, 10, 1000)
    with pytest.raises(UsageError, match="name more with --large"):
        plan_tables(1e12, 2, 1, 1000)
    with pytest.raises(UsageError, match="large tables of"):
        plan_tables(1e9, 10, 11, 1000)


def test_lines_are_rows_of_sysbench() -> None:
    table = Table("large1", 5000)
    text, k_sum = lines(table, 4001, 1000)
    rows = [line.split("\t") for line in text.decode().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(4001, 5001))
    assert sum(int(row[1]) for row in rows) == k_sum
    assert all(1 <= int(row[1]) <= 5000 for row in rows)
    for column, groups in ((2, 10), (3, 5)):
        for row in rows:
            parts = row[column].split("-")
            assert [len(part) for part in parts] == [11] * groups
            assert all(part.isdigit() for part in parts)
    assert 4 + 4 + len(rows[0][2]) + len(rows[0][3]) == ROW_BYTES
    # Draws depend on the table and the place, and on nothing else.
    assert lines(table, 4001, 1000) == (text, k_sum)
    assert lines(table, 1, 1000)[0][30:] != text[30:]
    assert lines(Table("large2", 5000), 4001, 1000)[0] != text


def test_what_the_kernel_tells_of_a_process() -> None:
    text = "Name:\tmariadbd\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\nThreads:\t37\nSigQ:\t0/1\n"
    assert parse_status(text) == {
        "resident_bytes": 2 << 20,
        "anonymous_bytes": 1 << 20,
        "threads": 37,
    }
    own = parse_status(Path(f"/proc/{os.getpid()}/status").read_text())
    assert own["resident_bytes"] > 1 << 20
    assert own["threads"] >= 1


def test_what_firn_tells_of_its_memory() -> None:
    rows = [("memtables", 10, None), ("block cache", 20, 64), ("total", 30, 100)]
    assert parse_memory(rows) == {
        "memory_bytes": 30,
        "memory_limit": 100,
        "memory": {"memtables": 10, "block cache": 20},
    }
    assert parse_memory([("total", 5, None)])["memory_limit"] == 0


def test_files_are_counted_with_those_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        (place / "file").write_bytes(b"x" * 5000)
    count, size = files(tmp_path)
    assert count == 3
    assert size >= 15000
    assert files(tmp_path / "missing") == (0, 0)


def test_a_lost_update_is_found() -> None:
    require_sums((10, 55), 10, 55, 55)
    require_sums((10, 57), 10, 55, 58)
    with pytest.raises(CheckFailed, match="2 updates are lost"):
        require_sums((10, 53), 10, 55, 58)
    with pytest.raises(CheckFailed, match="too many"):
        require_sums((10, 59), 10, 55, 58)
    with pytest.raises(CheckFailed, match="9 rows are there"):
        require_sums((9, 55), 10, 55, 55)


def test_room_on_the_disk(tmp_path: Path) -> None:
    tables = plan_tables(30e9, 100, 10, 1000)
    assert disk_bytes("innodb", tables) > disk_bytes("firn", tables) > tables.user_bytes
    require_room(tmp_path, 1)
    with pytest.raises(UsageError, match="are free in"):
        require_room(tmp_path, 1 << 60)


def test_load_update_and_check(innodb: EngineTarget) -> None:
    innodb.create_database()
    tables = plan_tables(3000 * ROW_BYTES, 5, 2, 500)
    heard: list[float] = []
    k_sum = load(innodb, tables.all, heard.append)
    assert heard[-1] == 1.0
    assert sums(innodb, tables.all, ALL_ROWS) == (tables.rows, k_sum)
    assert sums(innodb, tables.all, ONE_ROW)[0] == 5
    updates = Updates(innodb, tables, 3, seed=1)
    try:
        assert (updates.sent, updates.answered) == (0, 0)
        updates.begin(2)
        updates.wait(2)
    finally:
        updates.end()
    assert updates.sent == updates.answered > 0
    count, found = sums(innodb, tables.all, ALL_ROWS)
    assert (count, found) == (tables.rows, k_sum + updates.answered)
    assert innodb.query("SELECT COUNT(*) FROM large1 WHERE c NOT LIKE '%-%'")[0][0] > 0


@pytest.mark.usefixtures("no_purge")
def test_updates_outlive_the_server(tmp_path: Path) -> None:
    target = make_target("engine:innodb", SMALL, tmp_path)
    assert isinstance(target, EngineTarget)
    try:
        target.start()
        target.create_database()
        tables = plan_tables(2000 * ROW_BYTES, 3, 1, 500)
        k_sum = load(target, tables.all, lambda done: None)
        updates = Updates(target, tables, 2, seed=1)
        try:
            updates.begin(60)
            deadline = time.monotonic() + 60
            while updates.answered < 50 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert updates.answered >= 50
            target.kill()
            with pytest.raises(LabError, match="lost its connection"):
                updates.wait(60)
        finally:
            updates.end()
        target.start()
        found = sums(target, tables.all, ALL_ROWS)
        require_sums(found, tables.rows, k_sum + updates.answered, k_sum + updates.sent)
        assert updates.sent - updates.answered <= 2
    finally:
        target.destroy()


def test_a_server_with_few_descriptors(tmp_path: Path) -> None:
    """The limit holds for root, too, who could raise it."""
    budget = Budget(SMALL.memory_bytes, descriptors=256)
    target = make_target("engine:innodb", budget, tmp_path)
    try:
        target.start()
        text = Path(f"/proc/{target.pid}/limits").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("Max open files"))
        assert line.split()[3:5] == ["256", "256"]
        assert int(target.query("SELECT @@open_files_limit", database="")[0][0]) == 256
    finally:
        target.destroy()


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    random = Random(1)
    phases = [
        Phase("load", 0, 20, {"rows": 4000, "cpu_seconds": 12.5}),
        Phase("start", 20, 25),
        Phase("rest", 25, 60, {"table_bytes": 3 << 20, "files_bytes": 5 << 20}),
    ]
    samples = [
        {"at": at, "phase": "load" if at < 20 else "rest", "resident_bytes": random.random() * 1e9,
         "descriptors": 100 + at, "threads": 9}
        for at in range(60)
    ]  # fmt: skip
    samples[3]["files_bytes"] = 7e9
    assert most(samples, "load")["descriptors"] == 119
    assert most(samples, "start") == {}
    text = page(phases, samples)
    assert "| load | 20.0 | 200/s | 12.5 |" in text
    assert "3.00 MiB | 5.00 MiB |" in text
    for name in ("a.svg", "a.png"):
        draw("title", phases, samples, {"descriptors": 512.0}, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    draw("nothing", [], [], {}, tmp_path / "empty.svg")


def test_the_command_in_small(tmp_path: Path) -> None:
    sizes = ["--gb", "0.002", "--tables", "6", "--large", "2", "--small-rows", "200"]
    times = ["--update-seconds", "0.5", "--threads", "2", "--memory", "32", "--free", "1"]
    places = ["--dir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    assert cli.main(["volume", *sizes, "--targets", "engine:innodb", *times, *places]) == 0
    told = json.loads((tmp_path / "out" / "innodb.json").read_text())
    names = [phase["name"] for phase in told["phases"]]
    assert names[0] == "load the small tables"
    assert names[-1] == "stop in the end"
    assert "check after the kill" in names
    for ending in ("samples.jsonl", "md", "svg"):
        assert (tmp_path / "out" / f"innodb.{ending}").exists()
    assert list((tmp_path / "run").iterdir()) == []


def test_only_private_servers_have_a_life(tmp_path: Path) -> None:
    options = ["--targets", "dsn:mysql://root@nowhere", "--dir", str(tmp_path / "run")]
    assert cli.main(["volume", *options]) == 1
    target: Target = make_target("dsn:mysql://h", Budget(), tmp_path)
    assert target.data_dir is None
