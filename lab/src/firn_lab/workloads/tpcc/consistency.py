"""Clause 3.3.2: consistency conditions 1 to 4, each as a query for violations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Number of violations printed per condition; the rest is only counted.
TOLD_MAX = 3

_ORDERS = "(SELECT o_w_id, o_d_id, MAX(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) AS o"
_NEW = (
    "(SELECT no_w_id, no_d_id, MIN(no_o_id) AS first, MAX(no_o_id) AS last, COUNT(*) AS held "
    "FROM new_order GROUP BY no_w_id, no_d_id) AS n"
)
_LINES_TOLD = (
    "(SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS told FROM orders GROUP BY o_w_id, o_d_id) AS o"
)
_LINES_HELD = (
    "(SELECT ol_w_id, ol_d_id, COUNT(*) AS held FROM order_line GROUP BY ol_w_id, ol_d_id) AS l"
)

# By condition: a description, and a query for its violations. A row of the query has the warehouse,
# the district (0: all), and two values that should be equal.
CONDITIONS = (
    (
        "1: w_ytd is not the sum of d_ytd",
        "SELECT w_id, 0, w_ytd, received FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS "
        "received FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id "
        "WHERE received IS NULL OR w_ytd <> received",
    ),
    (
        "2: d_next_o_id - 1 is not the last order",
        f"SELECT d_w_id, d_id, d_next_o_id - 1, o.last FROM district LEFT JOIN {_ORDERS} "
        "ON o_w_id = d_w_id AND o_d_id = d_id WHERE o.last IS NULL OR d_next_o_id - 1 <> o.last",
    ),
    (
        "2: d_next_o_id - 1 is not the last new order",
        f"SELECT d_w_id, d_id, d_next_o_id - 1, n.last FROM district JOIN {_NEW} "
        "ON no_w_id = d_w_id AND no_d_id = d_id WHERE d_next_o_id - 1 <> n.last",
    ),
    (
        "3: new orders are not without gaps",
        f"SELECT no_w_id, no_d_id, n.last - n.first + 1, n.held FROM {_NEW} "
        "WHERE n.last - n.first + 1 <> n.held",
    ),
    (
        "4: the sum of o_ol_cnt is not the number of order lines",
        f"SELECT o_w_id, o_d_id, o.told, l.held FROM {_LINES_TOLD} LEFT JOIN {_LINES_HELD} "
        "ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE l.held IS NULL OR o.told <> l.held",
    ),
)


def broken_conditions(query: Callable[[str], list[Any]]) -> list[str]:
    """Violations of the conditions, one per line."""
    lines = []
    for condition, statement in CONDITIONS:
        rows = query(statement)
        for warehouse, district, first, second in rows[:TOLD_MAX]:
            where = f"warehouse {warehouse}" + (f" district {district}" if district else "")
            lines.append(f"condition {condition}: {where}: {first} and {second}")
        if len(rows) > TOLD_MAX:
            lines.append(f"condition {condition}: at {len(rows) - TOLD_MAX} more places")
    return lines
