"""TPC-C as a workload: threads work for all terminals at full speed.

`warehouses`, or `cache`: the data as a multiple of the cache (a warehouse is about 100 MB in
InnoDB). A `scale` above 1 multiplies warehouses; one below 1 shrinks items and customers instead,
which is no TPC-C any more, but quick to load.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from firn_lab.clock import Clock
from firn_lab.targets.base import Target
from firn_lab.workloads.base import WORKLOADS, FigureKind, Outcome, Params, Sink, Workload
from firn_lab.workloads.driver import drive, drive_unseen
from firn_lab.workloads.fill import fill
from firn_lab.workloads.sql import number_option
from firn_lab.workloads.tpcc.consistency import broken_conditions
from firn_lab.workloads.tpcc.data import everything
from firn_lab.workloads.tpcc.inputs import Terminals
from firn_lab.workloads.tpcc.randoms import constants
from firn_lab.workloads.tpcc.schema import COLUMNS_WITHOUT_INDEX, create_tables
from firn_lab.workloads.tpcc.sizes import CUSTOMERS, ITEMS, Sizes
from firn_lab.workloads.tpcc.transactions import TpccSession

WAREHOUSE_BYTES = 100 << 20


@WORKLOADS.register("tpcc")
class Tpcc(Workload):
    summary = "TPC-C: own driver, full mix, think times off, conditions 1 to 4 checked"
    options = {"warehouses": "10", "cache": ""}
    figures = {"new_orders_per_minute": FigureKind("1/min", "higher")}
    headline = "new_orders_per_minute"

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
    def dataset(self) -> str:
        return f"tpcc {dataclasses.astuple(self.sizes)}"

    def supports(self, target: Target) -> str:
        return ""

    def load(self, target: Target, sink: Sink) -> None:
        create_tables(target)
        fill(target, everything(self.sizes, self.params.seed), sink)
        target.analyze()

    def warm(self, target: Target, clock: Clock) -> None:
        """Reads every table once, then works for a while."""
        for table, column in COLUMNS_WITHOUT_INDEX.items():
            target.query(f"SELECT MAX({column}) FROM {table}")
        drive_unseen(self.params, self._session(target))

    def measure(self, target: Target, clock: Clock, sink: Sink) -> Outcome:
        outcome = drive(self.params, sink, self._session(target))
        orders = sum(part.count for part in outcome.parts if part.name == "new_order")
        rate = orders * 60 / max(outcome.seconds, 1e-9)
        return dataclasses.replace(outcome, figures={"new_orders_per_minute": rate})

    def check(self, target: Target) -> list[str]:
        return broken_conditions(target.query)

    def _session(self, target: Target) -> Callable[[int], TpccSession]:
        drawn = constants(self.params.seed)
        return lambda number: TpccSession(
            target.connect(autocommit=False), Terminals(self.sizes, drawn)
        )
