"""How much data there is. By the specification only the number of warehouses varies."""

from __future__ import annotations

from dataclasses import dataclass

DISTRICTS = 10
ITEMS = 100_000
CUSTOMERS = 3_000


@dataclass(frozen=True)
class Sizes:
    """`items` in all; `customers` a district, each with an order at first."""

    warehouses: int
    items: int = ITEMS
    customers: int = CUSTOMERS

    @property
    def first_new_order(self) -> int:
        """From here on the orders of a district are not delivered: the last 900 of 3000."""
        return self.customers - self.customers * 3 // 10 + 1

    @property
    def last_names(self) -> int:
        """How many different ones there are."""
        return min(1000, self.customers)
