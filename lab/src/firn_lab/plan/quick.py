"""A plan of fifteen minutes on two cores: the most common questions, to about 5 %.

Loads and warm-up take two or three minutes. A block of three targets takes two seconds, with half a
second measured on each. Shared machines slow down for seconds at a time, and such a dip then
affects all rounds of a block alike. TPC-C has longer transactions and rounds of twice the length.
"""

from firn_lab.plan.case import PLANS, Plan, parse_case, replace_params
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import Params

_BASE = Params(threads=8, seconds=0.5, lead_seconds=0.05, warm_seconds=2)
_SYSBENCH = replace_params(_BASE, {}, {"tables": "4", "rows": "100000"})

PLANS.add(
    "quick",
    Plan(
        "quick",
        "sysbench (points, reads, reads and writes, updates), user accounts, TPC-C; data fits the "
        "cache",
        (
            *(
                parse_case(name, _SYSBENCH)
                for name in (
                    "oltp_point_select",
                    "oltp_read_only",
                    "oltp_read_write",
                    "oltp_update_non_index",
                )
            ),
            parse_case("users:rows=100000", _BASE),
            parse_case("tpcc:warehouses=1,seconds=1,lead_seconds=0.1", _BASE),
        ),
        minutes=15,
        targets=("engine:innodb", "engine:firn", "engine:rocksdb"),
        budget=Budget(memory_bytes=256 << 20),
    ),
)
