"""FIRN with a memory pool: a private MariaDB and two memcached nodes of its own.

The nodes begin with the first start of the server, keep their blocks while it restarts, and end
with `destroy`. They work while the server does, and need not be frozen: nobody asks them else.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from firn_lab import processes
from firn_lab.errors import TargetError, UsageError
from firn_lab.targets.engine import VARIANTS, EngineTarget
from firn_lab.targets.target import DATABASE, TARGETS, Budget, Target
from firn_lab.targets.walk import walk

NODES = 2
# Memory of all nodes together, as a multiple of the target's cache. It is a limit: what the data
# does not need, the nodes do not take.
CACHES = 16
NODE_MIB_MIN = 64
START_SECONDS_MAX = 20.0
# Nearly all memory of a node holds values, whatever their length (docs/pool.md).
NODE_OPTIONS = ("-n", "2048", "-f", "1.07", "-t", "1")


class PoolTarget(EngineTarget):
    """A private MariaDB with FIRN, whose pool is on from the start."""

    def __init__(self, budget: Budget, scratch: Path, label: str = "", plugin: str = "") -> None:
        name = f"firn-pool@{label}" if label else "firn-pool"
        super().__init__(name, VARIANTS["firn"], budget, scratch, Path(plugin) if plugin else None)
        self.spec = f"pool:{label}{'=' * bool(plugin)}{plugin}" if label else "pool"
        self._nodes: list[subprocess.Popen[Any]] = []
        self._is_filled = False
        self._node_mib = max(NODE_MIB_MIN, (CACHES * budget.memory_bytes // NODES) >> 20)

    @property
    def node_pids(self) -> list[int]:
        """Process ids of the nodes."""
        return [node.pid for node in self._nodes]

    @property
    def has_slow_reads(self) -> bool:
        return True

    def lacks(self) -> str:
        if shutil.which("memcached") is None:
            return "memcached is not there: apt-get install memcached"
        return super().lacks()

    def start(self) -> None:
        if not self._nodes:
            self._start_nodes()
        super().start()

    def destroy(self) -> None:
        for node in self._nodes:
            processes.end(node)
        self._nodes.clear()
        self._is_filled = False
        super().destroy()

    def fill_outer_caches(self) -> None:
        """Once for the data of the nodes' life: afterwards the nodes have what changes, too."""
        if not self._is_filled:
            walk(self, DATABASE)
            self._is_filled = True

    def _command(self) -> list[str]:
        nodes = ",".join(f"unix:{path}" for path in self._node_sockets())
        return [*super()._command(), f"--firn-pool-nodes={nodes}", "--firn-pool=ON"]

    def _node_sockets(self) -> list[Path]:
        return [self.socket_dir / f"node{number}" for number in range(NODES)]

    def _start_nodes(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        user = ["-u", "root"] if os.geteuid() == 0 else []
        for path in self._node_sockets():
            command = ["memcached", "-s", str(path), "-m", str(self._node_mib), *NODE_OPTIONS]
            with self.error_log.open("ab") as log:
                node = processes.start([*command, *user], stdout=log, stderr=log)
            self._nodes.append(node)
            deadline = time.monotonic() + START_SECONDS_MAX
            while not _answers(path):
                if node.poll() is not None or time.monotonic() > deadline:
                    raise TargetError(f"{self.name}: memcached does not start\n{self.log_tail()}")
                time.sleep(0.01)


def _answers(path: Path) -> bool:
    """Whether somebody accepts connections at a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


@TARGETS.register("pool")
def make_pool(argument: str, budget: Budget, scratch: Path) -> Target:
    """pool[:LABEL[=PLUGIN]]: engine:firn with a memory pool of two memcached nodes."""
    label, equals, file = argument.partition("=")
    if argument and not (re.fullmatch(r"[\w.+-]+", label) and bool(equals) == bool(file)):
        raise UsageError(f"pool:{argument}: write pool, pool:LABEL or pool:LABEL=FILE")
    return PoolTarget(budget, scratch, label, file)
