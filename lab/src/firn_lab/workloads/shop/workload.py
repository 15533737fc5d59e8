"""The shop as a workload. Sales, orders and stock must add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firn_lab.targets.target import Target
from firn_lab.workloads.fill import Share
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.shop.data import (
    STOCK,
    WARM_COLUMNS,
    Sizes,
    create_tables,
    everything,
    inventory,
)
from firn_lab.workloads.shop.session import ShopSession
from firn_lab.workloads.sql_session import scaled_option
from firn_lab.workloads.workload import WORKLOADS, FigureKind, Params

CHECKS = (
    (
        "sold is not what was ordered",
        "SELECT inventory.product FROM inventory LEFT JOIN (SELECT product, SUM(quantity) AS "
        "ordered FROM order_lines GROUP BY product) AS l ON l.product = inventory.product "
        "WHERE sold <> COALESCE(ordered, 0)",
    ),
    (
        "an order's net is not the sum of its lines",
        "SELECT id FROM orders LEFT JOIN (SELECT order_id, SUM(quantity * price) AS lines_net "
        "FROM order_lines GROUP BY order_id) AS l ON order_id = id "
        "WHERE lines_net IS NULL OR net <> lines_net OR total <> net + tax",
    ),
    (
        "a line is not among its customer's purchases",
        "SELECT o.id FROM orders AS o JOIN order_lines AS l ON l.order_id = o.id LEFT JOIN "
        "purchases AS p ON p.customer = o.customer AND p.order_id = o.id AND p.line = l.line "
        "WHERE p.product IS NULL OR p.product <> l.product",
    ),
)


def problems(sizes: Sizes, query: Callable[[str], list[Any]]) -> list[str]:
    """Inconsistencies, one per line."""
    wrong = []
    for what, statement in CHECKS:
        rows = query(statement)
        if rows:
            wrong.append(f"{what}: {len(rows)} times, first {rows[0][0]}")
    lines, bought = (
        query(f"SELECT COUNT(*) FROM {table}")[0][0] for table in ("order_lines", "purchases")
    )
    if lines != bought:
        wrong.append(f"{lines} lines of orders, {bought} purchases")
    # Initial orders count as sales, but have not reduced the initial stock.
    sold_before = sum(row[2] for row in inventory(sizes))
    together = query("SELECT SUM(in_stock) + SUM(sold) FROM inventory")[0][0]
    if together != STOCK * sizes.products + sold_before:
        wrong.append(f"in stock and sold are {together} together")
    return wrong


@WORKLOADS.register("shop")
class Shop(SessionWorkload):
    summary = "a shop like DVD Store: login, register, browse, purchase"
    options = {"customers": "200000", "products": "20000"}
    figures = {"orders_per_minute": FigureKind("1/min", "higher")}
    dialects = ("mysql",)
    keeps_rows = False
    rate = ("orders_per_minute", "purchase")
    warm_reads = {table: f"MAX({column})" for table, column in WARM_COLUMNS.items()}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        customers = scaled_option(self, "customers", 10)
        self.sizes = Sizes(customers, scaled_option(self, "products", 10))

    @property
    def about_bytes(self) -> float:
        return self.sizes.customers * 700.0 + self.sizes.products * 400.0

    @property
    def dataset(self) -> str:
        sizes = f"customers={self.sizes.customers} products={self.sizes.products}"
        return f"shop {sizes} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        create_tables(target)

    def shares(self) -> list[Share]:
        return everything(self.sizes, self.params.seed)

    def session(self, target: Target) -> Callable[[int], ShopSession]:
        return lambda number: ShopSession(target.connect(autocommit=False), self.sizes)

    def check(self, target: Target) -> list[str]:
        return problems(self.sizes, target.query)
