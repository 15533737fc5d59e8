"""Clause 4.3.3: the initial rows of every table, in shares of a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from random import Random

from firn_lab.workloads.fill import Row, Share
from firn_lab.workloads.sql_session import money, text
from firn_lab.workloads.tpcc.randoms import (
    constants,
    digits,
    last_name,
    nurand,
    string,
    with_original,
    zip_code,
)
from firn_lab.workloads.tpcc.sizes import DISTRICTS, Sizes

# Load date of all initial rows, fixed so that data is the same on every target.
LOADED = datetime(2026, 1, 1)


def everything(sizes: Sizes, seed: int) -> list[Share]:
    """All rows of all tables."""
    found = [
        Share("item", partial(items, sizes, seed)),
        Share("warehouse", partial(warehouses, sizes, seed)),
    ]
    for warehouse in range(1, sizes.warehouses + 1):
        found.append(Share("stock", partial(stock, sizes, seed, warehouse)))
        found.append(Share("district", partial(districts, sizes, seed, warehouse)))
        for table, rows in OF_DISTRICT.items():
            found.append(Share(table, partial(_of_all_districts, rows, sizes, seed, warehouse)))
    return found


def _of_all_districts(
    rows: Callable[[Sizes, int, int, int], Iterator[Row]], sizes: Sizes, seed: int, warehouse: int
) -> Iterator[Row]:
    for district in range(1, DISTRICTS + 1):
        yield from rows(sizes, seed, warehouse, district)


def items(sizes: Sizes, seed: int) -> Iterator[Row]:
    random = Random(f"item {seed}")
    for number in range(1, sizes.items + 1):
        yield (
            number,
            random.randint(1, 10_000),
            string(random, 14, 24),
            money(random.randint(100, 10_000)),
            with_original(random),
        )


def place(random: Random) -> tuple[str, str, str, str, str]:
    """Two streets, city, state and zip code."""
    streets = (string(random, 10, 20), string(random, 10, 20))
    return *streets, string(random, 10, 20), text(random, 2), zip_code(random)


def tax(random: Random) -> str:
    return f"0.{random.randint(0, 2000):04d}"


def warehouses(sizes: Sizes, seed: int) -> Iterator[Row]:
    """Rows of `warehouse`. Each customer has paid 10.00, which its year-to-date sum includes."""
    random = Random(f"warehouse {seed}")
    received = money(1000 * sizes.customers * DISTRICTS)
    for number in range(1, sizes.warehouses + 1):
        yield number, string(random, 6, 10), *place(random), tax(random), received


def districts(sizes: Sizes, seed: int, warehouse: int) -> Iterator[Row]:
    random = Random(f"district {seed} {warehouse}")
    received = money(1000 * sizes.customers)
    for number in range(1, DISTRICTS + 1):
        name = string(random, 6, 10)
        next_order = sizes.customers + 1
        yield number, warehouse, name, *place(random), tax(random), received, next_order


def stock(sizes: Sizes, seed: int, warehouse: int) -> Iterator[Row]:
    random = Random(f"stock {seed} {warehouse}")
    for item in range(1, sizes.items + 1):
        letters = text(random, 240)
        infos = [letters[at : at + 24] for at in range(0, 240, 24)]
        quantity = random.randint(10, 100)
        yield item, warehouse, quantity, *infos, 0, 0, 0, with_original(random)


def customers(sizes: Sizes, seed: int, warehouse: int, district: int) -> Iterator[Row]:
    """Rows of `customer`. The first 1000 get each last name once, the others names drawn by
    NURand."""
    random = Random(f"customer {seed} {warehouse} {district}")
    constant = constants(seed).last_load
    for number in range(1, sizes.customers + 1):
        name = (
            number - 1
            if number <= sizes.last_names
            else nurand(random, 255, 0, sizes.last_names - 1, constant)
        )
        yield (
            number,
            district,
            warehouse,
            string(random, 8, 16),
            "OE",
            last_name(name),
            *place(random),
            digits(random, 16),
            LOADED,
            "GC" if random.randrange(10) else "BC",
            "50000.00",
            f"0.{random.randint(0, 5000):04d}",
            "-10.00",
            "10.00",
            1,
            0,
            string(random, 300, 500),
        )


def history(sizes: Sizes, seed: int, warehouse: int, district: int) -> Iterator[Row]:
    random = Random(f"history {seed} {warehouse} {district}")
    for number in range(1, sizes.customers + 1):
        data = string(random, 12, 24)
        yield number, district, warehouse, district, warehouse, LOADED, "10.00", data


def _line_counts(sizes: Sizes, seed: int, warehouse: int, district: int) -> list[int]:
    """O_OL_CNT of each order, on which `orders` and `order_line` must agree."""
    random = Random(f"lines {seed} {warehouse} {district}")
    return [random.randint(5, 15) for _ in range(sizes.customers)]


def orders(sizes: Sizes, seed: int, warehouse: int, district: int) -> Iterator[Row]:
    """Rows of `orders`: each customer has one order, in random sequence."""
    random = Random(f"orders {seed} {warehouse} {district}")
    buyers = list(range(1, sizes.customers + 1))
    random.shuffle(buyers)
    counts = _line_counts(sizes, seed, warehouse, district)
    for number, (buyer, count) in enumerate(zip(buyers, counts, strict=True), 1):
        carrier = random.randint(1, 10) if number < sizes.first_new_order else None
        yield number, district, warehouse, buyer, LOADED, carrier, count, 1


def new_orders(sizes: Sizes, seed: int, warehouse: int, district: int) -> Iterator[Row]:
    for number in range(sizes.first_new_order, sizes.customers + 1):
        yield number, district, warehouse


def order_lines(sizes: Sizes, seed: int, warehouse: int, district: int) -> Iterator[Row]:
    """Rows of `order_line`. Lines that were delivered have an amount of 0."""
    random = Random(f"order_line {seed} {warehouse} {district}")
    counts = _line_counts(sizes, seed, warehouse, district)
    for order, count in enumerate(counts, 1):
        delivered = order < sizes.first_new_order
        for line in range(1, count + 1):
            yield (
                order,
                district,
                warehouse,
                line,
                random.randint(1, sizes.items),
                warehouse,
                LOADED if delivered else None,
                5,
                "0.00" if delivered else money(random.randint(1, 999_999)),
                text(random, 24),
            )


OF_DISTRICT = {
    "customer": customers,
    "history": history,
    "orders": orders,
    "new_order": new_orders,
    "order_line": order_lines,
}
