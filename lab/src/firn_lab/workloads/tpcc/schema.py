"""Clause 1.3: nine tables with their primary keys, and two additional indexes that are customary.

There are no foreign keys, which the specification leaves to the implementer and comparisons of
engines usually omit.
"""

from __future__ import annotations

from firn_lab.targets.target import Target
from firn_lab.workloads.sql_session import create_table, date_type

_PLACE = (
    "{0}_street_1 VARCHAR(20) NOT NULL, {0}_street_2 VARCHAR(20) NOT NULL, "
    "{0}_city VARCHAR(20) NOT NULL, {0}_state CHAR(2) NOT NULL, {0}_zip CHAR(9) NOT NULL"
)
_DISTS = ", ".join(f"s_dist_{number:02d} CHAR(24) NOT NULL" for number in range(1, 11))

TABLES = {
    "warehouse": "w_id INT NOT NULL, w_name VARCHAR(10) NOT NULL, " + _PLACE.format("w") + ", "
    "w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL, PRIMARY KEY (w_id)",
    "district": "d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10) NOT NULL, "
    + _PLACE.format("d")
    + ", d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(12,2) NOT NULL, d_next_o_id INT NOT NULL, "
    "PRIMARY KEY (d_w_id, d_id)",
    "customer": "c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, "
    "c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL, "
    + _PLACE.format("c")
    + ", c_phone CHAR(16) NOT NULL, c_since DATE_TYPE NOT NULL, c_credit CHAR(2) NOT NULL, "
    "c_credit_lim DECIMAL(12,2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL, "
    "c_balance DECIMAL(12,2) NOT NULL, c_ytd_payment DECIMAL(12,2) NOT NULL, "
    "c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL, "
    "PRIMARY KEY (c_w_id, c_d_id, c_id)",
    "history": "h_c_id INT NOT NULL, h_c_d_id INT NOT NULL, h_c_w_id INT NOT NULL, "
    "h_d_id INT NOT NULL, h_w_id INT NOT NULL, h_date DATE_TYPE NOT NULL, "
    "h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL",
    "new_order": "no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, "
    "PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    "orders": "o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT NOT NULL, "
    "o_entry_d DATE_TYPE NOT NULL, o_carrier_id INT, o_ol_cnt INT NOT NULL, "
    "o_all_local INT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)",
    "order_line": "ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, "
    "ol_number INT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL, "
    "ol_delivery_d DATE_TYPE, ol_quantity INT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, "
    "ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    "item": "i_id INT NOT NULL, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, "
    "i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL, PRIMARY KEY (i_id)",
    "stock": "s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT NOT NULL, " + _DISTS + ", "
    "s_ytd INT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, "
    "s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)",
}
INDEXES = {
    "customer": "customer_name (c_w_id, c_d_id, c_last, c_first)",
    "orders": "orders_customer (o_w_id, o_d_id, o_c_id, o_id)",
}

# For each table, a column with which no index begins, so that the server finds its maximum only by
# reading all rows, and so warms the caches.
WARM_COLUMNS = {
    "warehouse": "w_name",
    "district": "d_name",
    "customer": "c_data",
    "history": "h_data",
    "new_order": "no_o_id",
    "orders": "o_carrier_id",
    "order_line": "ol_dist_info",
    "item": "i_data",
    "stock": "s_data",
}


def create_tables(target: Target) -> None:
    for name, columns in TABLES.items():
        indexes = [INDEXES[name]] if name in INDEXES else []
        create_table(target, name, columns.replace("DATE_TYPE", date_type(target)), *indexes)
