"""TPC-C: draws and data against the specification, without a server; then small on InnoDB."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from random import Random

import pytest
from conftest import made, run_round

from firn_lab.errors import UsageError
from firn_lab.targets import Target
from firn_lab.workloads import Params, make_workload
from firn_lab.workloads.sql_session import SqlSession
from firn_lab.workloads.tpcc import Tpcc, data
from firn_lab.workloads.tpcc.consistency import broken_conditions
from firn_lab.workloads.tpcc.inputs import (
    Delivery,
    Line,
    NewOrder,
    OrderStatus,
    Payment,
    StockLevel,
    Terminals,
)
from firn_lab.workloads.tpcc.randoms import constants, last_name, nurand
from firn_lab.workloads.tpcc.sizes import Sizes
from firn_lab.workloads.tpcc.transactions import TpccSession

SIZES = Sizes(5)
NOW = datetime(2026, 2, 3, 4, 5, 6)
DRAWS = 20_000


def near(count: int, total: int, share: float) -> bool:
    """Whether a count is within five standard deviations of its expectation."""
    return abs(count - total * share) <= 5 * (total * share * (1 - share)) ** 0.5


def test_constants_of_load_and_run_keep_their_distance() -> None:
    for seed in range(300):
        drawn = constants(seed)
        delta = abs(drawn.last_run - drawn.last_load)
        assert 65 <= delta <= 119
        assert delta not in (96, 112)
        assert 0 <= drawn.last_run <= 255
        assert constants(seed) == drawn
    assert len({constants(seed).customer for seed in range(300)}) > 100


def test_last_names_are_made_of_syllables() -> None:
    assert last_name(371) == "PRICALLYOUGHT"
    assert last_name(0) == "BARBARBAR"
    assert len({last_name(number) for number in range(1000)}) == 1000


@pytest.mark.parametrize(("a", "low", "high"), [(255, 0, 999), (63, 1, 150)])
def test_nurand_draws_as_its_formula_says(a: int, low: int, high: int) -> None:
    constant, size = 123, high - low + 1
    exact: Counter[int] = Counter()
    for first in range(a + 1):
        for second in range(low, high + 1):
            exact[((first | second) + constant) % size + low] += 1
    total = sum(exact.values())
    random = Random(1)
    drawn = Counter(nurand(random, a, low, high, constant) for _ in range(DRAWS))
    assert low <= min(drawn) <= max(drawn) <= high
    ranked = [value for value, _ in exact.most_common()]
    for count in (1, 10, size // 10, size // 2):
        chosen = ranked[:count]
        share = sum(exact[value] for value in chosen) / total
        assert near(sum(drawn[value] for value in chosen), DRAWS, share)
    # A tenth of the values gets far more than a tenth of the draws.
    assert sum(exact[value] for value in ranked[: size // 10]) / total > 0.2


def test_the_mix_is_dealt_from_a_deck() -> None:
    terminals = Terminals(SIZES, constants(1))
    random = Random(2)
    for _ in range(3):
        kinds = Counter(type(terminals.enter(random)) for _ in range(100))
        assert kinds == {NewOrder: 45, Payment: 43, OrderStatus: 4, Delivery: 4, StockLevel: 4}
    order = [type(terminals.enter(random)) for _ in range(100)]
    assert order != sorted(order, key=str)


def test_new_orders_are_drawn_as_specified() -> None:
    terminals = Terminals(SIZES, constants(1))
    random = Random(3)
    orders = [terminals.new_order(random, 3, 4) for _ in range(DRAWS)]
    lines = [line for order in orders for line in order.lines]
    wrong = [order for order in orders if any(line.item == 0 for line in order.lines)]
    assert near(len(wrong), len(orders), 0.01)
    assert all(order.lines[-1].item == 0 for order in wrong)
    remote = [line for line in lines if line.supply_warehouse != 3]
    assert near(len(remote), len(lines), 0.01)
    assert {line.supply_warehouse for line in remote} == {1, 2, 4, 5}
    counts = Counter(len(order.lines) for order in orders)
    assert set(counts) == set(range(5, 16))
    assert all(near(count, len(orders), 1 / 11) for count in counts.values())
    assert {line.quantity for line in lines} == set(range(1, 11))
    assert all(0 <= line.item <= 100_000 for line in lines)
    assert {order.customer for order in orders} <= set(range(1, 3001))


def test_payments_are_drawn_as_specified() -> None:
    terminals = Terminals(SIZES, constants(1))
    random = Random(4)
    payments = [terminals.payment(random, 3, 4) for _ in range(DRAWS)]
    remote = [p for p in payments if p.customer_warehouse != 3]
    assert near(len(remote), DRAWS, 0.15)
    assert {p.customer_district for p in remote} == set(range(1, 11))
    assert all(p.customer_district == 4 for p in payments if p.customer_warehouse == 3)
    assert near(sum(isinstance(p.customer, str) for p in payments), DRAWS, 0.6)
    assert all(Decimal(1) <= p.amount <= Decimal(5000) for p in payments)


def test_a_single_warehouse_supplies_itself() -> None:
    terminals = Terminals(Sizes(1), constants(1))
    random = Random(5)
    assert {terminals.payment(random, 1, 1).customer_warehouse for _ in range(200)} == {1}
    lines = [line for _ in range(200) for line in terminals.new_order(random, 1, 1).lines]
    assert {line.supply_warehouse for line in lines} == {1}


def test_the_first_rows_are_those_of_the_specification() -> None:
    sizes = Sizes(1)
    items = list(data.items(sizes, 7))
    assert len(items) == 100_000
    assert near(sum("ORIGINAL" in row[4] for row in items), len(items), 0.1)
    assert all(26 <= len(row[4]) <= 50 and 14 <= len(row[2]) <= 24 for row in items)
    customers = list(data.customers(sizes, 7, 1, 1))
    assert [row[5] for row in customers[:1000]] == [last_name(n) for n in range(1000)]
    assert near(sum(row[13] == "BC" for row in customers), 3000, 0.1)
    orders = list(data.orders(sizes, 7, 1, 1))
    assert sorted(row[3] for row in orders) == list(range(1, 3001))
    assert [row[0] for row in orders if row[5] is None] == list(range(2101, 3001))
    assert [row[0] for row in data.new_orders(sizes, 7, 1, 1)] == list(range(2101, 3001))
    lines = list(data.order_lines(sizes, 7, 1, 1))
    assert len(lines) == sum(row[6] for row in orders)
    assert all((row[6] is None) == (row[0] > 2100) for row in lines)
    assert all((row[8] == "0.00") == (row[0] <= 2100) for row in lines)
    assert lines == list(data.order_lines(sizes, 7, 1, 1))
    assert lines != list(data.order_lines(sizes, 8, 1, 1))


def test_sizes_follow_scale_and_cache() -> None:
    def sizes(scale: float = 1.0, **options: str) -> Sizes:
        workload = make_workload("tpcc", Params(scale, memory_bytes=1 << 30, options=options))
        assert isinstance(workload, Tpcc)
        return workload.sizes

    assert sizes() == Sizes(10)
    assert sizes(2.5, warehouses="4") == Sizes(10)
    assert sizes(0.01, warehouses="4") == Sizes(4, 1000, 30)
    assert sizes(cache="10") == Sizes(102)
    with pytest.raises(UsageError, match="warehouses"):
        sizes(warehouses="none")


@pytest.fixture(scope="module")
def tpcc(innodb: Target) -> Tpcc:
    workload = made(innodb, "tpcc", scale=0.01, warehouses=2, seconds=1.5)
    assert isinstance(workload, Tpcc)
    return workload


def test_a_round_keeps_the_conditions(tpcc: Tpcc, innodb: Target) -> None:
    outcome = run_round(tpcc, innodb)
    assert {part.name for part in outcome.parts} >= {"new_order", "payment"}
    orders = sum(part.count for part in outcome.parts if part.name == "new_order")
    rate = outcome.figures["new_orders_per_minute"]
    assert rate == pytest.approx(orders * 60 / outcome.seconds)


def session(tpcc: Tpcc, target: Target) -> TpccSession:
    return TpccSession(
        target.connect(autocommit=False), Terminals(tpcc.sizes, constants(tpcc.params.seed))
    )


def test_a_new_order_and_one_that_is_rolled_back(tpcc: Tpcc, innodb: Target) -> None:
    def state() -> tuple[int, int, int, int]:
        (following,) = innodb.query(
            "SELECT d_next_o_id FROM district WHERE d_w_id = 1 AND d_id = 2"
        )[0]
        counts = [
            innodb.query(f"SELECT COUNT(*) FROM {table}")[0][0]
            for table in ("orders", "order_line", "new_order")
        ]
        return (following, *counts)

    client = session(tpcc, innodb)
    before = state()
    good = (Line(1, 1, 3), Line(2, 2, 4), Line(3, 1, 5))
    wrong = client.transaction(NewOrder(1, 2, 3, (*good, Line(0, 1, 1)), NOW))()
    assert wrong.kind == "new_order"
    assert state() == before
    stock = "SELECT s_quantity, s_ytd, s_order_cnt, s_remote_cnt FROM stock WHERE s_w_id = 2 "
    quantity, ytd, count, remote = innodb.query(stock + "AND s_i_id = 2")[0]
    client.transaction(NewOrder(1, 2, 3, good, NOW))()
    client.close()
    assert state() == (before[0] + 1, before[1] + 1, before[2] + 3, before[3] + 1)
    left = quantity - 4 if quantity - 4 >= 10 else quantity - 4 + 91
    assert innodb.query(stock + "AND s_i_id = 2") == [(left, ytd + 4, count + 1, remote + 1)]
    amount, info = innodb.query(
        "SELECT ol_amount, ol_dist_info FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 2 "
        "AND ol_o_id = %s AND ol_number = 2", (before[0],)
    )[0]  # fmt: skip
    (price,) = innodb.query("SELECT i_price FROM item WHERE i_id = 2")[0]
    assert amount == 4 * price
    assert innodb.query("SELECT s_dist_02 FROM stock WHERE s_w_id = 2 AND s_i_id = 2") == [(info,)]
    assert innodb.query(
        "SELECT o_all_local FROM orders WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = %s", (before[0],)
    ) == [(0,)]


def test_a_payment_by_last_name_takes_the_one_in_the_middle(tpcc: Tpcc, innodb: Target) -> None:
    innodb.query(
        "UPDATE customer SET c_last = 'PRIPRIPRI', c_credit = 'BC' WHERE c_w_id = 2 AND c_d_id = 1 "
        "AND c_id <= 4"
    )
    rows = innodb.query(
        "SELECT c_id, c_balance, c_payment_cnt FROM customer WHERE c_w_id = 2 AND c_d_id = 1 "
        "AND c_last = 'PRIPRIPRI' ORDER BY c_first"
    )
    # The customer that the specification selects: position n/2, rounded up and counted from one.
    number, balance, payments = rows[-(-len(rows) // 2) - 1]
    client = session(tpcc, innodb)
    client.transaction(Payment(1, 5, 2, 1, "PRIPRIPRI", Decimal("12.50"), NOW))()
    client.close()
    after = innodb.query(
        "SELECT c_balance, c_payment_cnt, c_data FROM customer WHERE c_w_id = 2 AND c_d_id = 1 "
        "AND c_id = %s", (number,)
    )[0]  # fmt: skip
    assert after[:2] == (balance - Decimal("12.50"), payments + 1)
    assert after[2].startswith(f"{number} 1 2 5 1 12.50|")
    assert innodb.query(
        "SELECT h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount FROM history "
        "WHERE h_date = %s", (NOW,)
    ) == [(number, 1, 2, 5, 1, Decimal("12.50"))]  # fmt: skip
    assert tpcc.check(innodb) == []


def test_a_delivery_takes_the_oldest_of_each_district(tpcc: Tpcc, innodb: Target) -> None:
    new = "SELECT no_d_id, no_o_id FROM new_order WHERE no_w_id = 1 ORDER BY 1, 2 DESC"
    before = innodb.query(new)
    oldest = dict(before)
    client = session(tpcc, innodb)
    client.transaction(Delivery(1, 7, NOW))()
    status = client.transaction(OrderStatus(1, 1, 5))()
    level = client.transaction(StockLevel(1, 1, 20))()
    client.close()
    assert (status.kind, status.queries) == ("order_status", 4)
    assert (level.kind, level.queries) == ("stock_level", 3)
    for district, order in oldest.items():
        where = "o_w_id = 1 AND o_d_id = %s AND o_id = %s"
        found = innodb.query(f"SELECT o_carrier_id FROM orders WHERE {where}", (district, order))
        assert found == [(7,)]
        dates = innodb.query(
            "SELECT DISTINCT ol_delivery_d FROM order_line WHERE ol_w_id = 1 AND ol_d_id = %s "
            "AND ol_o_id = %s", (district, order)
        )  # fmt: skip
        assert dates == [(NOW,)]
    assert innodb.query(new) == [row for row in before if oldest[row[0]] != row[1]]
    assert tpcc.check(innodb) == []


# The district with the most new orders: a round may have delivered all orders of other districts.
NEW = "no_w_id = {w} AND no_d_id = {d}"
ONE_LINE = "WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 5 AND ol_number = 1"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2", {"1: w_ytd"}),
        ("UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 9", {"1: w_ytd"}),
        (
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = {w} AND d_id = {d}",
            {"2: d_next_o_id - 1 is not the last order", "2: d_next_o_id - 1 is not the last new"},
        ),
        (
            f"DELETE FROM new_order WHERE {NEW} ORDER BY no_o_id DESC LIMIT 1",
            {"2: d_next_o_id - 1 is not the last new"},
        ),
        (
            "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) "
            f"SELECT {{w}}, {{d}}, MIN(no_o_id) - 2 FROM new_order WHERE {NEW}",
            {"3: new orders are not without gaps"},
        ),
        (f"DELETE FROM order_line {ONE_LINE}", {"4: the sum of o_ol_cnt"}),
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 2 AND o_d_id = 1 "
            "AND o_id = 1",
            {"4: the sum of o_ol_cnt"},
        ),
        ("DELETE FROM order_line WHERE ol_w_id = 2 AND ol_d_id = 1", {"4: the sum of o_ol_cnt"}),
    ],
)
def test_each_condition_finds_a_broken_row(
    tpcc: Tpcc, innodb: Target, damage: str, found: set[str]
) -> None:
    assert tpcc.check(innodb) == []
    client = SqlSession(innodb.connect(autocommit=False))
    ((w, d, new_orders),) = client.rows(
        "SELECT no_w_id, no_d_id, COUNT(*) FROM new_order GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 1"
    )
    assert new_orders > 1
    client.rows(damage.format(w=w, d=d))
    lines = broken_conditions(client.rows)
    client.rollback()
    client.close()
    assert len(lines) == len(found)
    assert all(any(line.startswith(f"condition {start}") for line in lines) for start in found)
