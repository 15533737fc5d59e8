"""Starts processes that never outlive the lab.

Servers and load generators run in sessions of their own, so that Ctrl-C reaches only the lab,
which then stops them in order. If the lab itself is killed, a guard kills the remaining processes
with all their descendants. The guard is a small process that waits for the end of a pipe. It walks
the process tree instead of killing a process group, because PostgreSQL's children leave the group
of their parent.
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

from firn_lab.errors import UsageError

# The program of the guard, a process that ends the lab's servers and load generators if the lab
# itself is killed. It reads lines `+PID` and `-PID` from a pipe, which put a process on its list
# and take it off; at the end of the pipe it kills the processes on the list with their descendants.
# The start time distinguishes a process from a later one with the same number.
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
    """Handle of the guard process, which starts with the first watched process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def watch(self, pid: int) -> None:
        """Has the guard kill this process when the lab ends."""
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
        """Takes a process off the guard's list after it ended and was reaped."""
        self._tell(f"-{pid}")

    def leave(self) -> None:
        """Closes a forked child's copy of the pipe.

        A forked child of the lab must call this: while it holds the pipe open, the guard does not
        see the end of the lab.
        """
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()


GUARD = Guard()

# Descriptors of this process besides those of the connections that a workload opens.
OTHER_DESCRIPTORS = 500


def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process in its own session, watched by the guard."""
    process: subprocess.Popen[Any] = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, **options
    )
    GUARD.watch(process.pid)
    return process


def run(command: list[str], **options: Any) -> tuple[int, str]:
    """Runs a program to its end, watched by the guard; returns its exit code and its output."""
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
    """Waits for the process to end. Raises TimeoutExpired after `seconds_max`."""
    code = process.wait(seconds_max)
    GUARD.forget(process.pid)
    return code


def end(process: subprocess.Popen[Any]) -> None:
    """Kills the process and its descendants, and reaps it. A process that has ended is no error."""
    signal_all(tree(process.pid), signal.SIGKILL)
    reap(process)


def tree(pid: int) -> list[int]:
    """The ids of the process and of its descendants."""
    pids = [pid]
    for parent in pids:
        for task in _listing(Path(f"/proc/{parent}/task")):
            try:
                children = (task / "children").read_text().split()
            except OSError:
                continue  # The task has ended.
            pids.extend(int(child) for child in children if int(child) not in pids)
    return pids


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to each process and skips those that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def allow_descriptors(count: int) -> None:
    """Raises this process's limit on open files, which servers started later inherit.

    Raises UsageError if that is not permitted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{count} descriptors are needed, {hard} are allowed (ulimit -Hn): {error}"
            ) from error


def await_stopped(pids: Iterable[int], seconds_max: float) -> None:
    """Waits until no thread of the processes is running or in an uninterruptible wait."""
    deadline = time.monotonic() + seconds_max
    for pid in pids:
        for task in _listing(Path(f"/proc/{pid}/task")):
            while _state(task) not in "TtZX" and time.monotonic() < deadline:
                time.sleep(0.001)


def _state(task: Path) -> str:
    """The kernel's state letter of a thread; X after its end."""
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
    """Bytes that a process read from and wrote to devices; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in lines)
    written = int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])
    return int(fields["read_bytes"]), written


def reaped_seconds() -> float:
    """Processor seconds of the lab's own children that were reaped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes and of their reaped children.

    The clock of each process gives its own time in nanoseconds. The children's time has the
    resolution of a clock tick.
    """
    seconds, ticks = 0.0, 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(int(field) for field in fields[13:15])
            # The clock id of the process, computed as clock_getcpuclockid(3) does.
            seconds += time.clock_gettime(~pid << 3 | 2)
    return seconds + ticks / os.sysconf("SC_CLK_TCK")
