"""Tables of the shop and their initial rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random

from firn_lab.targets.target import Target
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sql_session import create_table, money, text

CATEGORIES = 16
ACTORS = 1000
# Stock of each product at the start, from which the rounds sell.
STOCK = 1000
OPENED = datetime(2026, 1, 1)
SHARE_ROWS = 20_000

TABLES: dict[str, tuple[str, ...]] = {
    "customers": (
        "id INT NOT NULL AUTO_INCREMENT, username VARCHAR(50) NOT NULL, "
        "password VARCHAR(50) NOT NULL, first_name VARCHAR(50) NOT NULL, "
        "last_name VARCHAR(50) NOT NULL, address VARCHAR(50) NOT NULL, city VARCHAR(50) NOT NULL, "
        "country VARCHAR(50) NOT NULL, email VARCHAR(50) NOT NULL, phone VARCHAR(50) NOT NULL, "
        "credit_card VARCHAR(20) NOT NULL, age INT NOT NULL, income INT NOT NULL, PRIMARY KEY (id)",
        "UNIQUE customers_username (username)",
    ),
    "products": (
        "id INT NOT NULL, category INT NOT NULL, title VARCHAR(50) NOT NULL, "
        "actor VARCHAR(50) NOT NULL, price DECIMAL(12,2) NOT NULL, special INT NOT NULL, "
        "PRIMARY KEY (id)",
        "products_category (category, special)",
        "products_actor (actor)",
        "products_title (title)",
    ),
    "inventory": (
        "product INT NOT NULL, in_stock INT NOT NULL, sold INT NOT NULL, PRIMARY KEY (product)",
    ),
    "orders": (
        "id INT NOT NULL AUTO_INCREMENT, ordered DATETIME NOT NULL, customer INT NOT NULL, "
        "net DECIMAL(12,2) NOT NULL, tax DECIMAL(12,2) NOT NULL, total DECIMAL(12,2) NOT NULL, "
        "PRIMARY KEY (id)",
        "orders_customer (customer)",
    ),
    "order_lines": (
        "order_id INT NOT NULL, line INT NOT NULL, product INT NOT NULL, quantity INT NOT NULL, "
        "price DECIMAL(12,2) NOT NULL, PRIMARY KEY (order_id, line)",
    ),
    "purchases": (
        "customer INT NOT NULL, order_id INT NOT NULL, line INT NOT NULL, product INT NOT NULL, "
        "PRIMARY KEY (customer, order_id, line)",
        "purchases_product (product)",
    ),
}
# For each table, a column with which no index begins, so that the server finds its maximum only by
# reading all rows, and so warms the caches.
WARM_COLUMNS = {
    "customers": "address",
    "products": "price",
    "inventory": "sold",
    "orders": "net",
    "order_lines": "price",
    "purchases": "line",
}


@dataclass(frozen=True)
class Sizes:
    """Initial numbers of customers and products. Three of five customers have an order."""

    customers: int
    products: int

    @property
    def orders(self) -> int:
        return self.customers * 3 // 5


def create_tables(target: Target) -> None:
    for name, (columns, *indexes) in TABLES.items():
        create_table(target, name, columns, *indexes)


def everything(sizes: Sizes, seed: int) -> list[Share]:
    made = {
        "customers": (sizes.customers, partial(customers, seed)),
        "products": (sizes.products, partial(products, seed)),
        "orders": (sizes.orders, partial(orders, sizes)),
        "order_lines": (sizes.orders, partial(order_lines, sizes)),
        "purchases": (sizes.orders, partial(purchases, sizes)),
    }
    found = [Share("inventory", partial(inventory, sizes))]
    for table, (count, rows) in made.items():
        found += shares(table, count, rows, SHARE_ROWS)
    return found


def username(number: int) -> str:
    return f"user{number}"


def actor(number: int) -> str:
    """One of 1000 names: fifty first names times twenty last names."""
    return f"FIRST{number % 50:02d} LAST{number // 50 % 20:02d}"


def cents(product: int) -> int:
    """Price of a product in cents."""
    return 999 + product * 7919 % 2000


def customer(random: Random, name: str) -> Row:
    """All columns after the id."""
    return (
        name,
        "password",
        text(random, 6),
        text(random, 10),
        f"{random.randrange(1000)} {text(random, 12)} street",
        f"city {random.randrange(2000)}",
        f"country {random.randrange(60)}",
        f"{name}@example.org",
        f"{random.randrange(10**10):010d}",
        f"{random.randrange(10**16):016d}",
        random.randint(18, 90),
        random.randrange(20_000, 200_000, 20_000),
    )


def customers(seed: int, numbers: range) -> Iterator[Row]:
    random = Random(f"customers {seed} {numbers.start}")
    for number in numbers:
        yield number, *customer(random, username(number))


def products(seed: int, numbers: range) -> Iterator[Row]:
    random = Random(f"products {seed} {numbers.start}")
    for number in numbers:
        yield (
            number,
            number % CATEGORIES,
            f"{text(random, 4).upper()} {text(random, 12)}",
            actor(random.randrange(ACTORS)),
            money(cents(number)),
            int(random.random() < 0.1),
        )


def lines_of(sizes: Sizes, order: int) -> list[tuple[int, int]]:
    """Products and quantities of an initial order.

    They follow from its number, so that processes that load different tables agree.
    """
    return [
        ((order * 31 + line * 17) % sizes.products + 1, 1 + (order + line) % 3)
        for line in range(1 + order % 5)
    ]


def orders(sizes: Sizes, numbers: range) -> Iterator[Row]:
    for number in numbers:
        net = sum(cents(product) * quantity for product, quantity in lines_of(sizes, number))
        tax = net * 825 // 10_000
        when = OPENED + timedelta(seconds=number)
        yield number, when, number, money(net), money(tax), money(net + tax)


def order_lines(sizes: Sizes, numbers: range) -> Iterator[Row]:
    for number in numbers:
        for line, (product, quantity) in enumerate(lines_of(sizes, number), 1):
            yield number, line, product, quantity, money(cents(product))


def purchases(sizes: Sizes, numbers: range) -> Iterator[Row]:
    """The initial order of customer n has the id n."""
    for number in numbers:
        for line, (product, _) in enumerate(lines_of(sizes, number), 1):
            yield number, number, line, product


def inventory(sizes: Sizes) -> Iterator[Row]:
    sold = [0] * (sizes.products + 1)
    for order in range(1, sizes.orders + 1):
        for product, quantity in lines_of(sizes, order):
            sold[product] += quantity
    for product in range(1, sizes.products + 1):
        # Initial orders count as sales, but do not reduce the initial stock.
        yield product, STOCK, sold[product]
