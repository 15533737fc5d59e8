"""A plan of slow disks: FIRN without and with its memory pool, the data many times its block cache.

The disks are those of `firn_debug_disk`: a local one that takes 120 µs, with a thread a core of a
small machine and with more, and a volume of a cloud. Half of `firn_memory_limit` or less is block
cache, the rest memtables and row cache: five times the limit is about ten times the block cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from firn_lab.plan.case import PLANS, Case, Plan, replace_params
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import Params

LOCAL, VOLUME = "120us", "500us/3000iops/125MBps"
# Disks and threads.
SETTINGS = ((LOCAL, 2), (LOCAL, 8), (VOLUME, 8))
CACHE = {"cache": "5"}
SYSBENCH = {"tables": "4", **CACHE}
# Workloads with their options, and what is published for the ratio of with to without.
CASES: tuple[tuple[str, dict[str, str], float | None], ...] = (
    ("oltp_point_select", SYSBENCH, None),
    ("oltp_read_only", SYSBENCH, 1.50),
    ("oltp_write_only", SYSBENCH, 1.30),
    ("oltp_read_write", SYSBENCH, 1.46),
    ("restart", {**SYSBENCH, "zipf": "0.9"}, 0.75),
    ("scan", CACHE, 2.00),
    ("lookup", CACHE, 1.95),
    ("blobs", {**CACHE, "access": "select"}, 1.90),
    ("blobs", {**CACHE, "access": "update"}, 1.52),
)
# One stream of TPC-H, whatever the threads; nothing is published for it.
STREAMS = (LOCAL, VOLUME)
_BASE = Params(seconds=2, lead_seconds=0.5, warm_seconds=10)


def _cases() -> Iterator[Case]:
    for disk, threads in SETTINGS:
        for workload, options, published in CASES:
            fields = {"disk": disk, "threads": threads}
            yield Case(workload, replace_params(_BASE, fields, options), published)
    for disk in STREAMS:
        yield Case("tpch", replace_params(_BASE, {"disk": disk, "threads": 1}, CACHE))


PLANS.add(
    "pool",
    Plan(
        "pool",
        "FIRN without and with its memory pool on slow disks: sysbench, restarts, scans, look-ups, "
        "large values, TPC-H; data 10 × the block cache",
        tuple(_cases()),
        targets=("engine:firn", "pool"),
        within=0.05,
        case_seconds=120,
        budget=Budget(memory_bytes=128 << 20),
        published_by="PolarStore's elastic memory pool",
    ),
)
