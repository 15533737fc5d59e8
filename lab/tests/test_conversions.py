"""The estimate against real conversions, where FIRN's plugin is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import conversions
import pytest

from firn_lab.cli.estimate import connect, query_of
from firn_lab.errors import TargetError
from firn_lab.estimate.reads import Limits
from firn_lab.estimate.run import TableEstimate, estimate
from firn_lab.targets import Budget
from firn_lab.targets.base import Target, make_target
from firn_lab.targets.engine import find_plugin

ROWS = 20000
# A table of ten blocks has no law of large numbers.
SLACK_BYTES = 24 << 10


def has_plugin() -> bool:
    try:
        find_plugin("ha_firn")
    except TargetError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(
        not has_plugin(), reason="FIRN's plugin is not built: make, or FIRN_LAB_PLUGINS"
    ),
    pytest.mark.usefixtures("real_rest"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Target]:
    budget = Budget(memory_bytes=64 << 20, durable=False)
    target = make_target("engine:firn", budget, tmp_path_factory.mktemp("conversions"))
    target.start()
    try:
        target.create_database()
        yield target
    finally:
        target.destroy()


def predicted(server: Target, name: str, limits: Limits) -> TableEstimate:
    connection = connect(f"mysql://root@/?socket={server.address().socket}", 60)
    try:
        (found,) = estimate(query_of(connection), "lab", [name], limits)
    finally:
        connection.close()
    assert found.problem == ""
    return found


def wait_until_gone(server: Target, before: int) -> None:
    """Dropped rows go when compactions get to them; the next table's bytes count from here on."""
    deadline = time.monotonic() + 120
    while (server.data_bytes() or 0) > before + SLACK_BYTES // 4 and time.monotonic() < deadline:
        server.rest(10)
        time.sleep(0.2)


@pytest.mark.parametrize("name", conversions.TABLES)
def test_within_ten_percent_of_the_conversion(server: Target, name: str) -> None:
    make, rows = conversions.TABLES[name]
    server.query(f"CREATE TABLE {name} {make} ENGINE=InnoDB")
    server.query(f"INSERT INTO {name} {rows.format(n=ROWS)}")
    server.query(f"ANALYZE TABLE {name}")
    scanned = predicted(server, name, Limits())
    before = server.data_bytes() or 0
    server.query(f"ALTER TABLE {name} ENGINE=FIRN")
    # Large values give back what they reserved when nobody looks any more.
    server.rest(10)
    real = (server.data_bytes() or 0) - before
    server.query(f"DROP TABLE {name}")
    wait_until_gone(server, before)
    assert abs(scanned.firn.bytes - real) <= 0.1 * real + SLACK_BYTES
