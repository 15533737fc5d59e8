"""Transactions of the shop's visitors: log in or register, browse, buy."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed
from firn_lab.workloads.driver import Done
from firn_lab.workloads.shop.data import ACTORS, CATEGORIES, Sizes, actor, customer, username
from firn_lab.workloads.sql_session import SqlSession

# Percentage of each kind of transaction. For each purchase a visitor logs in, or one time in five
# registers, and browses three times.
MIX = {"login": 16, "register": 4, "browse": 60, "purchase": 20}
TAX = Decimal("0.0825")


class ShopSession(SqlSession):
    """A session without autocommit. A nonce makes the names of its new customers unique."""

    def __init__(self, connection: Any, sizes: Sizes) -> None:
        super().__init__(connection)
        self._sizes = sizes
        self._nonce = secrets.token_hex(8)
        self._registered = 0

    def choose(self, random: Random) -> Callable[[], Done]:
        (kind,) = random.choices(list(MIX), list(MIX.values()))
        match kind:
            case "login":
                work = self._login(random)
            case "register":
                work = self._register(random)
            case "browse":
                work = self._browse(random)
            case _:
                work = self._purchase(random)

        def transaction() -> Done:
            self.queries = 0
            done = work()
            return Done(done, self.queries + 1)

        return transaction

    def _login(self, random: Random) -> Callable[[], str]:
        """Logs in and shows the customer's latest purchases."""
        number = random.randint(1, self._sizes.customers)

        def work() -> str:
            found = self.rows(
                "SELECT id, password, first_name, last_name FROM customers WHERE username = %s",
                (username(number),),
            )
            if [row[:2] for row in found] != [(number, "password")]:
                raise CheckFailed(f"customer {number} cannot log in: {found}")
            self.rows(
                "SELECT title, actor FROM purchases JOIN products ON id = product "
                "WHERE customer = %s ORDER BY order_id DESC, line DESC LIMIT 10",
                (number,),
            )
            self.commit()
            return "login"

        return work

    def _register(self, random: Random) -> Callable[[], str]:
        self._registered += 1
        row = customer(random, f"new{self._nonce}{self._registered}")

        def work() -> str:
            self.rows(
                "INSERT INTO customers (username, password, first_name, last_name, address, city, "
                "country, email, phone, credit_card, age, income) VALUES "
                "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                row,
            )
            self.commit()
            return "register"

        return work

    def _browse(self, random: Random) -> Callable[[], str]:
        """Lists specials of a category, films with an actor, or titles by initial."""
        condition, argument = random.choice(
            (
                ("category = %s AND special = 1", random.randrange(CATEGORIES)),
                ("actor = %s", actor(random.randrange(ACTORS))),
                ("title LIKE %s ORDER BY title", f"{random.choice('ABCDEFGHIJKLMNOPQRSTUVWXYZ')}%"),
            )
        )

        def work() -> str:
            self.rows(
                "SELECT id, category, title, actor, price, special FROM products "
                f"WHERE {condition} LIMIT 10",
                (argument,),
            )
            self.commit()
            return "browse"

        return work

    def _purchase(self, random: Random) -> Callable[[], str]:
        """Buys one to ten products, in key order, so that two buyers never deadlock."""
        buyer = random.randint(1, self._sizes.customers)
        count = min(random.randint(1, 10), self._sizes.products)
        products = sorted(random.sample(range(1, self._sizes.products + 1), count))
        wanted = [(product, random.randint(1, 3)) for product in products]

        def work() -> str:
            marks = ", ".join(["%s"] * len(products))
            prices = dict(
                self.rows(f"SELECT id, price FROM products WHERE id IN ({marks})", products)
            )
            net = sum((prices[product] * quantity for product, quantity in wanted), Decimal(0))
            tax = (net * TAX).quantize(Decimal("0.01"))
            for product, quantity in wanted:
                if not self.changed(
                    "UPDATE inventory SET in_stock = in_stock - %s, sold = sold + %s "
                    "WHERE product = %s AND in_stock >= %s",
                    (quantity, quantity, product, quantity),
                ):
                    self.rollback()
                    return "sold_out"
            self.rows(
                "INSERT INTO orders (ordered, customer, net, tax, total) "
                "VALUES (%s, %s, %s, %s, %s)",
                (datetime.now().replace(microsecond=0), buyer, net, tax, net + tax),
            )
            order = self._cursor.lastrowid
            for line, (product, quantity) in enumerate(wanted, 1):
                self.rows(
                    "INSERT INTO order_lines (order_id, line, product, quantity, price) "
                    "VALUES (%s, %s, %s, %s, %s)",
                    (order, line, product, quantity, prices[product]),
                )
                self.rows(
                    "INSERT INTO purchases (customer, order_id, line, product) "
                    "VALUES (%s, %s, %s, %s)",
                    (buyer, order, line, product),
                )
            self.commit()
            return "purchase"

        return work
