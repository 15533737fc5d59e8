#!/usr/bin/env python3
"""Processor time of single statements and short transactions on FIRN and on InnoDB.

  scripts/server.sh start --dir=run/cost --plugin=build/plugin/ha_firn.so
  .venv/bin/python scripts/statement-cost.py --dir run/cost [--rounds 15] [--only payment,point]
  scripts/server.sh stop --dir=run/cost

Both engines are in one server, and one connection runs the same statements on the same rows, in
rounds by turns. Only the processor time of the connection's thread counts, as the kernel tells it:
background work, the client and waits do not. The ratio of a line is the median of the ratios of its
rounds, with their quartiles. Transactions commit without a sync.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pymysql

ENGINES = ("firn", "innodb")
FLUSH_SETTINGS = ("innodb_flush_log_at_trx_commit", "firn_flush_log_at_trx_commit")
TABLES = {
    "item": "i_id INT PRIMARY KEY, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL",
    "account": "id INT PRIMARY KEY, email INT NOT NULL, phone INT, v INT, note TEXT, "
    "UNIQUE KEY email (email), UNIQUE KEY phone (phone)",
    "district": "d_w_id INT, d_id INT, d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INT, "
    "PRIMARY KEY (d_w_id, d_id)",
    "customer": "c_w_id INT, c_d_id INT, c_id INT, c_first VARCHAR(16) NOT NULL, "
    "c_last VARCHAR(16) NOT NULL, c_balance DECIMAL(12,2), c_data VARCHAR(500), "
    "PRIMARY KEY (c_w_id, c_d_id, c_id), KEY name (c_w_id, c_d_id, c_last, c_first)",
    "orders": "o_w_id INT, o_d_id INT, o_id INT, o_c_id INT NOT NULL, o_carrier_id INT, "
    "PRIMARY KEY (o_w_id, o_d_id, o_id), KEY customer (o_w_id, o_d_id, o_c_id, o_id)",
    "new_order": "no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    "order_line": "ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT NOT NULL, "
    "ol_delivery_d DATETIME, ol_amount DECIMAL(6,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL, "
    "PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    "stock": "s_w_id INT, s_i_id INT, s_quantity INT NOT NULL, s_ytd INT NOT NULL, "
    "s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)",
    "history": "h_c_id INT NOT NULL, h_amount DECIMAL(6,2), h_data VARCHAR(24)",
}
ROWS = {
    "item": ("n, CONCAT('item', n), 5", 2000),
    "account": ("n, 3 * n, 3 * n, n, MD5(n)", 5000),
    "district": ("1, n, 0.1, 1000, 1001", 10),
    "customer": (
        "1, n % 10 + 1, n DIV 10 + 1, LEFT(MD5(n), 10), CONCAT('L', n % 100), 10, REPEAT('x', 300)",
        2999,
    ),
    "orders": ("1, n % 10 + 1, n DIV 10 + 1, n * 7 % 300 + 1, NULL", 2999),
    "new_order": ("1, n % 10 + 1, n DIV 10 + 1", 2999),
    "order_line": (
        "1, n % 10 + 1, n DIV 100 + 1, n DIV 10 % 10, n * 31 % 2000 + 1, NULL, 10, 'dist'",
        29999,
    ),
    "stock": ("1, n, n % 100, 0, MD5(n)", 2000),
}


def works(seed: int) -> dict[str, Callable[[], list[str]]]:
    """Each work returns the statements of its next run; equal seeds give equal statements."""
    draw = random.Random(seed)
    order = count(10_000)

    def up_to(most: int) -> int:
        return draw.randint(1, most)

    def in_district(table: str) -> str:
        return f"{table}_w_id = 1 AND {table}_d_id = {up_to(10)}"

    def hundred(column: str) -> str:
        first = up_to(4900)
        return f"{column} BETWEEN {first} AND {first + 99}"

    def single(statement: Callable[[], str]) -> Callable[[], list[str]]:
        return lambda: [statement()]

    def line(where: str) -> str:
        return f"{where} AND ol_o_id = {up_to(290)}"

    def last_order(district: str) -> str:
        return (
            f"SELECT o_id, o_carrier_id FROM orders WHERE {district} AND o_c_id = {up_to(300)} "
            "ORDER BY o_id DESC LIMIT 1"
        )

    def by_name(district: str) -> str:
        return (
            f"SELECT c_id FROM customer WHERE {district} AND c_last = 'L{up_to(99)}' "
            "ORDER BY c_first"
        )

    def new_order() -> list[str]:
        number, d = next(order), up_to(10)
        district = f"d_w_id = 1 AND d_id = {d}"
        statements = [
            "BEGIN",
            f"SELECT d_tax, d_next_o_id FROM district WHERE {district} FOR UPDATE",
            f"UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE {district}",
            "SELECT d_tax, c_last FROM district, customer WHERE "
            f"{district} AND c_w_id = d_w_id AND c_d_id = d_id AND c_id = {up_to(300)}",
            f"INSERT INTO orders VALUES (1, {d}, {number}, {up_to(300)}, NULL)",
            f"INSERT INTO new_order VALUES (1, {d}, {number})",
        ]
        for position in range(10):
            item = up_to(2000)
            stock = f"s_w_id = 1 AND s_i_id = {item}"
            statements += [
                f"SELECT i_price, i_name FROM item WHERE i_id = {item}",
                f"SELECT s_quantity, s_data FROM stock WHERE {stock} FOR UPDATE",
                f"UPDATE stock SET s_quantity = {up_to(90)}, s_ytd = s_ytd + 1 WHERE {stock}",
                f"INSERT INTO order_line VALUES (1, {d}, {number}, {position}, {item}, NULL, 1, 'x')",
            ]
        return [*statements, "COMMIT"]

    def payment() -> list[str]:
        customer = f"{in_district('c')} AND c_id = {up_to(300)}"
        district = f"d_w_id = 1 AND d_id = {up_to(10)}"
        return [
            "BEGIN",
            f"UPDATE district SET d_ytd = d_ytd + 1 WHERE {district}",
            f"SELECT d_tax FROM district WHERE {district}",
            by_name(in_district("c")),
            f"SELECT c_data, c_balance FROM customer WHERE {customer} FOR UPDATE",
            f"UPDATE customer SET c_balance = c_balance - 1 WHERE {customer}",
            "INSERT INTO history VALUES (1, 5, 'x')",
            "COMMIT",
        ]

    def order_status() -> list[str]:
        return [
            "BEGIN",
            f"SELECT c_balance FROM customer WHERE {in_district('c')} AND c_id = {up_to(300)}",
            last_order(in_district("o")),
            f"SELECT ol_i_id, ol_amount FROM order_line WHERE {line(in_district('ol'))}",
            "COMMIT",
        ]

    def delivery() -> list[str]:
        lines = line(in_district("ol"))
        one = f"{in_district('o')} AND o_id = {up_to(290)}"
        return [
            "BEGIN",
            f"SELECT no_o_id FROM new_order WHERE {in_district('no')} "
            "ORDER BY no_o_id LIMIT 1 FOR UPDATE",
            f"SELECT o_c_id FROM orders WHERE {one} FOR UPDATE",
            f"UPDATE orders SET o_carrier_id = {up_to(9)} WHERE {one}",
            f"UPDATE order_line SET ol_delivery_d = '2026-02-0{up_to(9)}' WHERE {lines}",
            f"SELECT SUM(ol_amount) FROM order_line WHERE {lines}",
            "COMMIT",
        ]

    def stock_level() -> str:
        first = up_to(270)
        return (
            f"SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE {in_district('ol')} AND "
            f"ol_o_id BETWEEN {first} AND {first + 19} AND s_w_id = ol_w_id AND s_i_id = ol_i_id "
            "AND s_quantity < 50"
        )

    return {
        "new_order": new_order,
        "payment": payment,
        "order_status": order_status,
        "delivery": delivery,
        "stock_level": single(stock_level),
        "point": single(lambda: f"SELECT i_name FROM item WHERE i_id = {up_to(2000)}"),
        "range": single(lambda: f"SELECT v FROM account WHERE {hundred('id')}"),
        "unique": single(lambda: f"SELECT v FROM account WHERE email = {3 * up_to(5000)}"),
        "nullable_unique": single(lambda: f"SELECT v FROM account WHERE phone = {3 * up_to(5000)}"),
        "nullable_join": single(
            lambda: "SELECT SUM(b.v) FROM account a STRAIGHT_JOIN account b FORCE INDEX (phone) "
            f"ON b.phone = a.email WHERE {hundred('a.id')}"
        ),
        "large_column": single(lambda: f"SELECT note FROM account WHERE id = {up_to(5000)}"),
        "large_correlated": single(
            lambda: f"SELECT COUNT(*) FROM item WHERE i_id <= 100 AND i_id > {up_to(9)} AND "
            "(SELECT note FROM account WHERE id = i_id LIMIT 1) > 'a'"
        ),
        "last_order": single(lambda: last_order(in_district("o"))),
        "by_name": single(lambda: by_name(in_district("c"))),
        "lines": single(lambda: f"SELECT ol_i_id FROM order_line WHERE {line(in_district('ol'))}"),
    }


class Connection:
    """The measured connection and its thread."""

    def __init__(self, directory: Path) -> None:
        socket = str(directory.resolve() / "mariadb.sock")
        self._connection = pymysql.connect(unix_socket=socket, user="root", autocommit=True)
        self._cursor = self._connection.cursor()
        pid = int((directory / "mariadbd.pid").read_text())
        thread = self.run(
            "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()"
        )
        self._schedstat = Path(f"/proc/{pid}/task/{thread[0][0]}/schedstat")

    def run(self, statement: str) -> tuple:
        self._cursor.execute(statement)
        return self._cursor.fetchall()

    def processor_us(self) -> float:
        return int(self._schedstat.read_text().split()[0]) / 1000

    def load(self) -> None:
        self._before = {name: self.run(f"SELECT @@GLOBAL.{name}")[0][0] for name in FLUSH_SETTINGS}
        for name in FLUSH_SETTINGS:
            self.run(f"SET GLOBAL {name} = 2")
        self.run("SET max_recursive_iterations = 1000000")
        for engine in ENGINES:
            self.run(f"CREATE OR REPLACE DATABASE cost_{engine}")
            self.run(f"USE cost_{engine}")
            for table, columns in TABLES.items():
                self.run(f"CREATE TABLE {table} ({columns}) ENGINE={engine}")
            for table, (values, rows) in ROWS.items():
                self.run(
                    f"INSERT INTO {table} WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL "
                    f"SELECT n + 1 FROM r WHERE n < {rows}) SELECT {values} FROM r"
                )
                self.run(f"OPTIMIZE TABLE {table}")
                self.run(f"ANALYZE TABLE {table}")

    def clean(self) -> None:
        """Leaves the server as it was."""
        for engine in ENGINES:
            self.run(f"DROP DATABASE IF EXISTS cost_{engine}")
        for name, value in self._before.items():
            self.run(f"SET GLOBAL {name} = {value}")

    def warm(self, engine: str, work: Callable[[], list[str]]) -> None:
        """Runs the work for a second, so that caches have what it reads."""
        self.run(f"USE cost_{engine}")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for statement in work():
                self.run(statement)

    def measure(self, engine: str, work: Callable[[], list[str]], runs: int) -> float:
        """Microseconds of processor time of a run."""
        self.run(f"USE cost_{engine}")
        for statement in work() + work():
            self.run(statement)
        statements = [statement for _ in range(runs) for statement in work()]
        before = self.processor_us()
        for statement in statements:
            self.run(statement)
        return (self.processor_us() - before) / runs


def lines(connection: Connection, names: list[str], rounds: int, runs: int) -> Iterator[str]:
    yield f"{'':18}{'firn':>10}{'innodb':>10}{'ratio':>8}  quartiles"
    both = {engine: works(1) for engine in ENGINES}
    for name in names:
        us: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for engine in ENGINES:
            connection.warm(engine, both[engine][name])
        for number in range(rounds):
            for engine in ENGINES[:: 1 if number % 2 else -1]:
                us[engine].append(connection.measure(engine, both[engine][name], runs))
        ratios = [a / b for a, b in zip(*us.values(), strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        firn, innodb = (statistics.median(us[engine]) for engine in ENGINES)
        yield f"{name:18}{firn:10.1f}{innodb:10.1f}{middle:8.3f}  {low:.3f} to {high:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="as for scripts/server.sh")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=40, help="of each work in a round")
    parser.add_argument("--only", default=",".join(works(1)), help="names, with commas")
    given = parser.parse_args()
    connection = Connection(given.dir)
    connection.load()
    try:
        for line in lines(connection, given.only.split(","), given.rounds, given.runs):
            print(line, flush=True)
    finally:
        connection.clean()


if __name__ == "__main__":
    main()
