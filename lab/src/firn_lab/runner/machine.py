"""Properties of the machine of a run, and its free space."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

from firn_lab.errors import DiskFull


def machine(directory: Path) -> dict[str, Any]:
    """Processor, cores, memory, kernel, and the file system of the data."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": _kib("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "file_system": file_system(directory),
        "busy_cores": round(busy_cores(), 2),
    }


def busy_cores(seconds: float = 1.0) -> float:
    """Average number of busy processors over the next seconds, including the host's steal time."""
    before = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - before) / seconds


def busy_seconds() -> float:
    """Busy seconds of all processors since boot. Guest time is part of user time."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def available_memory_bytes() -> int:
    """Memory that is available without swapping."""
    return _kib("/proc/meminfo", "MemAvailable")


def file_system(directory: Path) -> str:
    """Type and device of the file system that holds the directory."""
    directory = directory.resolve()
    best = ("", "")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if directory.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, f"{kind} on {device}")
    return best[1]


def require_space(directory: Path, bytes_min: int) -> None:
    """Raises DiskFull if less than `bytes_min` is free."""
    free = shutil.disk_usage(directory).free
    if free < bytes_min:
        raise DiskFull(
            f"the disk is nearly full: {free >> 20} MiB are free in {directory}, the run stops "
            f"at {bytes_min >> 20} MiB; make room, or name another place with --dir"
        )


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _kib(file: str, name: str) -> int:
    return int((_field(file, name) or "0 kB").split()[0]) * 1024
