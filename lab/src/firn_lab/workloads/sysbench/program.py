"""Runs the sysbench program and parses its output."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from firn_lab import processes
from firn_lab.errors import DiskFull, LabError, TargetDied, TargetError
from firn_lab.histogram import Latency, percentile
from firn_lab.targets.target import DATABASE, Target
from firn_lab.workloads.workload import Outcome, Second, Sink

LUA = Path(__file__).parent
# Seconds after the end of a run after which sysbench is told to end; after twice that time it is
# killed.
GRACE_SECONDS = 120.0
SCRIPT_DIR = Path("/usr/share/sysbench")

_SECOND = re.compile(
    r"\[ (\d+)s \] thds: \d+ tps: ([\d.]+) qps: ([\d.]+) .*lat \(ms,95%\): ([\d.]+) "
    r"err/s: ([\d.]+)"
)
_BUCKET = re.compile(r"^\s*([\d.]+) \|\**\s+(\d+)$")
_NUMBERS = {
    "transactions": r"transactions:\s+(\d+)",
    "queries": r"queries:\s+(\d+)",
    "retries": r"ignored errors:\s+(\d+)",
    "seconds": r"total time:\s+([\d.]+)s",
    "average": r"avg:\s+([\d.]+)",
    "max": r"max:\s+([\d.]+)",
}


def run_sysbench(
    target: Target,
    script: Path,
    options: list[str],
    environment: Mapping[str, str],
    seconds: int,
    sink: Sink | None = None,
    lead: int = 0,
) -> Outcome:
    """One run of a script: `lead` seconds, then the measured `seconds`.

    The latencies include the lead, because sysbench has only one histogram.
    """
    report = ["--report-interval=1", "--percentile=95", "--histogram=on"]
    report.append(f"--forced-shutdown={GRACE_SECONDS:.0f}")
    process = processes.start(
        command(target, script, [f"--time={lead + seconds}", *options, *report]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    output: list[str] = []
    told: list[Second] = []
    before = processes.reaped_seconds()
    # A watchdog kills sysbench after twice the grace period: the deadline that sysbench sets itself
    # cannot wake threads that wait for a hanging server.
    watchdog = threading.Timer(
        lead + seconds + 2 * GRACE_SECONDS,
        lambda: processes.signal_all(processes.tree(process.pid), signal.SIGKILL),
    )
    watchdog.start()
    try:
        assert process.stdout is not None
        for text in process.stdout:
            output.append(text)
            second = parse_second(text)
            if second is not None and sink is not None:
                told.append(second)
                if second.second >= lead:
                    sink.second(dataclasses.replace(second, second=second.second - lead))
                elif second.second + 1 == lead:
                    sink.measured()
        code = processes.reap(process)
    finally:
        watchdog.cancel()
        processes.end(process)
        assert process.stdout is not None
        process.stdout.close()
    everything = "".join(output)
    if code == -signal.SIGKILL:
        raise LabError(f"sysbench on {target.name} did not end in time and was killed")
    if code != 0 or "FATAL" in everything:
        raise failure(target, everything)
    used = processes.reaped_seconds() - before
    outcome = without_lead(parse_outcome(everything), told, lead)
    return dataclasses.replace(outcome, client_cpu_seconds=used)


def without_lead(outcome: Outcome, told: Sequence[Second], lead: int) -> Outcome:
    """Subtracts the transactions of the lead, whose seconds sysbench has reported one by one.

    Raises LabError if the report of a second of the lead is missing, which happens if sysbench was
    late.
    """
    found = [second for second in told if second.second < lead]
    if len(found) < lead:
        raise LabError(f"sysbench told of {len(found)} of the first {lead} seconds only")
    transactions = round(sum(second.transactions for second in found))
    return dataclasses.replace(
        outcome,
        transactions=outcome.transactions - transactions,
        queries=outcome.queries - round(sum(second.queries for second in found)),
        seconds=outcome.seconds - lead,
        lead=transactions,
    )


def command(target: Target, script: Path, options: Sequence[str]) -> list[str]:
    """The command line that runs a script."""
    require_program()
    return ["sysbench", str(script), *connection_options(target), *options, "run"]


def require_program() -> None:
    """Raises LabError if sysbench is not installed."""
    if shutil.which("sysbench") is None:
        raise LabError("sysbench is not there: apt-get install sysbench")


def seed_of(seed: int, use: str) -> int:
    """A different seed for each use, never 0, because sysbench replaces 0 by the time of day."""
    return zlib.crc32(f"{seed} {use}".encode()) % (2**31 - 1) + 1


def parse_second(line: str) -> Second | None:
    """Parses a line of the per-second report; None for any other line."""
    match = _SECOND.match(line)
    if match is None:
        return None
    number, tps, qps, p95, retries = match.groups()
    return Second(
        int(number) - 1, float(tps), float(qps), retries=float(retries), p95_ms=float(p95)
    )


def parse_outcome(output: str) -> Outcome:
    """Parses the final report.

    Ignored errors are deadlocks and similar conflicts, which sysbench retries; any other error ends
    sysbench.
    """
    found: dict[str, float] = {}
    for name, pattern in _NUMBERS.items():
        match = re.search(pattern, output)
        if match is None:
            raise LabError(f"sysbench's report has no {name}:\n{output[-2000:]}")
        found[name] = float(match[1])
    counts = {
        float(match[1]): int(match[2])
        for match in map(_BUCKET.match, output.splitlines())
        if match is not None
    }
    p50, p95, p99, p999 = (percentile(counts, percent) for percent in (50, 95, 99, 99.9))
    return Outcome(
        transactions=int(found["transactions"]),
        queries=int(found["queries"]),
        seconds=found["seconds"],
        retries=int(found["retries"]),
        latency=Latency(found["average"], p50, p95, p99, found["max"], p999),
    )


def connection_options(target: Target) -> list[str]:
    where = target.address(DATABASE)
    if where.dialect == "postgresql":
        return [
            "--db-driver=pgsql",
            f"--pgsql-host={where.socket or where.host}",
            f"--pgsql-port={where.port}",
            f"--pgsql-user={where.user}",
            f"--pgsql-password={where.password}",
            f"--pgsql-db={where.database}",
        ]
    place = (
        [f"--mysql-socket={where.socket}"]
        if where.socket
        else [f"--mysql-host={where.host}", f"--mysql-port={where.port}"]
    )
    return [
        "--db-driver=mysql",
        *place,
        f"--mysql-user={where.user}",
        f"--mysql-password={where.password}",
        f"--mysql-db={where.database}",
        # After these errors sysbench counts and retries the transaction: deadlock, row changed
        # since the snapshot, lock wait timeout.
        "--mysql-ignore-errors=1213,1020,1205",
    ]


def failure(target: Target, output: str) -> LabError:
    """Classifies the output of a failed run."""
    lines = output.splitlines()
    # Each thread prints the same failure with the whole statement, so the last line suffices.
    told = [line for line in lines if "SQL error" in line] or [
        line for line in lines if "FATAL" in line
    ]
    text = f"sysbench on {target.name}: {(told or lines or ['(no output)'])[-1][:300]}"
    if re.search(r"No space left|Errcode: 28|errno: 28|error 1021|is full", output):
        return DiskFull(text)
    if re.search(r"error (2002|2003|2006|2013|2055|1053|1927)\b|server closed the conn", output):
        return TargetDied(text)
    return TargetError(text)
