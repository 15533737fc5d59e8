"""Foreign keys: rows of a table that refers to two others, inserted and deleted, and cascades."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed, UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import (
    SqlSession,
    by_index,
    create_table,
    number_option,
    scaled_option,
    text,
)
from firn_lab.workloads.workload import WORKLOADS, Params

CHANGES = ("insert", "both", "cascade")
# Distance between the ids of two sessions: the ids of each session's new rows begin at a multiple
# of this number.
IDS_OF_A_SESSION = 10_000_000
# A session deletes rows only while it has more than this number of rows.
KEPT = 50
SHARE_ROWS = 20_000
PAD = 60


class ReferencesSession(SqlSession):
    """Inserts rows under numbers of its own, and deletes its oldest ones.

    `change`: `insert` only inserts rows that refer to two others. `both` also deletes such rows.
    `cascade` inserts a referenced row with rows that refer to it, in one transaction, and deletes
    the referenced row.
    """

    def __init__(
        self, connection: Any, number: int, change: str, parents: int, children: int
    ) -> None:
        super().__init__(connection)
        self._change = change
        self._parents = parents
        self._children = children
        table = "customers" if change == "cascade" else "invoices"
        first = (number + 1) * IDS_OF_A_SESSION
        own = self.rows(
            f"SELECT id FROM {table} WHERE id > %s AND id < %s ORDER BY id",
            (first, first + IDS_OF_A_SESSION),
        )
        self._own = deque(row[0] for row in own)
        used = self.rows(
            "SELECT MAX(id) FROM invoices WHERE id >= %s AND id < %s",
            (first, first + IDS_OF_A_SESSION),
        )
        self._last = max(used[0][0] or first, self._own[-1] if self._own else first)

    def choose(self, random: Random) -> Callable[[], Done]:
        if self._change != "insert" and len(self._own) > KEPT and random.randrange(2):
            return self._delete
        if self._change == "cascade":
            products = [random.randint(1, self._parents) for _ in range(self._children)]
            pads = [text(random, PAD) for _ in products]
            return lambda: self._insert_parent(products, pads)
        references = random.randint(1, self._parents), random.randint(1, self._parents)
        pad = text(random, PAD)
        return lambda: self._insert(*references, pad)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _insert(self, customer: int, product: int, pad: str) -> Done:
        number = self._next()
        self.rows("INSERT INTO invoices VALUES (%s, %s, %s, %s)", (number, customer, product, pad))
        if self._change != "insert":
            self._own.append(number)
        return Done("insert", 1)

    def _insert_parent(self, products: list[int], pads: list[str]) -> Done:
        parent = self._next()
        self.rows("INSERT INTO customers VALUES (%s, %s)", (parent, parent % 1000))
        row = ", ".join(["(%s, %s, %s, %s)"] * len(products))
        values = [
            value
            for product, pad in zip(products, pads, strict=True)
            for value in (self._next(), parent, product, pad)
        ]
        self.rows(f"INSERT INTO invoices VALUES {row}", values)
        self._own.append(parent)
        return Done("insert", 1)

    def _delete(self) -> Done:
        number = self._own.popleft()
        table = "customers" if self._change == "cascade" else "invoices"
        if self.changed(f"DELETE FROM {table} WHERE id = %s", (number,)) != 1:
            raise CheckFailed(f"row {number} of {table} is gone")
        return Done("delete", 1)


@WORKLOADS.register("references")
class References(SessionWorkload):
    summary = "foreign keys: inserts and deletes of rows that refer to two tables, cascades"
    # children: with change=cascade, the number of rows that refer to each new row of `customers`.
    options = {"rows": "200000", "parents": "20000", "children": "4", "change": "both"}
    warm_reads = {"customers": "SUM(v)", "products": "SUM(v)", "invoices": "SUM(LENGTH(pad))"}
    keeps_rows = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows")
        self.parents = scaled_option(self, "parents")
        self.children = round(number_option(self, "children", 1, 1000))
        if self.option("change") not in CHANGES:
            raise UsageError(f"{name}: change is one of {', '.join(CHANGES)}")

    @property
    def about_bytes(self) -> float:
        return self.rows * 130.0 + self.parents * 60.0

    def create(self, target: Target) -> None:
        for table in ("customers", "products"):
            create_table(target, table, "id INT NOT NULL, v INT NOT NULL, PRIMARY KEY (id)")
        columns = (
            "id INT NOT NULL, customer INT NOT NULL, product INT NOT NULL, "
            f"pad VARCHAR({PAD}) NOT NULL, PRIMARY KEY (id)"
        )
        indexes = ("by_customer (customer)", "by_product (product)")
        create_table(target, "invoices", columns, *indexes)

    def load(self, target: Target, sink: Any) -> None:
        """Adds the foreign keys to the full tables: shares are loaded in any order."""
        super().load(target, sink)
        target.query(
            "ALTER TABLE invoices "
            "ADD CONSTRAINT of_customer FOREIGN KEY (customer) REFERENCES customers (id) "
            "ON DELETE CASCADE, "
            "ADD CONSTRAINT of_product FOREIGN KEY (product) REFERENCES products (id)"
        )

    def shares(self) -> list[Share]:
        parents = [
            part
            for table in ("customers", "products")
            for part in shares(table, self.parents, self._parent_rows, SHARE_ROWS)
        ]
        return parents + shares("invoices", self.rows, self._rows, SHARE_ROWS)

    @staticmethod
    def _parent_rows(numbers: range) -> Iterator[Row]:
        return ((number, number % 1000) for number in numbers)

    def _rows(self, numbers: range) -> Iterator[Row]:
        random = Random(f"references {self.params.seed} {numbers.start}")
        for number in numbers:
            customer, product = (random.randint(1, self.parents) for _ in range(2))
            yield number, customer, product, text(random, PAD)

    def session(self, target: Target) -> Callable[[int], ReferencesSession]:
        change, parents, children = self.option("change"), self.parents, self.children
        return lambda number: ReferencesSession(target.connect(), number, change, parents, children)

    def check(self, target: Target) -> list[str]:
        """Checks that all indexes have the same rows and that each row's references exist."""
        counts = {
            index: target.query(
                f"SELECT COUNT(*) FROM invoices{by_index(target, index)} WHERE {column} > 0"
            )[0][0]
            for index, column in (
                ("PRIMARY", "id"),
                ("by_customer", "customer"),
                ("by_product", "product"),
            )
        }
        wrong = [
            f"{index}: {count} rows, not {counts['PRIMARY']}"
            for index, count in counts.items()
            if count != counts["PRIMARY"]
        ]
        for table, column in (("customers", "customer"), ("products", "product")):
            (orphans,) = target.query(
                f"SELECT COUNT(*) FROM invoices i LEFT JOIN {table} p ON p.id = i.{column} "
                "WHERE p.id IS NULL"
            )[0]
            if orphans:
                wrong.append(f"{orphans} rows refer to {table} that do not exist")
        return wrong
