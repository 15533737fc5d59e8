"""A server of the lab's own: a process and a directory that the lab may freeze, kill and remove."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

from firn_lab import processes
from firn_lab.errors import TargetDied, TargetError
from firn_lab.targets.target import RestState, Target

START_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 300.0
# A server that is idle for this long has no work left. A third of the time suffices if the engine
# itself reports that it has no work. The time exceeds the two seconds after which an idle FIRN
# begins to compact.
QUIET_SECONDS = 3.0
# Limit on the wait for SIGSTOP. A thread stops only when it leaves the kernel, and it may wait for
# the disk there.
FREEZE_SECONDS_MAX = 60.0
# An idle server uses less than this fraction of a core.
QUIET_CORES = 0.1
# An idle server writes fewer bytes than this per second.
QUIET_BYTES = 64 << 10
# Longest path that a socket gets. The kernel's limit is 107 characters.
SOCKET_LENGTH_MAX = 100


class PrivateTarget(Target):
    """A server process of the lab.

    Invariant: `_process` is not None exactly while a process started here was not reaped.
    """

    def __init__(self, name: str, spec: str, scratch: Path) -> None:
        self.name = name
        self.spec = spec
        self.directory = (scratch / name.replace(":", "-").replace("/", "-")).resolve()
        self._process: subprocess.Popen[Any] | None = None
        self._frozen = False
        self._sockets: Path | None = None

    @property
    def pid(self) -> int | None:
        process = self._process  # Copy the attribute: another thread may be restarting the server.
        return process.pid if process is not None else None

    @property
    def pids(self) -> list[int]:
        pid = self.pid
        return processes.tree(pid) if pid is not None else []

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def error_log(self) -> Path:
        return self.directory / "error.log"

    @property
    def socket_dir(self) -> Path:
        """The directory of the socket: the server's own, unless the path would be too long."""
        if len(str(self.directory)) <= SOCKET_LENGTH_MAX - len("/.s.PGSQL.5432.lock"):
            return self.directory
        if self._sockets is None:
            self._sockets = Path(tempfile.mkdtemp(prefix="firn-lab-"))
            self._sockets.chmod(0o777)
        return self._sockets

    @abstractmethod
    def _create(self) -> None:
        """Creates the data directory, which does not exist."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The server's command line."""

    def _process_options(self) -> dict[str, Any]:
        """Additional options for Popen."""
        return {}

    def start(self) -> None:
        if self._process is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.data_dir.exists():
            self._create()
        with self.error_log.open("ab") as log:
            self._process = processes.start(
                self._command(), stdout=log, stderr=log, **self._process_options()
            )
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            self.require_alive()
            try:
                self.connect("").close()
                return
            except Exception as error:
                if time.monotonic() > deadline:
                    self.kill()
                    raise TargetError(f"{self.name} does not answer: {error}") from error
                time.sleep(0.05)

    def require_alive(self) -> None:
        if self._process is None:
            raise TargetDied(f"{self.name} is not running")
        code = self._process.poll()
        if code is not None:
            processes.end(self._process)
            self._process = None
            raise TargetDied(
                f"{self.name}: the server ended with {code}; its log ends with\n{self.log_tail()}"
            )

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the error log, for messages."""
        if not self.error_log.exists():
            return "(no log)"
        return "\n".join(self.error_log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        if self._process is None:
            return
        self.thaw()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = processes.reap(self._process, STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TargetError(
                f"{self.name} did not stop within {STOP_SECONDS_MAX:.0f} s and was killed"
            ) from None
        self._process = None
        if code != 0:
            raise TargetError(f"{self.name} ended with {code} at shutdown\n{self.log_tail()}")

    def kill(self) -> None:
        """Also ends a frozen server: SIGKILL needs no SIGCONT."""
        if self._process is not None:
            processes.end(self._process)
            self._process = None
            self._frozen = False

    def freeze(self) -> None:
        if not self._frozen and self._process is not None:
            # Set the flag before stopping the processes. If the lab is interrupted in between, some
            # are stopped already, and `thaw` must let them run again.
            self._frozen = True
            pids = self.pids
            processes.signal_all(pids, signal.SIGSTOP)
            processes.await_stopped(pids, FREEZE_SECONDS_MAX)

    def thaw(self) -> None:
        if self._frozen:
            processes.signal_all(self.pids, signal.SIGCONT)
            self._frozen = False

    def destroy(self) -> None:
        with contextlib.suppress(Exception):
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None

    def owes(self) -> str | None:
        """The engine's pending work as text; "" means none, None means that it does not report."""
        return None

    def _await_quiet(self, seconds_max: float) -> RestState:
        """Waits until the engine has no pending work and the server is idle."""
        began = time.monotonic()
        step = min(1.0, QUIET_SECONDS / 3)
        quiet = 0.0
        while True:
            busy = self._busy(step)
            told = None if busy else self.owes()
            busy = busy or told or ""
            quiet = 0.0 if busy else quiet + step
            seconds = time.monotonic() - began
            if quiet >= (QUIET_SECONDS if told is None else QUIET_SECONDS / 3):
                return RestState(seconds)
            if seconds >= seconds_max:
                return RestState(seconds, busy or "it was quiet for a moment only")

    def _busy(self, seconds: float) -> str:
        """The server's activity within the next seconds, from the kernel's counters; "" if idle."""
        cores, written = processes.processor_seconds(self.pids), self._written_bytes()
        time.sleep(seconds)
        self.require_alive()
        if processes.processor_seconds(self.pids) - cores > QUIET_CORES * seconds:
            return "it computes"
        return "it writes" if self._written_bytes() - written > QUIET_BYTES * seconds else ""

    def _written_bytes(self) -> int:
        counts = [processes.process_io(pid) for pid in self.pids]
        return sum(count[1] for count in counts if count is not None)


def allocated_bytes(directory: Path, pattern: str = "**/*") -> int:
    """Bytes allocated by the file system; holes of compressed pages take none."""
    total = 0
    for file in directory.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # The engine may delete it meanwhile.
            if file.is_file() and not file.is_symlink():
                total += file.stat().st_blocks * 512
    return total
