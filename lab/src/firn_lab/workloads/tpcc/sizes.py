"""Data sizes. In the specification only the number of warehouses varies."""

from __future__ import annotations

from dataclasses import dataclass

DISTRICTS = 10
ITEMS = 100_000
CUSTOMERS = 3_000


@dataclass(frozen=True)
class Sizes:
    """`items`: in total; `customers`: per district, each with one initial order."""

    warehouses: int
    items: int = ITEMS
    customers: int = CUSTOMERS

    @property
    def first_new_order(self) -> int:
        """First order of a district that is not delivered: the last 900 of 3000 are new."""
        return self.customers - self.customers * 3 // 10 + 1

    @property
    def last_names(self) -> int:
        """Number of different last names."""
        return min(1000, self.customers)
