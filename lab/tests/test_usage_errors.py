"""Usage errors: reported in one line before anything is started or stored."""

from __future__ import annotations

from pathlib import Path

import fake_stores
import pytest
from conftest import SMALL, Laboratory

from firn_lab import cli
from firn_lab.plan import Plan, parse_case
from firn_lab.store import Reader
from firn_lab.store.extract import extract
from firn_lab.targets import Target
from firn_lab.workloads import Params


def told(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    """Runs a command that must refuse to begin; returns its error line."""
    try:
        status = cli.main([str(word) for word in command])
    except SystemExit as end:
        status = int(str(end.code))
    said = capsys.readouterr()
    assert status in (1, 2) and said.out == "", said
    lines = [line for line in said.err.splitlines() if not line.startswith(("usage:", " "))]
    assert len(lines) == 1 and "mistake in the lab" not in lines[0], said.err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--targets engine:foo", "engine:foo is not known"),
        ("--targets mysql://root:secret@x", "there is no target 'mysql'"),
        ("--targets dsn:mysql://root:secret@h:abc", "the port is no number"),
        ("--targets dsn:mysql://root:secret@h?foo=1", "foo behind the ? is not known"),
        ("--targets engine:innodb engine:innodb", "a target is named twice: innodb"),
        ("--targets postgresql:5", "fill factor"),
        ("--targets engine:innodb --measure nonsense", "no costly measure 'nonsense'; known: csv"),
        ("--targets engine:innodb --memory 0", "--memory: '0' is not a whole number, 16 or more"),
        ("--targets engine:innodb --seconds nan", "--seconds: 'nan' is not a number, above 0"),
        ("--targets engine:innodb --seconds inf", "--seconds"),
        ("--targets engine:innodb --scale nan", "--scale"),
        ("--targets engine:innodb --warm-seconds -5", "--warm-seconds"),
        ("--targets engine:innodb --blocks 0", "--blocks"),
        ("--targets engine:innodb --within 0", "--within"),
        ("--targets engine:innodb --lead-seconds -1", "--lead-seconds"),
        ("--targets engine:firn@a/b", "write engine:firn@LABEL"),
        ("--targets engine:innodb@a=/x.so", "innodb is no plugin"),
        ("--targets engine:firn@a=/nowhere/x.so", "/nowhere/x.so is not there"),
        ("--targets engine:innodb --threads 2 0", "--threads"),
        ("--targets engine:innodb --free -1", "--free"),
        ("oltp_delete:seconds=nan", "must be above zero"),
        ("oltp_delete:scale=inf", "must be above zero"),
        ("oltp_delete:warm_seconds=-1", "lead_seconds must be"),
        ("oltp_delete:tables=abc", "tables takes a number, not 'abc'"),
        ("oltp_delete:cache=nan", "cache takes a number, not 'nan'"),
        ("quick", "quick is a plan, which stands alone"),
        ("--dir /proc/version/x", "--dir: /proc/version/x is no directory"),
        ("--targets engine:firn engine:rocksdb", "engine:rocksdb: ha_rocksdb.so is nowhere: run"),
    ],
)
def test_a_run_that_cannot_begin_leaves_nothing(
    words: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIRN_LAB_PLUGINS", raising=False)
    monkeypatch.setattr("firn_lab.targets.engine._system_plugins", lambda: tmp_path)
    line = told(capsys, "run", "oltp_insert", *words.split())
    assert message in line and "secret" not in line
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "lab.sqlite"
    other.write_text("no store " * 1000)
    run = ["run", "oltp_insert", "--targets", "engine:innodb", "--dir", tmp_path / "data"]
    for command in (["report"], ["price", "--hour", "1"], ["compare", "1", "2"], run):
        line = told(capsys, *command, "--store", other)
        assert str(other) in line and "file is not a database" in line
    assert "cannot be a store" in told(capsys, *run, "--store", tmp_path)
    assert "cannot be a store" in told(capsys, *run, "--store", other / "x")
    assert list(tmp_path.iterdir()) == [other]


def test_a_report_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "lab.sqlite"
    fake_stores.fill(store)
    assert "lab.sqlite/x" in told(capsys, "report", "--store", store, "--out", store / "x")


def test_a_file_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "lab.sqlite"
    fake_stores.fill(store)
    line = told(capsys, "compare", "other.sqlite", "1", "--store", store)
    assert "has no run other.sqlite; it has 1 (one of another store is FILE:RUN" in line
    assert told(capsys, "report", "7", "--store", store).endswith("has no run 7; it has 1")


@pytest.mark.parametrize("name", ["a?b.sqlite", "a#b.sqlite", "a%20b.sqlite", "a b.sqlite"])
def test_a_store_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    run = fake_stores.fill(path)
    extract(path, run, tmp_path / f"raw {name}")
    for file in (path, tmp_path / f"raw {name}"):
        with Reader(file) as store:
            assert store.run("last").id == run
    assert {file.name.removesuffix("-wal").removesuffix("-shm") for file in tmp_path.iterdir()} == {
        name, f"raw {name}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hour nan", "--hour: 'nan' is not a number, 0 or more"),
        ("--hour inf --gb-month 1", "--hour"),
        ("--gb-month -1", "--gb-month"),
        ("--hour 1 --io-kib nan", "--io-kib: 'nan' is not a number, above 0"),
        ("--io-kib 4", "belong to a price"),
        ("", "give --hour, --gb-month, --million-ios, --iops-month, or a --catalogue"),
        ("--break-evens", "give --hour"),
        ("--break-evens --hour 1", "no offer has a price of nodes (memory_gb_month, or node_hour"),
        ("--break-evens 3 --hour 1", "--break-evens needs no run and no store"),
        ("--break-evens --store x.sqlite --hour 1", "--break-evens needs no run and no store"),
        ("--hour 1 --node-gib 8 --stored 0.3", "--node-gib, --stored: that is for --break-evens"),
        ("--break-evens --memory-gb-month 5", "--memory-gb-month belong to a price: --hour"),
        ("--break-evens --hour 1 --node-hour 1", "node_hour needs node_gib"),
        ("--break-evens --hour 1 --node-gib 0", "--node-gib: '0' is not a number, above 0"),
        ("--break-evens --hour 1 --bucket-gb-month 1", "bucket_gb_month needs gb_month"),
        (
            "--break-evens --hour 1 --memory-gb-month 1 --stored 1.5",
            "stored is a share of 1 at most, not 1.5",
        ),
        ("--break-evens --hour 1 --block-kib 1e-300", "block_kib must be above zero"),
    ],
)
def test_senseless_prices_are_told(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in told(capsys, "price", *words.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offer = [1]", r"consists of [[offer]] tables"),
        ('[[offer]]\nname = "a"\nhour = nan', "a: hour must be finite"),
        ('[[offer]]\nname = "a"\nhour = inf', "a: hour must be finite"),
        ('[[offer]]\nname = "a"\nhour = true', "a: hour takes a number"),
        ('[[offer]]\nname = "a"\nhour = 1\ncurrency = 3', "needs a currency, which is a text"),
        ('[[offer]]\nname = ""\nhour = 1', "needs a name, which is a text"),
        ('[[offer]]\nname = "a"', "a has no price: hour, gb_month, million_ios"),
        ('[[offer]]\nname = "a"\nmemory_gb_month = 1', "a has no price: hour, gb_month"),
        ('[[offer]]\nname = "a"\nhour = 1\nmillion_getz = 1', "unknown: million_getz"),
        (f'[[offer]]\nname = "a"\nhour = 1{"0" * 400}', "a: hour must be 1e+15 at most"),
        ('[[offer]]\nname = "a"\nhour = 1\ncores = 0', "a: cores must be above zero"),
        ('[[offer]]\nname = "a"\nhour = 1\nnode_gib = "8"', "a: node_gib takes a number, not '8'"),
        ('[[offer]]\nname = "a"\nhour = 1\nmillion_gets = -1', "a: million_gets must be finite"),
        ('[[offer]]\nname = "a"\ngb_month = 1\ncores = 2', "a: cores needs hour"),
        ('[[offer]]\nname = "a"\nhour = 1\nmore_hour = 0.0', "a: more_hour needs more_gib"),
        ('[[offer]]\nname = "a"\nhour = 1\nmore_gib = 8', "a: more_gib needs more_hour"),
        ('[[offer]]\nname = "a"\nhour = 1\ntraffic_gb = 1', "a: traffic_gb needs bucket_gb_month"),
        (
            '[[offer]]\nname = "a"\nhour = 1\nnode_traffic_gb = 1',
            "a: node_traffic_gb needs node_hour or memory_gb_month",
        ),
        (
            '[[offer]]\nname = "a"\nhour = 1\nnode_hour = 1\nnode_gib = 8\nmemory_gb_month = 1',
            "a: node_hour and memory_gb_month are two prices for one memory",
        ),
        ('[[offer]]\nname = "a"\nhour = 1\n' * 2, "two offers have the name a"),
    ],
)
def test_a_catalogue_without_sense_is_told(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    line = told(capsys, "price", "--catalogue", path)
    assert str(path) in line and message in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dsn mysql://h:abc", "the port is no number"),
        ("--dsn mysql://root:secret@[::1", "it cannot be read"),
        ("--dsn root:secret@h", "--dsn takes mysql://"),
        ("--dsn mysql://root:x/secret@h", "--dsn takes mysql://"),
        ("--dsn mysql://h --sample-mib nan", "--sample-mib"),
        ("--dsn mysql://h --total-mib nan", "--total-mib"),
        ("--dsn mysql://h --scan-mib -1", "--scan-mib"),
        ("--dsn mysql://h --seconds inf", "--seconds"),
        ("--dsn mysql://h --chart /nowhere/x.png", "/nowhere/x.png cannot be written"),
        ("--dsn mysql://h --chart x.jpg", "does not end in .png or .svg"),
        ("--dsn mysql://h --hour 1", "unrecognized arguments: --hour"),
        ("--dsn mysql://h --currency EUR", "belong to a price"),
    ],
)
def test_an_estimate_that_cannot_begin_is_told(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = told(capsys, "estimate", *words.split())
    assert message in line and "secret" not in line


def test_a_run_of_which_nothing_can_be_measured_fails(
    laboratory: Laboratory, innodb: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"dsn:mysql://root@?socket={innodb.address().socket}&name=theirs"
    case = parse_case("recovery", Params(threads=1, seconds=0.3))
    status, message = laboratory.run(Plan("test", "", (case,), (spec,), blocks=3, budget=SMALL))
    assert status == "aborted"
    assert message.startswith("no case can be measured: recovery threads=1 on theirs: ")
