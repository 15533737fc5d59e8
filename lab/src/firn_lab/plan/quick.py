"""Ten minutes on two cores: what most people ask first.

Four of them are measured. Each round that writes ends with four seconds of rest, loads and warm-up
take two minutes.
"""

from firn_lab.plan.base import PLANS, Plan, parse_case, replace_params
from firn_lab.targets.base import Budget
from firn_lab.workloads.base import Params

_BASE = Params(threads=8, seconds=4, warm_seconds=1)
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
            parse_case("tpcc:warehouses=1,seconds=6", _BASE),
        ),
        targets=("engine:innodb", "engine:firn", "engine:rocksdb"),
        budget=Budget(memory_bytes=256 << 20),
    ),
)
