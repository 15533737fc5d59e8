"""The phases of a server's life: load, updates, reads, stops and starts, and a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from firn_lab.errors import CheckFailed
from firn_lab.processes import process_io, processor_seconds
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.volume.load import load
from firn_lab.volume.read import ALL_ROWS, ONE_ROW, sums
from firn_lab.volume.rows import Tables
from firn_lab.volume.samples import Samples, files
from firn_lab.volume.updates import Updates, require_sums

REST_SECONDS_MAX = 1800.0


@dataclass(frozen=True)
class Phase:
    """A phase with its begin and end, seconds since the first sample.

    Processor time and bytes that reached the device are the server's; they are missing where the
    phase starts or ends its process.
    """

    name: str
    began: float
    ended: float
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def raw(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.seconds}


class Life:
    """One server from the first table to the last stop. `phases` are those that are over."""

    def __init__(
        self,
        target: MySqlTarget,
        tables: Tables,
        sessions: int,
        update_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._target = target
        self._tables = tables
        self._threads = sessions
        self._seconds = update_seconds
        self._say = say
        self._phase = ""
        self._samples: Samples | None = None
        # The sum of the column k of all rows lies between these.
        self._least = self._most = 0
        self.phases: list[Phase] = []

    def run(self, samples: Path) -> Samples:
        """Runs all phases; returns the samples, which are also in the file.

        Raises CheckFailed if a row or an answered update is lost.
        """
        target, tables = self._target, self._tables
        target.start()
        target.create_database()
        with Samples(target, samples, lambda: self._phase) as self._samples:
            for name, some in (("small", tables.small), ("large", tables.large)):
                with self._in(f"load the {name} tables") as notes:
                    k_sum = load(target, some, lambda done: None)
                    notes["rows"] = sum(table.rows for table in some)
                self._least, self._most = self._least + k_sum, self._most + k_sum
            self._rest("rest after the load")
            self._check("check")
            self._update()
            self._rest("rest after updates")
            with self._in("read a row of each table"):
                self._read_each()
            with self._in("stop"):
                target.stop()
            with self._in("start"):
                target.start()
            with self._in("read a row of each table again"):
                self._read_each()
            self._update_and_kill()
            with self._in("start after the kill"):
                target.start()
            self._check("check after the kill")
            self._rest("rest in the end")
            with self._in("stop in the end"):
                target.stop()
        return self._samples

    def _read_each(self) -> None:
        count, _ = sums(self._target, self._tables.all, ONE_ROW)
        if count != len(self._tables.all):
            raise CheckFailed(f"{count} tables of {len(self._tables.all)} have a first row")

    def _update(self) -> None:
        updates = Updates(self._target, self._tables, self._threads, 1)
        try:
            with self._in("update") as notes:
                updates.begin(self._seconds)
                updates.wait(self._seconds)
                notes["updates"] = updates.answered
        finally:
            updates.end()
        self._least, self._most = self._least + updates.answered, self._most + updates.sent

    def _update_and_kill(self) -> None:
        """Kills the server in the midst of the updates."""
        updates = Updates(self._target, self._tables, self._threads, 2)
        try:
            with self._in("update, then kill -9") as notes:
                updates.begin(10 * self._seconds)
                self._samples_wait(self._seconds)
                self._target.kill()
                updates.wait(self._seconds, may_lose=True)
                notes["updates"] = updates.answered
        finally:
            updates.end()
        self._least, self._most = self._least + updates.answered, self._most + updates.sent

    def _samples_wait(self, seconds: float) -> None:
        """Waits while the server lives."""
        assert self._samples is not None
        until = self._samples.at() + seconds
        while self._samples.at() < until:
            self._target.require_alive()
            self._samples.pause(0.1)

    def _check(self, name: str) -> None:
        """Reads all rows, and narrows the bounds of the sum to what is there."""
        with self._in(name) as notes:
            found = sums(self._target, self._tables.all, ALL_ROWS)
            require_sums(found, self._tables.rows, self._least, self._most)
            notes["unanswered_but_there"] = found[1] - self._least
        self._least = self._most = found[1]

    def _rest(self, name: str) -> None:
        with self._in(name) as notes:
            rest = self._target.rest(REST_SECONDS_MAX)
            notes["owes"] = rest.owes
            notes["table_bytes"] = self._target.data_bytes()
            assert self._target.data_dir is not None
            notes["files"], notes["files_bytes"] = files(self._target.data_dir)
            notes["bytes_per_user_byte"] = round(
                (notes["table_bytes"] or 0) / self._tables.user_bytes, 3
            )

    @contextlib.contextmanager
    def _in(self, name: str) -> Iterator[dict[str, Any]]:
        """A phase; its body may add notes."""
        assert self._samples is not None
        self._phase, began = name, self._samples.at()
        pid, before = self._target.pid, self._used()
        notes: dict[str, Any] = {}
        yield notes
        after = self._used()
        if before is not None and after is not None and self._target.pid == pid:
            notes["cpu_seconds"] = round(after[0] - before[0], 2)
            notes["device_written_bytes"] = after[1] - before[1]
        phase = Phase(name, began, self._samples.at(), notes)
        self.phases.append(phase)
        self._say(f"{phase.seconds:8.1f} s  {name}  {_text(notes)}")

    def _used(self) -> tuple[float, int] | None:
        pid = self._target.pid
        io = None if pid is None else process_io(pid)
        return None if pid is None or io is None else (processor_seconds([pid]), io[1])


def _text(notes: dict[str, Any]) -> str:
    """The notes for people, without those that say nothing."""
    shown = {
        name: f"{value:,}" if isinstance(value, int) else str(value)
        for name, value in notes.items()
        if value not in ("", None)
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())
