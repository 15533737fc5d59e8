"""Runs stock sysbench workloads against a private server."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path("/usr/share/sysbench")

WORKLOADS = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "oltp_delete",
    "select_random_points",
    "select_random_ranges",
    "bulk_insert",
]


class SysbenchError(Exception):
    """sysbench ended with an error; the message is its output."""


@dataclass
class Load:
    """The target of sysbench: a socket, a database, an engine, number and size of the tables."""

    socket: Path
    database: str
    engine: str
    tables: int
    rows: int

    def _command(self, workload: str, *options: str) -> list[str]:
        return [
            "sysbench",
            str(SCRIPTS / f"{workload}.lua"),
            f"--mysql-socket={self.socket}",
            "--mysql-user=root",
            f"--mysql-db={self.database}",
            f"--mysql-storage-engine={self.engine}",
            f"--tables={self.tables}",
            f"--table-size={self.rows}",
            "--rand-type=uniform",
            *options,
        ]

    def _bulk_command(self, *options: str) -> list[str]:
        """bulk_insert does not accept --tables and --table-size."""
        command = self._command("bulk_insert", *options)
        return [c for c in command if not c.startswith(("--tables", "--table-size"))]

    def prepare(self, threads: int) -> None:
        """Creates and fills the tables. Raises SysbenchError."""
        _run(self._command("oltp_read_write", f"--threads={threads}", "prepare"))

    def run(self, workload: str, threads: int, seconds: float) -> float:
        """Runs a workload; returns transactions per second.

        sysbench retries deadlocks; any other error raises SysbenchError.
        """
        options = (f"--threads={threads}", f"--time={max(1, round(seconds))}")
        if workload == "bulk_insert":
            _run(self._bulk_command(*options, "cleanup"))
            _run(self._bulk_command(*options, "prepare"))
            output = _run(self._bulk_command(*options, "run"))
            # bulk_insert has no transactions; count its queries instead.
            match = re.search(r"queries:\s+\d+\s+\(([\d.]+) per sec", output)
        else:
            errors = "--mysql-ignore-errors=1213"
            output = _run(self._command(workload, *options, errors, "run"))
            match = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", output)
        if match is None:
            raise SysbenchError(output)
        return float(match[1])

    def run_transactions(self, workload: str, threads: int, each: int) -> None:
        """Runs a workload until the threads have run `each` transactions on average.

        Unlike `run`, it makes the server do the same work however slow the machine is.
        """
        options = (f"--threads={threads}", "--time=0", f"--events={threads * each}")
        errors = "--mysql-ignore-errors=1213,1205"
        output = _run(self._command(workload, *options, errors, "run"))
        match = re.search(r"transactions:\s+(\d+)", output)
        if match is None or int(match[1]) < threads:
            raise SysbenchError(output)

    @contextlib.contextmanager
    def running(self, workload: str, threads: int) -> Iterator[None]:
        """Runs a workload beside the block, until the server or the block ends."""
        options = (f"--threads={threads}", "--time=600")
        process = subprocess.Popen(
            self._command(workload, *options, "run"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if done.returncode != 0 or "FATAL" in output:
        raise SysbenchError(f"{' '.join(command)}\n{output}")
    return output
