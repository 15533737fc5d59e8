"""The plan of many hours: sysbench with every script, a thread sweep, access patterns and data
sizes against the cache; then every other workload.

A block on all seven targets takes about half a minute, and a timed case needs at least 12 blocks.
Run it with `--resume`, in slices of at most two hours. The largest data takes 10 GiB per target.
"""

from collections.abc import Iterator

from firn_lab.plan.case import PLANS, Case, Plan, parse_case
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import Params

THREADS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
CACHES = ("0.5", "1", "3", "10")
EXPONENTS = ("0", "0.4", "0.8", "1", "1.2")
SCRIPTS = (
    "oltp_point_select", "oltp_read_only", "oltp_read_write", "oltp_write_only",
    "oltp_update_index", "oltp_update_non_index", "select_random_points", "select_random_ranges",
    "oltp_insert", "oltp_delete", "bulk_insert",
)  # fmt: skip
_OWN = Params(threads=16, seconds=1, lead_seconds=0.1, warm_seconds=5)
# The lab's own workloads. The cache is 1 GiB: the ten warehouses of TPC-C fit into it, and the data
# of `cache=10` is ten times as large.
OWN = (
    "tpcc:warehouses=10",
    "tpcc:cache=10",
    "users:access=by_key",
    "users:access=by_email",
    "users:access=covered",
    "users:access=first_20",
    "shop",
    "blobs:access=select,rows=4000,threads=4",
    "blobs:access=update,rows=4000,threads=4",
    "insert",
    "references:change=insert",
    "references:change=both",
    "references:change=cascade",
    "temporary",
    "temporary:keys=1",
    "scan:rows=4000000,threads=2",
    "lookup:rows=4000000",
    "load_time:way=file,order=key,threads=1",
    "load_time:way=file,order=random,threads=1",
    "load_time:way=insert,order=key,threads=1",
    "operations",
    "tpch:sf=1",
    "recovery:log_mb=64,threads=1",
    "recovery:log_mb=512,threads=1",
)


def _cases() -> Iterator[Case]:
    for name in SCRIPTS:
        # Four million rows in all: select_random_points and select_random_ranges have one table,
        # the other scripts ten. bulk_insert begins with empty tables.
        rows = {"bulk_insert": "", "select_random_points": ":rows=4000000",
                "select_random_ranges": ":rows=4000000"}.get(name, ":rows=400000")  # fmt: skip
        yield parse_case(f"{name}{rows}", _OWN)
    for threads in THREADS:
        if threads != _OWN.threads:
            yield parse_case(f"oltp_read_write:rows=400000,threads={threads}", _OWN)
    for cache in CACHES:
        for exponent in EXPONENTS:
            for name in ("oltp_point_select", "oltp_read_write"):
                yield parse_case(f"{name}:cache={cache},zipf={exponent}", _OWN)
    for text in OWN:
        yield parse_case(text, _OWN)


PLANS.add(
    "full",
    Plan(
        "full",
        "sysbench: every script, 2 to 128 threads, uniform to Zipf 1.2, data 0.5 to 10 × cache; "
        "TPC-C, TPC-H, users, shop, blobs, inserts, loads, scans, operations, recovery",
        tuple(_cases()),
        targets=(
            "engine:innodb",
            "engine:innodb-compressed",
            "engine:innodb-compressed-row",
            "engine:firn",
            "engine:rocksdb",
            "postgresql",
            "postgresql:75",
        ),
        case_seconds=420,
        budget=Budget(memory_bytes=1 << 30),
        measures=("ssd", "csv"),
    ),
)
