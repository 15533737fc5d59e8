"""Processes that the lab starts, and that never outlive it.

Servers and load generators run in sessions of their own, so that Ctrl-C reaches the lab alone,
which stops them in order. Should the lab be killed, a guard (a small process that waits for the end
of a pipe) kills what is left, with all descendants: PostgreSQL's children leave their parent's
group.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Lines `+PID` and `-PID` come in; when the pipe ends, what is still on the list is killed. The
# start time tells a process from a later one with the same number.
_GUARD = r"""
import os, signal, sys
def stat(pid):
    try:
        f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        return int(f[1]), f[19]
    except (OSError, IndexError):
        return None
roots = {}
for line in sys.stdin:
    pid = int(line[1:])
    if line[0] == "+": roots[pid] = stat(pid)
    else: roots.pop(pid, None)
doomed = [p for p, s in roots.items() if s and (stat(p) or s)[1] == s[1]]
parents = {int(n): stat(n) for n in os.listdir("/proc") if n.isdigit()}
for pid in doomed:
    doomed.extend(c for c, s in parents.items() if s and s[0] == pid and c not in doomed)
for pid in doomed:
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
"""


class Guard:
    """Started with the first process, lives as long as the lab."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def watch(self, pid: int) -> None:
        """Kill it when the lab ends."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """It has ended and was reaped."""
        self._tell(f"-{pid}")

    def leave(self) -> None:
        """Called by a forked child of the lab: while it held the pipe, the lab's end would not be
        the pipe's end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()


GUARD = Guard()


def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process in a session of its own, under guard."""
    process: subprocess.Popen[Any] = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, **options
    )
    GUARD.watch(process.pid)
    return process


def run(command: list[str], **options: Any) -> tuple[int, str]:
    """Runs a program to its end, under guard: its status, and what it said."""
    with tempfile.TemporaryFile("w+") as output:
        process = start(command, stdout=output, stderr=subprocess.STDOUT, **options)
        try:
            code = reap(process)
        except BaseException:
            end(process)
            raise
        output.seek(0)
        return code, output.read()


def reap(process: subprocess.Popen[Any], seconds_max: float | None = None) -> int:
    """Waits for its end; TimeoutExpired as of `wait`."""
    code = process.wait(seconds_max)
    GUARD.forget(process.pid)
    return code


def end(process: subprocess.Popen[Any]) -> None:
    """SIGKILL for it and its descendants, and reaps it. Never raises for what has ended."""
    signal_all(tree(process.pid), signal.SIGKILL)
    reap(process)


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    pids = [pid]
    for parent in pids:
        for task in _listing(Path(f"/proc/{parent}/task")):
            try:
                children = (task / "children").read_text().split()
            except OSError:
                continue  # It has ended.
            pids.extend(int(child) for child in children if int(child) not in pids)
    return pids


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def await_stopped(pids: Iterable[int], seconds_max: float) -> None:
    """Waits until no thread of the processes runs or waits for a disk any more."""
    deadline = time.monotonic() + seconds_max
    for pid in pids:
        for task in _listing(Path(f"/proc/{pid}/task")):
            while _state(task) not in "TtZX" and time.monotonic() < deadline:
                time.sleep(0.001)


def _state(task: Path) -> str:
    """The kernel's letter; X when it has ended."""
    try:
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "X"


def _listing(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def process_io(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to devices by a process; None when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in lines)
    written = int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])
    return int(fields["read_bytes"]), written


def reaped_seconds() -> float:
    """Processor time of the lab's own children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes, with that of their children that were reaped. The own
    time comes from the clock of the process, in nanoseconds; that of the children in ticks."""
    seconds, ticks = 0.0, 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(int(field) for field in fields[13:15])
            # clock_getcpuclockid(3) of the process.
            seconds += time.clock_gettime(~pid << 3 | 2)
    return seconds + ticks / os.sysconf("SC_CLK_TCK")
