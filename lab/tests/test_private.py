"""Private servers in directories with long names."""

from __future__ import annotations

from pathlib import Path

from conftest import SMALL

from firn_lab.targets import make_target, private


def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    """The socket is then in another directory, also after the data is recreated."""
    target = make_target("engine:innodb", SMALL, tmp_path / ("x" * private.SOCKET_LENGTH_MAX))
    assert isinstance(target, private.PrivateTarget)
    for _ in range(2):
        try:
            target.start()
            directory = target.socket_dir
            assert tmp_path not in directory.parents
            assert target.query("SELECT 1", database="") == [(1,)]
        finally:
            target.destroy()
        assert not directory.exists()
