"""Data sizes. In the specification only the number of warehouses varies."""

from __future__ import annotations

from dataclasses import dataclass

DISTRICTS = 10
ITEMS = 100_000
CUSTOMERS = 3_000


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data. `items`: in total; `customers`: per district, each with one initial
    order."""

    warehouses: int
    items: int = ITEMS
    customers: int = CUSTOMERS

    @property
    def first_new_order(self) -> int:
        """The first order of a district that is not delivered at the start: 900 of 3000 are not."""
        return self.customers - self.customers * 3 // 10 + 1

    @property
    def last_names(self) -> int:
        """Number of different last names."""
        return min(1000, self.customers)
