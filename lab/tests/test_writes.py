"""The workloads shop, blobs, insert, load_time, operations and recovery, small and on InnoDB."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from conftest import Heard, made, run_round

from firn_lab.clock import SystemClock
from firn_lab.errors import CheckFailed, LabError
from firn_lab.targets import Target, make_target
from firn_lab.targets.target import Budget
from firn_lab.workloads import Params, make_workload
from firn_lab.workloads.blobs import value
from firn_lab.workloads.insert import INDEXES
from firn_lab.workloads.load_file import load_file
from firn_lab.workloads.operations.steps import Steps
from firn_lab.workloads.operations.workload import STEPS
from firn_lab.workloads.shop import Shop
from firn_lab.workloads.shop import data as shop_data
from firn_lab.workloads.shop.session import ShopSession
from firn_lab.workloads.shop.workload import problems
from firn_lab.workloads.sql_session import SqlSession


def test_the_first_orders_of_the_shop_add_up() -> None:
    sizes = shop_data.Sizes(100, 50)
    lines = list(shop_data.order_lines(sizes, range(1, sizes.orders + 1)))
    sold = {row[0]: row[2] for row in shop_data.inventory(sizes)}
    assert sum(sold.values()) == sum(row[3] for row in lines)
    assert len(lines) == len(list(shop_data.purchases(sizes, range(1, sizes.orders + 1))))
    assert len({row[2] for row in shop_data.products(1, range(1, 51))}) == 50


@pytest.fixture(scope="module")
def shop(innodb: Target) -> Shop:
    workload = made(innodb, "shop", customers=200, products=100)
    assert isinstance(workload, Shop)
    return workload


def test_a_round_of_the_shop(shop: Shop, innodb: Target) -> None:
    counts: Counter[str] = Counter()
    transactions = rounds = 0
    orders = 0.0
    deadline = time.monotonic() + 120
    # Further rounds must register other names. On a slow disk, a round has few transactions.
    while rounds < 2 or transactions < 100:
        assert time.monotonic() < deadline, counts
        outcome = run_round(shop, innodb)
        counts.update({part.name: part.count for part in outcome.parts})
        transactions += outcome.transactions
        orders += outcome.figures["orders_per_minute"]
        rounds += 1
    assert set(counts) >= {"login", "browse", "purchase"}
    # Three of five transactions browse. Six standard deviations are allowed.
    deviation = (0.24 * transactions) ** 0.5
    assert abs(counts["browse"] - 0.6 * transactions) <= 6 * deviation
    assert orders > 0


def test_a_purchase_of_what_is_sold_out_leaves_nothing(shop: Shop, innodb: Target) -> None:
    def state() -> tuple[int, int]:
        (orders,) = innodb.query("SELECT COUNT(*) FROM orders")[0]
        (sold,) = innodb.query("SELECT SUM(sold) FROM inventory")[0]
        return orders, int(sold)

    before = state()
    client = ShopSession(innodb.connect(autocommit=False), shop.sizes)
    # The last products that a purchase wants are sold out, after it has taken others from the
    # stock.
    innodb.query("UPDATE inventory SET in_stock = in_stock - 1000 WHERE product > 10")
    kinds = {client._purchase(Random(seed))() for seed in range(20)}
    assert kinds == {"sold_out"}
    assert state() == before
    innodb.query("UPDATE inventory SET in_stock = in_stock + 1000 WHERE product > 10")
    assert client._purchase(Random(1))() == "purchase"
    client.close()
    assert state()[0] == before[0] + 1
    assert shop.check(innodb) == []


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE inventory SET sold = sold + 1, in_stock = in_stock - 1 WHERE product = 3",
         "sold is not what was ordered"),
        ("UPDATE inventory SET in_stock = in_stock - 1 WHERE product = 3", "in stock and sold are"),
        ("UPDATE orders SET net = net + 1, total = total + 1 WHERE id = 5",
         "an order's net is not the sum of its lines"),
        ("DELETE FROM purchases WHERE order_id = 7", "a line is not among its customer's"),
        ("INSERT INTO purchases VALUES (1, 1, 99, 1)", "lines of orders"),
    ],
)  # fmt: skip
def test_the_shop_finds_what_does_not_add_up(
    shop: Shop, innodb: Target, damage: str, found: str
) -> None:
    client = SqlSession(innodb.connect(autocommit=False))
    assert problems(shop.sizes, client.rows) == []
    client.rows(damage)
    lines = problems(shop.sizes, client.rows)
    client.rollback()
    client.close()
    assert found in " ".join(lines)


def test_blobs_are_as_random_as_asked() -> None:
    def ratio(share: float) -> float:
        data = value(Random(1), 512 << 10, share)
        assert len(data) == 512 << 10
        return len(zlib.compress(data)) / len(data)

    assert ratio(0) < 0.05
    assert 0.35 < ratio(0.5) < 0.65
    assert ratio(1) > 0.99
    assert value(Random(1), 1000, 0.5) == value(Random(1), 1000, 0.5)


def test_blobs(innodb: Target) -> None:
    workload = made(innodb, "blobs", rows=8, bytes=200_000)
    parts: set[str] = set()
    deadline = time.monotonic() + 60
    # On a slow disk, a round may have only one of them.
    while parts != {"select", "update"}:
        assert time.monotonic() < deadline, parts
        parts |= {part.name for part in run_round(workload, innodb).parts}
    innodb.query("UPDATE blobs SET data = INSERT(data, 1000, 1, 'x') WHERE id = 3")
    assert workload.check(innodb) == ["blob 3 does not fit its digest"]
    innodb.query("DELETE FROM blobs WHERE id = 3")
    assert workload.check(innodb) == ["7 blobs, not 8"]
    select = make_workload(
        "blobs",
        Params(threads=1, seconds=5, options={"rows": "8", "access": "select"}),
    )
    with pytest.raises(CheckFailed, match="blob 3 is not the one"):
        select.measure(innodb, SystemClock(), Heard(), 0)


def test_insert(innodb: Target) -> None:
    workload = made(innodb, "insert", rows=500, batch=20)
    first = run_round(workload, innodb)
    second = run_round(workload, innodb)
    inserted = 20 * (first.transactions + second.transactions)
    assert innodb.query("SELECT COUNT(*) FROM purchases") == [(500 + inserted,)]
    assert first.figures["rows_per_second"] == pytest.approx(
        first.transactions * 20 / first.seconds
    )
    innodb.query("DELETE FROM purchases WHERE id = 1")
    lines = workload.check(innodb)
    assert [line.split(":")[0] for line in lines] == ["PRIMARY", *INDEXES]


@pytest.mark.parametrize(("way", "order"), [("file", "random"), ("insert", "key")])
def test_load_time(innodb: Target, way: str, order: str) -> None:
    workload = made(innodb, "load_time", rows=2000, way=way, order=order)
    for _ in range(2):
        outcome = run_round(workload, innodb)
        assert outcome.figures["rows_per_second"] == pytest.approx(2000 / outcome.seconds)
    innodb.query("UPDATE loaded SET id = 5000 WHERE id = 5")
    assert len(workload.check(innodb)) == 3


def test_a_row_that_a_file_cannot_bring_in_is_told(innodb: Target, tmp_path: Path) -> None:
    innodb.create_database()
    innodb.query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(9)) ENGINE=InnoDB")
    path = tmp_path / "t.tbl"
    path.write_text("1|one|\n2|two|\n")
    load_file(innodb, "t", path, "|\n")
    assert innodb.query("SELECT * FROM t") == [(1, "one"), (2, "two")]
    path.write_text("3|three|\n1|again|\n")
    with pytest.raises(LabError, match="Duplicate entry '1'"):
        load_file(innodb, "t", path, "|\n")


def test_operations(innodb: Target) -> None:
    workload = made(innodb, "operations", rows=600)
    heard = Heard()
    outcome = run_round(workload, innodb, heard)
    assert tuple(part.name for part in outcome.parts) == STEPS
    assert outcome.seconds == pytest.approx(sum(part.seconds for part in outcome.parts))
    assert heard.done == 1
    innodb.query("INSERT INTO numbers VALUES ('A', 1, 2, 3, '')")
    assert workload.check(innodb) == ["numbers still has 1 rows"]


@pytest.mark.parametrize("name", ["_mirrored", "_alone"])
def test_an_operation_with_a_wrong_answer_is_told(
    innodb: Target, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    workload = made(innodb, "operations", rows=120)
    monkeypatch.setattr(Steps, name, lambda self: -1)
    with pytest.raises(CheckFailed, match=r"outer_join.*: \d+, not -1"):
        workload.measure(innodb, SystemClock(), Heard(), 0)


@pytest.mark.usefixtures("no_purge")
def test_recovery(innodb: Target) -> None:
    workload = made(innodb, "recovery", rows=1000, log_mb=1)
    for _ in range(2):
        heard = Heard()
        outcome = run_round(workload, innodb, heard)
        assert heard.done == 1
        names = {"recovery", "first_scan", "stop", "restart"}
        assert all(outcome.figures[f"{name}_seconds"] > 0 for name in names)
        assert {part.name for part in outcome.parts} == names | {"write"}
        assert outcome.figures["written_bytes"] == 20 * 50 * 1000
    innodb.query("UPDATE recovered SET version = version - 1 WHERE id = 600")
    assert any("row 600 has version" in line for line in workload.check(innodb))
    innodb.query("UPDATE recovered SET version = version + 1, data = 'x' WHERE id = 600")
    assert workload.check(innodb) == ["1 rows do not fit their digest"]
    innodb.query("DELETE FROM recovered WHERE id = 600")
    assert "999 rows, not 1000" in workload.check(innodb)


def test_only_our_own_servers_are_killed() -> None:
    target = make_target("dsn:mysql://h", Budget(), Path())
    assert make_workload("recovery", Params()).supports(target)
    assert not make_workload("tpcc", Params()).supports(target)
