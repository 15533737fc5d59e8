"""Drives Debian's perf (linux-perf): records the machine, and reads the samples of a server.

It records all processors instead of the server's threads: per-thread counters miss new threads on
some kernels, and in a virtual machine without hardware counters the software clock that replaces
them stops with its thread.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firn_lab import processes
from firn_lab.errors import LabError

HERTZ = 997
ANSWER_SECONDS_MAX = 60.0
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True)
class Frame:
    """A function, or an address without a name, in `file`. `address` is an offset in the file."""

    address: int
    name: str
    file: str


@dataclass(frozen=True)
class Sample:
    """A sample of a process, innermost frame first. `weight`: the period that it represents."""

    pid: int
    weight: float
    frames: tuple[Frame, ...]


def require() -> str:
    """The path of perf, after a trial run. Raises LabError with the missing condition."""
    program = shutil.which("perf")
    if program is None:
        raise LabError("perf is not there: apt-get install linux-perf")
    with tempfile.TemporaryDirectory(prefix="firn-lab-") as directory:
        code, said = processes.run(
            [program, "record", "-a", "-q", "-g", "-o", f"{directory}/x", "--", "true"]
        )
    if code != 0:
        raise LabError(
            f"perf may not record here: {_reason(said)}; root may, and others after `sysctl "
            f"kernel.perf_event_paranoid=-1`{_level()}, unless the container or the machine's host "
            "forbids it"
        )
    return program


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip(" :")]
    return next((line for line in lines if "Error" not in line), "it says nothing")


def _level() -> str:
    try:
        return f" (it is {PARANOID.read_text().strip()})"
    except OSError:
        return ""


class Recording:
    """Samples all processors from `begin` to `end`.

    The constructor waits until perf is ready, which takes a while.
    """

    def __init__(self, file: Path) -> None:
        self._pipes = (file.with_suffix(".control"), file.with_suffix(".answers"))
        for pipe in self._pipes:
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
        command = [
            require(), "record", "-a", "-q", "-g", "-F", str(HERTZ), "-o", str(file), "-D", "-1",
            "--control", f"fifo:{self._pipes[0]},{self._pipes[1]}",
        ]  # fmt: skip
        # Open both ends of each pipe, so that neither this open nor perf's own blocks.
        self._control, self._answers = (os.open(pipe, os.O_RDWR) for pipe in self._pipes)
        self._process = processes.start(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._tell("ping")

    def begin(self) -> None:
        self._tell("enable")

    def end(self) -> None:
        """Stops the recording; perf writes the file."""
        try:
            if self._process.poll() is None:
                self._tell("stop")
            processes.reap(self._process, ANSWER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise LabError("perf did not end") from None
        finally:
            processes.end(self._process)
            for number in (self._control, self._answers):
                os.close(number)
            for pipe in self._pipes:
                pipe.unlink()

    def _tell(self, command: str) -> None:
        """Sends a command and waits for perf's acknowledgement."""
        os.write(self._control, f"{command}\n".encode())
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not select.select([self._answers], [], [], 0.1)[0]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"perf ended or did not answer ({command})")
        os.read(self._answers, 100)


def samples(file: Path, pids: Container[int]) -> list[Sample]:
    """Samples of these processes in a recording."""
    done = subprocess.run(
        [require(), "script", "-i", str(file), "-F", "pid,period,ip,sym,dso"],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise LabError(f"perf cannot read what it recorded: {_reason(done.stderr)}")
    return [each for each in parse(done.stdout.splitlines()) if each.pid in pids]


_HEAD = re.compile(r"^\s*(\d+)\s+(\d+)\s*:?\s*$")
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.*) \(([^()]*)\)$")


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """Parses the output of `perf script`.

    A sample is a line with process and period, a line for each frame, and an empty line.
    """
    pid, weight, frames = 0, 0.0, list[Frame]()
    for line in [*lines, ""]:
        head, frame = _HEAD.match(line), _FRAME.match(line)
        if head is not None:
            pid, weight = int(head[1]), float(head[2])
        elif frame is not None:
            frames.append(Frame(int(frame[1], 16), frame[2], frame[3]))
        elif not line.strip() and frames:
            yield Sample(pid, weight, tuple(frames))
            frames = []
