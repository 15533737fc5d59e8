"""A foreign server: used only through SQL, and left unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_workload  # noqa: F401
from conftest import SMALL, Laboratory

from firn_lab import cli
from firn_lab.plan import Plan, parse_case
from firn_lab.store import Reader
from firn_lab.targets import Budget, Target, make_target
from firn_lab.workloads import Params


@pytest.fixture
def other_server(tmp_path: Path) -> Iterator[Target]:
    target = make_target("engine:innodb", SMALL, tmp_path / "other")
    target.start()
    yield target
    target.destroy()


def plan(server: Target, more: str = "") -> Plan:
    spec = f"dsn:mysql://root@?socket={server.address().socket}&name=theirs{more}"
    case = parse_case("tiny:on=theirs", Params(threads=1, seconds=0.3))
    return Plan("test", "", (case,), (spec,), blocks=3, budget=SMALL)


def databases(server: Target) -> set[str]:
    return {row[0] for row in server.query("SHOW DATABASES", database="")}


def test_it_is_measured_and_left_as_it_was(
    laboratory: Laboratory, other_server: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firn_lab.targets.mysql.time.sleep", lambda seconds: None)
    before = databases(other_server)
    assert laboratory.run(plan(other_server)) == ("ok", "")
    assert databases(other_server) == before
    with laboratory.reader() as store:
        rounds = store.rounds(1)
        assert [r.status for r in rounds] == ["ok"] * 3
        # The lab cannot observe the processes of a foreign server.
        assert "cpu_seconds" not in rounds[0].figures
        assert store.targets(1)[0].memory_bytes == SMALL.memory_bytes
        assert {s.moment for s in store.state(1) if s.name == "data_bytes"} >= {"load", "rest"}
    other_server.require_alive()


def test_a_database_that_is_not_ours_is_left_alone(
    laboratory: Laboratory, other_server: Target
) -> None:
    other_server.create_database()
    other_server.query("CREATE TABLE precious (a INT PRIMARY KEY)")
    status, message = laboratory.run(plan(other_server))
    assert status == "failed"
    assert "has a database lab already" in message
    assert other_server.query("SHOW TABLES") == [("precious",)]


def test_a_server_that_does_not_answer_is_told(laboratory: Laboratory, tmp_path: Path) -> None:
    spec = f"dsn:mysql://root@?socket={tmp_path / 'nothing'}"
    case = parse_case("tiny", Params())
    status, message = laboratory.run(Plan("test", "", (case,), (spec,), blocks=3, budget=SMALL))
    assert status == "aborted"
    assert "does not answer" in message


@pytest.mark.parametrize(
    "text",
    [
        "dsn:mysql://me@?socket=/run/a%20b/s&engine=firn&name=theirs",
        "dsn:mysql://m%40e@host:4000?engine=innodb&replace=1",
        "dsn:mysql://root@[::1]:3307?engine=rocksdb",
        "dsn:mysql://root@/",
    ],
)
def test_the_recorded_dsn_leads_to_the_same_server(text: str, tmp_path: Path) -> None:
    first = make_target(text, Budget(), tmp_path)
    again = make_target(first.spec, Budget(), tmp_path)
    assert (again.address(), again.name, again.spec) == (first.address(), first.name, first.spec)
    assert again.create_suffix() == first.create_suffix()
    assert vars(again).get("replace") == vars(first).get("replace")


def test_the_recorded_dsn_names_socket_and_host(tmp_path: Path) -> None:
    target = make_target("dsn:mysql://root@?socket=/run/s&name=x", Budget(), tmp_path)
    where = make_target(target.spec, Budget(), tmp_path).address()
    assert where.socket == Path("/run/s")
    where = make_target("dsn:mysql://root@[::1]:3307", Budget(), tmp_path).address()
    assert (where.host, where.port, where.socket) == ("::1", 3307, None)


def test_no_password_is_in_the_store(
    other_server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firn_lab.targets.mysql.time.sleep", lambda seconds: None)
    other_server.query("CREATE USER me IDENTIFIED BY 'open@sesame'", database="")
    other_server.query("GRANT ALL ON *.* TO me", database="")
    place = f"?socket={other_server.address().socket}&name=theirs"
    store = tmp_path / "store" / "lab.sqlite"
    words = ["run", "tiny:on=theirs", "--targets", f"dsn:mysql://me:open@sesame@{place}",
             "--threads", "1", "--seconds", "0.3", "--blocks", "1", "--store", str(store),
             "--dir", str(tmp_path / "data"), "--memory", "32", "--free", "1"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["firn-lab", *words])
    assert cli.main(words) == 0
    with Reader(store) as found:
        assert f"dsn:mysql://me:…@{place}" in found.run("last").command
    assert not any(b"sesame" in file.read_bytes() for file in store.parent.iterdir())
