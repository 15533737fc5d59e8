"""Runs sysbench with threads that stay connected between rounds, where they wait at a gate.

Rounds can then be as short as tenths of a second with little overhead: no process starts, and no
thread connects. After the gate closed and every thread waits, no transaction is running; then the
process is stopped with SIGSTOP, as the server is.

The gate and the counters of the threads are doubles in a file that all threads map; `gate.lua` has
the same layout. Index 0 is the gate. From index HEAD on, each thread has a slot of SLOT doubles: a
flag that it waits, transactions, retries, microseconds of all transactions, and from FIRST_BUCKET
on the histogram of `firn_lab.histogram`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firn_lab import processes
from firn_lab.errors import LabError
from firn_lab.histogram import Histogram
from firn_lab.targets.target import Target
from firn_lab.workloads.sysbench.program import LUA, command, failure
from firn_lab.workloads.workload import Outcome, Second, Sink

CLOSED, OPEN, END = 0.0, 1.0, 2.0
HEAD, SLOT, FIRST_BUCKET = 8, 1088, 8
# Time limit for the threads to connect, and for the transactions that run at the end of a round to
# finish.
GRACE_SECONDS = 120.0
POLL_SECONDS = 0.0005


@dataclass(frozen=True)
class _Look:
    """A snapshot of the counters, summed over all threads."""

    at: float
    client_cpu_seconds: float
    sums: NDArray[np.float64]

    @property
    def transactions(self) -> int:
        return int(self.sums[1])


class Gated:
    """The clients of one case on one target, from the first round to `end`."""

    def __init__(
        self,
        target: Target,
        script: Path,
        options: list[str],
        environment: Mapping[str, str],
        threads: int,
        queries_per_transaction: float,
    ) -> None:
        """Starts sysbench and waits until all threads are connected."""
        self._target = target
        self._queries = queries_per_transaction
        size = 8 * (HEAD + SLOT * threads)
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `end`)
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(size)
            self._words = np.frombuffer(mmap.mmap(file.fileno(), size), dtype=np.float64)
            line = command(target, LUA / "gate.lua", ["--time=0", *options])
            gates = {
                "FIRN_LAB_GATED": str(script),
                "FIRN_LAB_GATE": file.name,
                "FIRN_LAB_GATE_BYTES": str(size),
            }
            self._process = processes.start(
                line,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, **gates},
            )
            try:
                # Wait until every thread waits at the gate. All threads have then mapped the gate's
                # file, so the file may be deleted.
                self._await_waiting()
                self._stop()
            except BaseException:
                self.end()
                raise

    def round(self, lead: float, seconds: float, sink: Sink) -> Outcome:
        """Opens the gate for the lead and then for the measured seconds."""
        before = self._look()
        os.kill(self._process.pid, signal.SIGCONT)
        self._words[0] = OPEN
        try:
            if lead > 0:
                time.sleep(lead)
                sink.measured()
            first = last = self._look()
            number = 0
            while (left := first.at + seconds - time.monotonic()) > 0:
                time.sleep(min(left, 1.0))
                now = self._look()
                sink.second(self._second(number, last, now))
                last, number = now, number + 1
                self._require_alive()
        finally:
            self._words[0] = CLOSED
        self._await_waiting()
        after = self._look()
        self._stop()
        done = last.transactions - first.transactions
        return Outcome(
            transactions=done,
            queries=round(done * self._queries),
            seconds=last.at - first.at,
            retries=int(last.sums[2] - first.sums[2]),
            latency=_latencies(first, last).summary(),
            client_cpu_seconds=last.client_cpu_seconds - first.client_cpu_seconds,
            lead=after.transactions - before.transactions - done,
        )

    def end(self) -> None:
        """Ends the process; repeated calls have no effect."""
        if not self._output.closed:
            processes.end(self._process)
            self._output.close()

    def _look(self) -> _Look:
        cpu = processes.processor_seconds([self._process.pid])
        sums = self._words[HEAD:].reshape(-1, SLOT).sum(axis=0)
        return _Look(time.monotonic(), cpu, sums)

    def _second(self, number: int, first: _Look, last: _Look) -> Second:
        """The rates of a second, or of the fraction of a second that a round has left."""
        seconds = max(last.at - first.at, 1e-9)
        transactions = (last.transactions - first.transactions) / seconds
        latency = _latencies(first, last).summary()
        return Second(
            number,
            transactions,
            transactions * self._queries,
            retries=float(last.sums[2] - first.sums[2]) / seconds,
            p95_ms=latency.p95_ms if latency else None,
        )

    def _await_waiting(self) -> None:
        """Waits until every thread waits at the gate."""
        deadline = time.monotonic() + GRACE_SECONDS
        slots = self._words[HEAD:].reshape(-1, SLOT)
        while not slots[:, 0].all():
            self._require_alive()
            if time.monotonic() > deadline:
                raise LabError(f"sysbench on {self._target.name} did not end in time")
            time.sleep(POLL_SECONDS)

    def _require_alive(self) -> None:
        if self._process.poll() is not None:
            self._output.seek(0)
            raise failure(self._target, self._output.read())

    def _stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGSTOP)


def _latencies(first: _Look, last: _Look) -> Histogram:
    """Latencies of the transactions between two snapshots; the maximum is a bucket's edge."""
    found = Histogram()
    counts = (last.sums - first.sums)[FIRST_BUCKET:]
    found.counts = {int(bucket): int(counts[bucket]) for bucket in np.flatnonzero(counts)}
    found.total_us = float(last.sums[3] - first.sums[3])
    found.max_us = found.edge_us(max(found.counts, default=0))
    return found
