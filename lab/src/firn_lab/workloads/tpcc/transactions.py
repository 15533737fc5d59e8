"""The transactions in SQL: clauses 2.4.2, 2.5.2, 2.6.2, 2.7.4 and 2.8.2.

Each transaction first reads and locks the row on which others of its kind wait: its snapshot is
then at least as new as that row.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed
from firn_lab.workloads.driver import Done
from firn_lab.workloads.sql_session import SqlSession
from firn_lab.workloads.tpcc.inputs import (
    Delivery,
    Input,
    Line,
    NewOrder,
    OrderStatus,
    Payment,
    StockLevel,
    Terminals,
)
from firn_lab.workloads.tpcc.sizes import DISTRICTS

CUSTOMER_DATA_LENGTH = 500


class TpccSession(SqlSession):
    """One client, whose connection has autocommit off."""

    def __init__(self, connection: Any, terminals: Terminals) -> None:
        super().__init__(connection)
        self._terminals = terminals

    def choose(self, random: Random) -> Callable[[], Done]:
        return self.transaction(self._terminals.enter(random))

    def transaction(self, given: Input) -> Callable[[], Done]:
        """The transaction of a terminal's input."""

        def work() -> Done:
            self.queries = 0
            match given:
                case NewOrder():
                    kind = "new_order"
                    self._new_order(given)
                case Payment():
                    kind = "payment"
                    self._payment(given)
                case OrderStatus():
                    kind = "order_status"
                    self._order_status(given)
                case Delivery():
                    kind = "delivery"
                    self._delivery(given)
                case StockLevel():
                    kind = "stock_level"
                    self._stock_level(given)
            return Done(kind, self.queries + 1)  # One more for the commit or rollback.

        return work

    def _one(self, statement: str, arguments: Any) -> Any:
        """The only row; a missing row is an error of the engine."""
        rows = self.rows(statement, arguments)
        if len(rows) != 1:
            raise CheckFailed(f"{len(rows)} rows, not one, of {statement} with {arguments}")
        return rows[0]

    def _new_order(self, given: NewOrder) -> None:
        district = (given.warehouse, given.district)
        _, order = self._one(
            "SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s FOR UPDATE",
            district,
        )
        self.rows(
            "UPDATE district SET d_next_o_id = %s WHERE d_w_id = %s AND d_id = %s",
            (order + 1, *district),
        )
        self._one(
            "SELECT w_tax, c_discount, c_last, c_credit FROM warehouse, customer "
            "WHERE w_id = %s AND c_w_id = w_id AND c_d_id = %s AND c_id = %s",
            (*district, given.customer),
        )
        local = all(line.supply_warehouse == given.warehouse for line in given.lines)
        self.rows(
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, "
            "o_all_local) VALUES (%s, %s, %s, %s, %s, NULL, %s, %s)",
            (order, given.district, given.warehouse, given.customer, given.entered,
             len(given.lines), int(local)),
        )  # fmt: skip
        self.rows(
            "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (%s, %s, %s)",
            (order, given.district, given.warehouse),
        )
        for number, line in enumerate(given.lines, 1):
            if not self._order_line(given, order, number, line):
                self.rollback()
                return
        self.commit()

    def _order_line(self, given: NewOrder, order: int, number: int, line: Line) -> bool:
        """Adds a line; False if the item does not exist."""
        found = self.rows("SELECT i_price, i_name, i_data FROM item WHERE i_id = %s", (line.item,))
        if not found:
            return False
        (price, _, _) = found[0]
        key = (line.supply_warehouse, line.item)
        quantity, info, _ = self._one(
            f"SELECT s_quantity, s_dist_{given.district:02d}, s_data FROM stock "
            "WHERE s_w_id = %s AND s_i_id = %s FOR UPDATE",
            key,
        )
        left = quantity - line.quantity
        self.rows(
            "UPDATE stock SET s_quantity = %s, s_ytd = s_ytd + %s, s_order_cnt = s_order_cnt + 1, "
            "s_remote_cnt = s_remote_cnt + %s WHERE s_w_id = %s AND s_i_id = %s",
            (left if left >= 10 else left + 91, line.quantity,
             int(line.supply_warehouse != given.warehouse), *key),
        )  # fmt: skip
        self.rows(
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, "
            "ol_supply_w_id, ol_delivery_d, ol_quantity, ol_amount, ol_dist_info) "
            "VALUES (%s, %s, %s, %s, %s, %s, NULL, %s, %s, %s)",
            (order, given.district, given.warehouse, number, line.item, line.supply_warehouse,
             line.quantity, line.quantity * price, info),
        )  # fmt: skip
        return True

    def _payment(self, given: Payment) -> None:
        self.rows(
            "UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %s",
            (given.amount, given.warehouse),
        )
        warehouse = self._one(
            "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse "
            "WHERE w_id = %s",
            (given.warehouse,),
        )
        district = (given.warehouse, given.district)
        self.rows(
            "UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %s AND d_id = %s",
            (given.amount, *district),
        )
        place = self._one(
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district "
            "WHERE d_w_id = %s AND d_id = %s",
            district,
        )
        home = (given.customer_warehouse, given.customer_district)
        number = self._customer_number(*home, given.customer)
        row = self._one(
            "SELECT c_credit, c_data, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, "
            "c_state, c_zip, c_phone, c_since, c_credit_lim, c_discount, c_balance FROM customer "
            "WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s FOR UPDATE",
            (*home, number),
        )
        credit, data = row[0], row[1]
        sums = (given.amount, given.amount)
        if credit == "BC":
            news = f"{number} {home[1]} {home[0]} {given.district} {given.warehouse} {given.amount}"
            self.rows(
                "UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + "
                "%s, c_payment_cnt = c_payment_cnt + 1, c_data = %s "
                "WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                (*sums, f"{news}|{data}"[:CUSTOMER_DATA_LENGTH], *home, number),
            )
        else:
            self.rows(
                "UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + "
                "%s, c_payment_cnt = c_payment_cnt + 1 "
                "WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                (*sums, *home, number),
            )
        self.rows(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, "
            "h_data) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (number, home[1], home[0], given.district, given.warehouse, given.entered,
             given.amount, f"{warehouse[0]}    {place[0]}"),
        )  # fmt: skip
        self.commit()

    def _customer_number(self, warehouse: int, district: int, customer: int | str) -> int:
        """The customer's number. Of several with the last name, the middle one by first name."""
        if isinstance(customer, int):
            return customer
        rows = self.rows(
            "SELECT c_id FROM customer WHERE c_w_id = %s AND c_d_id = %s AND c_last = %s "
            "ORDER BY c_first",
            (warehouse, district, customer),
        )
        if not rows:
            raise CheckFailed(f"no customer {customer} in warehouse {warehouse}, {district}")
        return int(rows[(len(rows) - 1) // 2][0])

    def _order_status(self, given: OrderStatus) -> None:
        district = (given.warehouse, given.district)
        number = self._customer_number(*district, given.customer)
        self._one(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer "
            "WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            (*district, number),
        )
        (order, _, _) = self._one(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = %s AND o_d_id = %s "
            "AND o_c_id = %s ORDER BY o_id DESC LIMIT 1",
            (*district, number),
        )
        self.rows(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d "
            "FROM order_line WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            (*district, order),
        )
        self.commit()

    def _delivery(self, given: Delivery) -> None:
        """Delivers in all districts in one transaction; skips a district without new orders."""
        for number in range(1, DISTRICTS + 1):
            district = (given.warehouse, number)
            oldest = self.rows(
                "SELECT no_o_id FROM new_order WHERE no_w_id = %s AND no_d_id = %s "
                "ORDER BY no_o_id LIMIT 1 FOR UPDATE",
                district,
            )
            if oldest:
                self._deliver(given, district, oldest[0][0])
        self.commit()

    def _deliver(self, given: Delivery, district: tuple[int, int], order: int) -> None:
        key = (*district, order)
        self.rows("DELETE FROM new_order WHERE no_w_id = %s AND no_d_id = %s AND no_o_id = %s", key)
        (customer,) = self._one(
            "SELECT o_c_id FROM orders WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s FOR UPDATE",
            key,
        )
        self.rows(
            "UPDATE orders SET o_carrier_id = %s WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s",
            (given.carrier, *key),
        )
        self.rows(
            "UPDATE order_line SET ol_delivery_d = %s "
            "WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            (given.entered, *key),
        )
        (amount,) = self._one(
            "SELECT SUM(ol_amount) FROM order_line "
            "WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s",
            key,
        )
        self.rows(
            "UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 "
            "WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            (amount or Decimal(0), *district, customer),
        )

    def _stock_level(self, given: StockLevel) -> None:
        district = (given.warehouse, given.district)
        (following,) = self._one(
            "SELECT d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s", district
        )
        self._one(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = %s "
            "AND ol_d_id = %s AND ol_o_id < %s AND ol_o_id >= %s AND s_w_id = ol_w_id "
            "AND s_i_id = ol_i_id AND s_quantity < %s",
            (*district, following, following - 20, given.threshold),
        )
        self.commit()
