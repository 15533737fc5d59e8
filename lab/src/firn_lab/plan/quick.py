"""Ten minutes on two cores: what most people ask first."""

from firn_lab.plan.base import PLANS, Plan, parse_case
from firn_lab.targets.base import Budget
from firn_lab.workloads.base import Params

_SIZE = {"tables": "4", "rows": "100000"}
_BASE = Params(threads=8, seconds=10, warm_seconds=2, options=_SIZE)

PLANS.add(
    "quick",
    Plan(
        "quick",
        "sysbench: point selects, read-only, read-write and writes, data fits the cache",
        tuple(
            parse_case(name, _BASE)
            for name in (
                "oltp_point_select",
                "oltp_read_only",
                "oltp_read_write",
                "oltp_update_non_index",
                "oltp_write_only",
            )
        ),
        targets=("engine:innodb", "engine:firn", "engine:rocksdb"),
        budget=Budget(memory_bytes=256 << 20),
    ),
)
