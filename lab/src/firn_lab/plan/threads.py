"""A plan of many threads: sysbench from 64 to 2,000 threads, data in the cache.

One table suffices: each thread prepares its statements for every table, and with ten tables 2,000
threads would measure the memory of 200,000 prepared statements and a table cache that is too small.
Sysbench gives its threads 30 seconds to connect and to prepare, too.
With 2,000 threads on two cores a transaction of oltp_read_write takes a second or more, so that
rounds and leads are long: the lead fills the queues, and a round has thousands of transactions,
enough for a 99.9th percentile. `--thread-pool` measures the same with the server's thread pool.
"""

from firn_lab.plan.case import PLANS, Plan, parse_case, replace_params
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import Params

THREADS = (64, 512, 2000)
_BASE = replace_params(
    Params(seconds=6, lead_seconds=3, warm_seconds=2), {}, {"tables": "1", "rows": "1000000"}
)

PLANS.add(
    "threads",
    Plan(
        "threads",
        "sysbench (points, reads and writes, writes) with 64, 512 and 2,000 threads; data fits the "
        "cache",
        tuple(
            parse_case(name, replace_params(_BASE, {"threads": threads}, _BASE.options))
            for name in ("oltp_point_select", "oltp_read_write", "oltp_write_only")
            for threads in THREADS
        ),
        case_seconds=360,
        budget=Budget(memory_bytes=1 << 30),
    ),
)
