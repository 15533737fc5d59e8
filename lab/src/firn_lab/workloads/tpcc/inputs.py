"""Terminal inputs: clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1, and the mix (5.2.3).

All random values of a transaction are drawn here, before it begins, so that a retry repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from random import Random

from firn_lab.workloads.tpcc.randoms import Constants, last_name, nurand
from firn_lab.workloads.tpcc.sizes import DISTRICTS, Sizes

# Cards of a deck, which is reshuffled when used up (clause 5.2.4.2).
MIX = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}


@dataclass(frozen=True)
class Line:
    """One line of a new order. No item has the id 0."""

    item: int
    supply_warehouse: int
    quantity: int


@dataclass(frozen=True)
class NewOrder:
    warehouse: int
    district: int
    customer: int
    lines: tuple[Line, ...]
    entered: datetime


@dataclass(frozen=True)
class Payment:
    """Input of the Payment transaction. `customer` is a number or a last name."""

    warehouse: int
    district: int
    customer_warehouse: int
    customer_district: int
    customer: int | str
    amount: Decimal
    entered: datetime


@dataclass(frozen=True)
class OrderStatus:
    warehouse: int
    district: int
    customer: int | str


@dataclass(frozen=True)
class Delivery:
    warehouse: int
    carrier: int
    entered: datetime


@dataclass(frozen=True)
class StockLevel:
    warehouse: int
    district: int
    threshold: int


Input = NewOrder | Payment | OrderStatus | Delivery | StockLevel


class Terminals:
    """All terminals, ten per warehouse, each with its own warehouse and district.

    There are no think times, so any session works for any terminal.
    """

    def __init__(self, sizes: Sizes, constants: Constants) -> None:
        self._sizes = sizes
        self._constants = constants
        self._deck: list[str] = []

    def enter(self, random: Random) -> Input:
        """The next transaction of a random terminal."""
        if not self._deck:
            self._deck = [kind for kind, cards in MIX.items() for _ in range(cards)]
            random.shuffle(self._deck)
        warehouse = random.randint(1, self._sizes.warehouses)
        # Only Stock-Level is bound to the terminal's district; other transactions draw a district.
        district = random.randint(1, DISTRICTS)
        match self._deck.pop():
            case "new_order":
                return self.new_order(random, warehouse, district)
            case "payment":
                return self.payment(random, warehouse, district)
            case "order_status":
                return OrderStatus(warehouse, district, self._customer(random))
            case "delivery":
                return Delivery(warehouse, random.randint(1, 10), _now())
            case _:
                return StockLevel(warehouse, district, random.randint(10, 20))

    def new_order(self, random: Random, warehouse: int, district: int) -> NewOrder:
        """Draws a new order. One of a hundred ends with an item that does not exist.

        One of a hundred order lines is supplied by another warehouse.
        """
        customer = self._customer_number(random)
        count = random.randint(5, 15)
        wrong = random.randint(1, 100) == 1
        lines = []
        for number in range(1, count + 1):
            item = nurand(random, 8191, 1, self._sizes.items, self._constants.item)
            remote = random.randint(1, 100) == 1
            supply = self._other_warehouse(random, warehouse) if remote else warehouse
            quantity = random.randint(1, 10)
            lines.append(Line(0 if wrong and number == count else item, supply, quantity))
        return NewOrder(warehouse, district, customer, tuple(lines), _now())

    def payment(self, random: Random, warehouse: int, district: int) -> Payment:
        """Draws a payment. 15 of 100 customers belong to another warehouse; 60 of 100 are found by
        last name."""
        remote = random.randint(1, 100) > 85
        home = self._other_warehouse(random, warehouse) if remote else warehouse
        home_district = random.randint(1, DISTRICTS) if remote else district
        customer = self._customer(random)
        amount = Decimal(random.randint(100, 500_000)) / 100
        return Payment(warehouse, district, home, home_district, customer, amount, _now())

    def _other_warehouse(self, random: Random, warehouse: int) -> int:
        """Another warehouse, or this one if it is the only one."""
        if self._sizes.warehouses == 1:
            return warehouse
        other = random.randint(1, self._sizes.warehouses - 1)
        return other + (other >= warehouse)

    def _customer(self, random: Random) -> int | str:
        if random.randint(1, 100) <= 60:
            last = self._sizes.last_names - 1
            return last_name(nurand(random, 255, 0, last, self._constants.last_run))
        return self._customer_number(random)

    def _customer_number(self, random: Random) -> int:
        return nurand(random, 1023, 1, self._sizes.customers, self._constants.customer)


def _now() -> datetime:
    return datetime.now().replace(microsecond=0)
