"""Sessions see, block and fail each other as in InnoDB: one golden script per anomaly.

Every script also runs on InnoDB, so that it stays true to InnoDB's behaviour. FIRN_TEST_RECORD=1
records InnoDB's behaviour into the scripts; review the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_scripts import Player, Script, load
from server import ENGINE, Server

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "isolation").glob("*.script"))
# These need a binary log: the server then asks for locks that a statement logged as text needs.
BINLOG_SCRIPTS = sorted((HERE / "isolation_binlog").glob("*.script"))
BINLOG = ("--log-bin=bin", "--binlog-format=MIXED", "--server-id=1")
RECORD = bool(os.environ.get("FIRN_TEST_RECORD"))


@pytest.mark.parametrize("engine", dict.fromkeys(["InnoDB", ENGINE]))
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(server: Server, database: str, path: Path, engine: str) -> None:
    _play(server, database, path, engine)


@pytest.fixture(scope="module")
def logging_server() -> Iterator[Server]:
    server = Server(options=list(BINLOG))
    server.start()
    yield server
    server.destroy()


@pytest.mark.parametrize("engine", dict.fromkeys(["InnoDB", ENGINE]))
@pytest.mark.parametrize("path", BINLOG_SCRIPTS, ids=lambda path: path.stem)
def test_script_with_a_binary_log(logging_server: Server, path: Path, engine: str) -> None:
    database = "logged"
    logging_server.query(f"CREATE DATABASE {database}")
    try:
        _play(logging_server, database, path, engine)
    finally:
        logging_server.query(f"DROP DATABASE {database}")


def _play(server: Server, database: str, path: Path, engine: str) -> None:
    script = load(path)
    if RECORD and engine == "InnoDB":
        for step in script.steps:
            if not any(line.startswith("deadlock") for line in step.expected):
                step.expected = []
        Player(server, engine, database, record=True).play(script)
        path.write_text(script.format())
        return
    assert all(step.expected for step in script.steps), "a step says nothing: record the script"
    Player(server, engine, database).play(script)


def _wrong(text: str, old: str, new: str) -> Script:
    assert old in text
    return Script.parse(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("row_lock_update", "  waits", "  1 changed"),
        ("dirty_read_rr", "  1|10", "  1|11"),
        ("row_lock_update", "  b: 1 changed", "  b: 0 changed"),
        ("deadlock", "  deadlock with a", "  1 changed"),
    ],
)
def test_a_wrong_expectation_is_found_out(
    server: Server, database: str, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golden_scripts.RETURN_SECONDS_MAX", 1.0)
    text = (Path(__file__).parent / "isolation" / f"{name}.script").read_text()
    with pytest.raises(AssertionError, match="expected"):
        Player(server, "InnoDB", database).play(_wrong(text, old, new))
