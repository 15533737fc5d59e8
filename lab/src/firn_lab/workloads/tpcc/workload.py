"""TPC-C as a workload: sessions work for all terminals at full speed.

The size is `warehouses`, or `cache`, a multiple of the cache (a warehouse is about 100 MB in
InnoDB). A `scale` above 1 multiplies the warehouses. A `scale` below 1 reduces items and customers
instead, which is not TPC-C, but loads quickly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from firn_lab.targets.target import Target
from firn_lab.workloads.fill import Share
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import number_option
from firn_lab.workloads.tpcc.consistency import broken_conditions
from firn_lab.workloads.tpcc.data import everything
from firn_lab.workloads.tpcc.inputs import Terminals
from firn_lab.workloads.tpcc.randoms import constants
from firn_lab.workloads.tpcc.schema import WARM_COLUMNS, create_tables
from firn_lab.workloads.tpcc.sizes import CUSTOMERS, ITEMS, Sizes
from firn_lab.workloads.tpcc.transactions import TpccSession
from firn_lab.workloads.workload import WORKLOADS, FigureKind, Params

WAREHOUSE_BYTES = 100 << 20


@WORKLOADS.register("tpcc")
class Tpcc(SessionWorkload):
    summary = "TPC-C: own driver, full mix, think times off, conditions 1 to 4 checked"
    options = {"warehouses": "10", "cache": ""}
    figures = {"new_orders_per_minute": FigureKind("1/min", "higher")}
    headline = "new_orders_per_minute"
    keeps_rows = False
    rate = ("new_orders_per_minute", "new_order")
    warm_reads = {table: f"MAX({column})" for table, column in WARM_COLUMNS.items()}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        warehouses = round(number_option(self, "warehouses", 1, 100_000))
        if self.option("cache"):
            cache = number_option(self, "cache", 0.001, 1000)
            warehouses = round(cache * params.memory_bytes / WAREHOUSE_BYTES)
        small = min(1.0, params.scale)
        self.sizes = Sizes(
            max(1, round(warehouses * max(1.0, params.scale))),
            max(100, round(ITEMS * small)),
            max(30, round(CUSTOMERS * small)),
        )

    @property
    def about_bytes(self) -> float:
        return self.sizes.warehouses * WAREHOUSE_BYTES * min(1.0, self.params.scale)

    @property
    def dataset(self) -> str:
        """Text that tells which cases share their tables; it includes the seed.

        The last-name constant of the run must keep its distance from that of the load (clause
        2.1.6.1), which holds only for the same seed.
        """
        sizes = dataclasses.asdict(self.sizes)
        words = " ".join(f"{name}={count}" for name, count in sizes.items())
        return f"tpcc {words} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        create_tables(target)

    def shares(self) -> list[Share]:
        return everything(self.sizes, self.params.seed)

    def session(self, target: Target) -> Callable[[int], TpccSession]:
        drawn = constants(self.params.seed)
        return lambda number: TpccSession(
            target.connect(autocommit=False), Terminals(self.sizes, drawn)
        )

    def check(self, target: Target) -> list[str]:
        return broken_conditions(target.query)
