"""Mistakes of the command line: told in one line before anything is started or stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from firn_lab import cli


def told(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    """What a command says that refuses to begin: its last line, without a traceback."""
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
