"""Samples of a server every second: memory, descriptors, threads, processor time, files.

A sample is a dictionary that becomes a line of JSON. Fields of a server that is down are missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from firn_lab.processes import processor_seconds
from firn_lab.targets.mysql import MySqlTarget

SECONDS = 1.0
# The files are looked at once in so many samples: there may be tens of thousands.
FILES_EVERY = 5
_MEMORY = "SELECT used_by, bytes, limit_bytes FROM information_schema.firn_memory"
_STATUS = {"VmRSS": "resident_bytes", "RssAnon": "anonymous_bytes", "Threads": "threads"}

Sample = dict[str, Any]


def parse_status(text: str) -> Sample:
    """Memory and threads of a /proc/PID/status."""
    found: Sample = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in _STATUS:
            number, *unit = value.split()
            found[_STATUS[name]] = int(number) * (1024 if unit == ["kB"] else 1)
    return found


def parse_memory(rows: Sequence[tuple[str, int, int | None]]) -> Sample:
    """FIRN_MEMORY: bytes by use, their total, and its limit."""
    uses = {name: int(size) for name, size, _ in rows}
    limit = next((limit for name, _, limit in rows if name == "total"), None)
    return {
        "memory_bytes": uses.pop("total"),
        "memory_limit": int(limit or 0),
        "memory": uses,
    }


def files(directory: Path) -> tuple[int, int]:
    """Number of files in a directory and below, and the bytes allocated to them."""
    count = size = 0
    below = [str(directory)]
    while below:
        with contextlib.suppress(OSError), os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                    continue
                with contextlib.suppress(OSError):  # The engine may remove it meanwhile.
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    count += 1
    return count, size


class Samples:
    """Context manager: a thread that appends a sample to a file every second, and keeps all."""

    def __init__(self, target: MySqlTarget, path: Path, phase: Callable[[], str]) -> None:
        self._target = target
        self._path = path
        self._phase = phase
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connection: Any = None
        self._began = time.monotonic()
        self.taken: list[Sample] = []

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()
        self._disconnect()

    def at(self) -> float:
        """Seconds since the first sample."""
        return time.monotonic() - self._began

    def pause(self, seconds: float) -> None:
        """Waits; returns at once when the samples are over."""
        self._over.wait(seconds)

    def _run(self) -> None:
        with self._path.open("w") as out:
            while not self._over.wait(SECONDS - self.at() % SECONDS):
                sample = self._sample()
                self.taken.append(sample)
                out.write(json.dumps(sample) + "\n")
                out.flush()

    def _sample(self) -> Sample:
        sample: Sample = {"at": round(self.at(), 2), "phase": self._phase()}
        pid = self._target.pid
        if pid is not None:
            with contextlib.suppress(OSError):
                process = Path(f"/proc/{pid}")
                sample |= parse_status((process / "status").read_text())
                sample["descriptors"] = len(os.listdir(process / "fd"))
                sample["cpu_seconds"] = round(processor_seconds([pid]), 2)
            sample |= self._memory()
        if len(self.taken) % FILES_EVERY == 0:
            sample["files"], sample["files_bytes"] = files(self._target.data_dir)
        return sample

    def _memory(self) -> Sample:
        """FIRN's account of its memory; empty for other engines and while the server is down."""
        if self._target.engine != "firn":
            return {}
        try:
            if self._connection is None:
                self._connection = self._target.connect("", connect_timeout=1, read_timeout=10)
            with self._connection.cursor() as cursor:
                cursor.execute(_MEMORY)
                return parse_memory(cursor.fetchall())
        except Exception:
            # The server starts, stops or was killed.
            self._disconnect()
            return {}

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
