"""Fills the tables: one process per table, as many at once as there are cores."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from typing import IO

from firn_lab import processes
from firn_lab.targets.target import Target
from firn_lab.workloads.sysbench.program import (
    LUA,
    connection_options,
    failure,
    require_program,
    seed_of,
)
from firn_lab.workloads.workload import Sink


class _Table:
    """The process that fills one table."""

    def __init__(self, target: Target, number: int, rows: int, seed: int) -> None:
        self.output: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [
            "sysbench",
            str(LUA / "load.lua"),
            *connection_options(target),
            f"--table-size={rows}",
            "prepare",
        ]
        environment = {
            "FIRN_LAB_TABLE": str(number),
            "FIRN_LAB_SEED": str(seed_of(seed, f"load {number}")),
            "FIRN_LAB_TABLE_SUFFIX": target.create_suffix(),
        }
        self.process = processes.start(
            command, stdout=self.output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )

    def end(self) -> None:
        processes.end(self.process)
        self.output.close()


def load_tables(target: Target, tables: int, rows: int, seed: int, sink: Sink) -> None:
    """Fills all tables; equal seeds give equal rows on every target. Raises the first error."""
    require_program()
    waiting = list(range(1, tables + 1))
    working: list[_Table] = []
    done = 0
    try:
        while waiting or working:
            while waiting and len(working) < (os.cpu_count() or 1):
                working.append(_Table(target, waiting.pop(0), rows, seed))
            time.sleep(0.02)
            for table in [table for table in working if table.process.poll() is not None]:
                working.remove(table)
                table.output.seek(0)
                text, code = table.output.read(), table.process.returncode
                table.end()
                if code != 0 or "FATAL" in text:
                    raise failure(target, text)
                done += 1
                sink.progress(done / tables)
    finally:
        for table in working:
            table.end()
