"""Ten minutes on two cores: what most people ask first."""

from firn_lab.plan.base import PLANS, Plan, parse_case, replace_params
from firn_lab.targets.base import Budget
from firn_lab.workloads.base import Params

_BASE = Params(threads=8, seconds=6, warm_seconds=2)
_SYSBENCH = replace_params(_BASE, {}, {"tables": "4", "rows": "100000"})

PLANS.add(
    "quick",
    Plan(
        "quick",
        "sysbench (points, reads, reads and writes, writes), user accounts, TPC-C; data fits the "
        "cache",
        (
            *(
                parse_case(name, _SYSBENCH)
                for name in (
                    "oltp_point_select",
                    "oltp_read_only",
                    "oltp_read_write",
                    "oltp_update_non_index",
                    "oltp_write_only",
                )
            ),
            parse_case("users:rows=200000,seconds=4", _BASE),
            parse_case("tpcc:warehouses=2,seconds=8", _BASE),
        ),
        targets=("engine:innodb", "engine:firn", "engine:rocksdb"),
        budget=Budget(memory_bytes=256 << 20),
    ),
)
