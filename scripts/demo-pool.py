#!/usr/bin/env python3
"""Reads from a slow disk, without and with a memory pool of two memcached nodes.

    make demo-pool
    scripts/demo-pool.py --disk 120us --threads 2 --rounds 3 --seconds 20

One server, whose files lie on a disk that firn_debug_disk slows down, holds several times more rows
than its block cache. sysbench reads them: off, on, off, on … in pairs, after a warm-up that fills
the nodes. The last column of the table is the quotient of each pair, in the median. `missing` is
a pool whose node refuses all that is put: what a pool costs that never has anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sql"))

from memcached import Memcached  # noqa: E402
from server import Server, remove_scratch  # noqa: E402
from sysbench import Load  # noqa: E402

DATABASE = "demo_pool"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--disk", default="500us,3000iops,125MBps")
    parser.add_argument("--workloads", default="oltp_point_select,oltp_read_only,oltp_read_write")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each of four tables")
    parser.add_argument("--cache", default="8M", help="firn_block_cache_size")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--megabytes", type=int, default=512, help="memory of each node")
    return parser.parse_args()


def node_sums(server: Server) -> tuple[int, int]:
    """Hits and gets of all nodes."""
    rows = server.query("SELECT SUM(hits), SUM(gets) FROM information_schema.firn_pool")
    return int(rows[0][0] or 0), int(rows[0][1] or 0)


class Demo:
    """The server, its nodes and the load."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.nodes = [Memcached(args.megabytes) for _ in range(2)]
        self.server = Server(
            [
                "--default-storage-engine=FIRN",
                f"--firn-block-cache-size={args.cache}",
                "--firn-row-cache-size=1M",
                "--firn-flush-log-at-trx-commit=2",
                "--max-prepared-stmt-count=100000",
            ]
        )
        self.load = Load(self.server.socket, DATABASE, "FIRN", 4, args.rows)

    def fill(self) -> int:
        """Fills the tables on the disk as it is, and restarts on the slow one. Returns bytes."""
        self.server.start()
        self.server.query(f"CREATE DATABASE {DATABASE}")
        self.load.prepare(4)
        for table in range(1, 5):
            self.server.query(f"OPTIMIZE TABLE {DATABASE}.sbtest{table}")
        rows = self.server.query("SELECT SUM(raw_bytes) FROM information_schema.firn_indexes")
        self.server.options.append(f"--firn-debug-disk={self.args.disk}")
        self.server.restart()
        return int(rows[0][0])

    def set_nodes(self, nodes: list[Memcached]) -> None:
        """Sets firn_pool_nodes."""
        addresses = ",".join(node.address for node in nodes)
        self.server.query(f"SET GLOBAL firn_pool_nodes = '{addresses}'")

    def run(self, workload: str, on: bool, seconds: float | None = None) -> float:
        """Transactions a second, with the pool on or off."""
        self.server.query(f"SET GLOBAL firn_pool = {'ON' if on else 'OFF'}")
        return self.load.run(workload, self.args.threads, seconds or self.args.seconds)

    def pair(self, workload: str, label: str) -> None:
        """Prints one line of the table."""
        off, on, quotients = [], [], []
        hits, gets = node_sums(self.server)
        for _ in range(self.args.rounds):
            off.append(self.run(workload, False))
            on.append(self.run(workload, True))
            quotients.append(on[-1] / off[-1])
        hits, gets = (now - before for now, before in zip(node_sums(self.server), (hits, gets), strict=True))
        share = f"{100 * hits / gets:.0f} %" if gets else "none asked"
        print(
            f"{label:32}{statistics.median(off):10.0f}{statistics.median(on):10.0f}"
            f"{statistics.median(quotients):8.2f}   hits {share}",
            flush=True,
        )


def main() -> None:
    """Fills, warms up, measures."""
    args = arguments()
    demo = Demo(args)
    try:
        size = demo.fill()
        print(f"{size >> 20} MiB of rows, cache {args.cache}, disk {args.disk}, {args.threads} threads")
        print(f"{'transactions a second':32}{'off':>10}{'on':>10}{'on/off':>8}", flush=True)
        workloads = args.workloads.split(",")
        empty = [Memcached(refuses_blocks=True)]
        demo.set_nodes([])
        demo.pair(workloads[0], f"{workloads[0]}, no node")
        demo.set_nodes(empty)
        demo.pair(workloads[0], f"{workloads[0]}, missing")
        empty[0].kill()
        demo.set_nodes(demo.nodes)
        for _ in range(3):
            demo.run("oltp_point_select", True, 3 * args.seconds)
        for workload in workloads:
            demo.pair(workload, workload)
        demo.server.stop()
    finally:
        demo.server.destroy()
        for node in demo.nodes:
            node.kill()
        remove_scratch()


if __name__ == "__main__":
    main()
