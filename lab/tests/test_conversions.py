"""Compares the estimate with real conversions, if FIRN's plugin is built."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import conversions
import pymysql
import pytest
from conftest import Heard

from firn_lab.cli.estimate import connect, query_of
from firn_lab.errors import TargetError
from firn_lab.estimate.read_budget import Limits
from firn_lab.estimate.run import TableEstimate, estimate
from firn_lab.plan import parse_case
from firn_lab.targets import Budget
from firn_lab.targets.engine import EngineTarget, find_plugin
from firn_lab.targets.target import Target, make_target
from firn_lab.workloads import Params, make_workload

ROWS = 20000
# Tables that need more rows than ROWS to reach half a MiB.
MORE_ROWS = dict.fromkeys(("orders", "events", "logs", "sparse"), 100_000)
# The prediction of a table of this size or more must be close to the truth; that of a smaller table
# need only be within its error bound.
LARGE_BYTES = 512 << 10
# Reads every table in ranges, like a table that is too large to be read whole.
RANGES = Limits(sample_bytes=512 << 10, scan_bytes=0)
WORKLOADS = {"users": 0.05, "shop": 0.2, "tpcc:warehouses=1": 0.1}


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
    """Waits until compactions have removed the rows of a dropped table.

    Otherwise their bytes would count for the next table.
    """
    deadline = time.monotonic() + 60
    while (server.data_bytes() or 0) > before + 6144 and time.monotonic() < deadline:
        server.rest(10)
        time.sleep(0.2)


def converted(server: Target, name: str) -> int:
    """Converts the table to FIRN; returns its bytes on disk and drops it."""
    before = server.data_bytes() or 0
    server.query(f"ALTER TABLE {name} ENGINE=FIRN")
    # Blob files release their reserved space when they become idle.
    server.rest(10)
    real = (server.data_bytes() or 0) - before
    server.query(f"DROP TABLE {name}")
    wait_until_gone(server, before)
    return real


def require_good(found: TableEstimate, real: int) -> None:
    """Checks that the truth lies within the error bound of the estimate.

    If the table is large and was read whole, the prediction must be within a tenth of the truth.
    """
    off = abs(found.firn.bytes - real)
    assert off <= found.firn.error, (found, real)
    if found.read_whole and real >= LARGE_BYTES:
        assert off <= 0.1 * real, (found, real)


def test_what_is_refused_is_named_and_nothing_else(server: Target) -> None:
    server.create_database()
    for name, (make, _) in conversions.REFUSED.items():
        # ENGINE must precede WITH SYSTEM VERSIONING; the server's default engine may differ.
        before, versioning, after = make.partition(" WITH SYSTEM")
        server.query(f"CREATE TABLE {name} {before} ENGINE=InnoDB{versioning}{after}")
    for name, (_, reasons) in conversions.REFUSED.items():
        connection = connect(f"mysql://root@/?socket={server.address().socket}", 60)
        try:
            (found,) = estimate(query_of(connection), "lab", [name], Limits())
        finally:
            connection.close()
        assert found.blockers == reasons
        try:
            server.query(f"ALTER TABLE {name} ENGINE=FIRN")
            refused = False
        except pymysql.MySQLError:
            refused = True
        assert refused == bool(reasons), (name, reasons)


@pytest.mark.parametrize("text", WORKLOADS)
def test_within_the_bound_of_tables_of_workloads(
    server: Target, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineTarget, "create_suffix", lambda self: " ENGINE=InnoDB")
    case = parse_case(text, Params(threads=2, scale=WORKLOADS[text]))
    server.create_database()
    make_workload(case.workload, case.params).load(server, Heard())
    for name in server.tables():  # type: ignore[attr-defined]
        server.query(f"ANALYZE TABLE {name}")
        found = predicted(server, name, Limits())
        require_good(found, converted(server, name))


# The table with blobs comes last, because its blob file stays for a while after DROP TABLE.
@pytest.mark.parametrize("name", conversions.TABLES)
def test_within_the_bound_of_the_conversion(server: Target, name: str) -> None:
    make, rows = conversions.TABLES[name]
    server.query(f"CREATE TABLE {name} {make} ENGINE=InnoDB")
    server.query(f"INSERT INTO {name} {rows.format(n=MORE_ROWS.get(name, ROWS))}")
    server.query(f"ANALYZE TABLE {name}")
    scanned = predicted(server, name, Limits())
    ranges = predicted(server, name, RANGES) if "PRIMARY KEY" in make else None
    real = converted(server, name)
    assert scanned.read_whole
    assert name not in MORE_ROWS or real >= LARGE_BYTES
    require_good(scanned, real)
    if ranges is not None:
        assert not ranges.read_whole
        require_good(ranges, real)
