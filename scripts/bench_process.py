"""Resource use of a server process: processor time, memory, bytes written to the device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Used:
    """Processor time, and bytes written to the device, since a process started."""

    processor_seconds: float
    written_bytes: int


def used(pid: int) -> Used:
    """Resources that the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    counters = Path(f"/proc/{pid}/io").read_text().splitlines()
    io = dict(line.split(": ") for line in counters)
    written = int(io["write_bytes"]) - int(io["cancelled_write_bytes"])
    return Used(ticks / os.sysconf("SC_CLK_TCK"), written)


def device_written_bytes(path: Path) -> int:
    """Bytes that the device of `path` was asked to write since boot, by all processes.

    On a machine without other work this is the exact cost of an engine: it includes the file
    system's journal and excludes data that never left memory.
    """
    device = path.stat().st_dev
    fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(fields[6]) * 512


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """Resident memory now, or its peak since the last `forget_peak` (`VmHWM`)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")


def forget_peak(pid: int) -> None:
    """Resets the peak of the resident memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def allocated_bytes(*paths: Path) -> int:
    """Bytes allocated to these files and directories; holes take no space."""
    total = 0
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path]
        for file in files:
            try:
                status = file.stat()
            except FileNotFoundError:
                continue  # The engine deleted the file meanwhile.
            if file.is_file():
                total += status.st_blocks * 512
    return total
