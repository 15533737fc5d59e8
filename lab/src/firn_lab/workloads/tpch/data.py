"""Eight tables, filled from files of `tpchgen-cli`, which generates the same rows as dbgen."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firn_lab import processes
from firn_lab.errors import LabError
from firn_lab.targets.target import Target
from firn_lab.workloads.load_file import load_file
from firn_lab.workloads.sql_session import create_table
from firn_lab.workloads.workload import Sink

TABLES = {
    "region": "r_regionkey INT NOT NULL, r_name CHAR(25) NOT NULL, r_comment VARCHAR(152), "
    "PRIMARY KEY (r_regionkey)",
    "nation": "n_nationkey INT NOT NULL, n_name CHAR(25) NOT NULL, n_regionkey INT NOT NULL, "
    "n_comment VARCHAR(152), PRIMARY KEY (n_nationkey)",
    "supplier": "s_suppkey INT NOT NULL, s_name CHAR(25) NOT NULL, s_address VARCHAR(40) NOT NULL, "
    "s_nationkey INT NOT NULL, s_phone CHAR(15) NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL, "
    "s_comment VARCHAR(101) NOT NULL, PRIMARY KEY (s_suppkey)",
    "part": "p_partkey INT NOT NULL, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL, "
    "p_brand CHAR(10) NOT NULL, p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL, "
    "p_container CHAR(10) NOT NULL, p_retailprice DECIMAL(15,2) NOT NULL, "
    "p_comment VARCHAR(23) NOT NULL, PRIMARY KEY (p_partkey)",
    "partsupp": "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL, "
    "ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment VARCHAR(199) NOT NULL, "
    "PRIMARY KEY (ps_partkey, ps_suppkey)",
    "customer": "c_custkey INT NOT NULL, c_name VARCHAR(25) NOT NULL, c_address VARCHAR(40) NOT "
    "NULL, c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL, "
    "c_mktsegment CHAR(10) NOT NULL, c_comment VARCHAR(117) NOT NULL, PRIMARY KEY (c_custkey)",
    "orders": "o_orderkey BIGINT NOT NULL, o_custkey INT NOT NULL, o_orderstatus CHAR(1) NOT NULL, "
    "o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority CHAR(15) NOT "
    "NULL, o_clerk CHAR(15) NOT NULL, o_shippriority INT NOT NULL, o_comment VARCHAR(79) NOT NULL, "
    "PRIMARY KEY (o_orderkey)",
    "lineitem": "l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL, "
    "l_linenumber INT NOT NULL, l_quantity DECIMAL(15,2) NOT NULL, l_extendedprice DECIMAL(15,2) "
    "NOT NULL, l_discount DECIMAL(15,2) NOT NULL, l_tax DECIMAL(15,2) NOT NULL, l_returnflag "
    "CHAR(1) NOT NULL, l_linestatus CHAR(1) NOT NULL, l_shipdate DATE NOT NULL, l_commitdate DATE "
    "NOT NULL, l_receiptdate DATE NOT NULL, l_shipinstruct CHAR(25) NOT NULL, l_shipmode CHAR(10) "
    "NOT NULL, l_comment VARCHAR(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
}
# Indexes on foreign keys and on dates in queries, as clause 1.5 allows.
INDEXES = (
    "nation_region ON nation (n_regionkey)",
    "supplier_nation ON supplier (s_nationkey)",
    "partsupp_supplier ON partsupp (ps_suppkey)",
    "customer_nation ON customer (c_nationkey)",
    "orders_customer ON orders (o_custkey)",
    "orders_date ON orders (o_orderdate)",
    "lineitem_part ON lineitem (l_partkey, l_suppkey)",
    "lineitem_supplier ON lineitem (l_suppkey)",
    "lineitem_shipdate ON lineitem (l_shipdate)",
)


def generator() -> str:
    """The path of the program: beside Python, where pip installs it, or in PATH."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    found = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if found is None:
        raise LabError("tpchgen-cli is not there: pip install tpchgen-cli")
    return found


@contextmanager
def files(scale: float, above: Path) -> Iterator[Path]:
    """A temporary directory with a file TABLE.tbl for each table."""
    with tempfile.TemporaryDirectory(prefix="tpch-", dir=above) as name:
        code, said = processes.run([generator(), "-s", f"{scale:g}", "-o", name])
        if code != 0:
            raise LabError(f"tpchgen-cli ended with {code}: {said[-500:]}")
        yield Path(name)


def load_tables(target: Target, scale: float, sink: Sink) -> None:
    """Loads the rows, then creates the indexes."""
    steps = len(TABLES) + len(INDEXES)
    with files(scale, target.scratch) as directory:
        for number, (name, columns) in enumerate(TABLES.items(), 1):
            create_table(target, name, columns)
            load_file(target, name, directory / f"{name}.tbl", "|\n")
            sink.progress(number / steps)
    for number, index in enumerate(INDEXES, len(TABLES) + 1):
        target.query(f"CREATE INDEX {index}")
        sink.progress(number / steps)
