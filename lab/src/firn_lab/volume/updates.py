"""Updates of single rows, and the check that none that was answered is lost.

Each statement adds 1 to the column k of one row and replaces its column c. So the sum of k over all
tables is that of the load plus the number of updates. The sessions count in shared memory what they
send and what is answered, because the server may be killed under them.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from random import Random

import numpy as np
from numpy.typing import NDArray

from firn_lab.errors import CheckFailed, LabError
from firn_lab.sqlerrors import Meaning, meaning
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.volume.rows import C_BYTES, Tables
from firn_lab.workloads.child_processes import Child

_SENT, _ANSWERED = 0, 1
# Time after the end of the updates in which a session has to tell that it is done.
GRACE_SECONDS = 120.0


class Updates:
    """Sessions in processes of their own. Half of the updates meet large tables, half small ones.

    `sent` and `answered` count the statements of all sessions.
    """

    def __init__(self, target: MySqlTarget, tables: Tables, sessions: int, seed: int) -> None:
        """Connects the sessions."""
        self._counts: NDArray[np.int64] = np.frombuffer(
            mmap.mmap(-1, 16 * sessions), dtype=np.int64
        ).reshape(sessions, 2)
        self._sessions: list[Child] = []
        try:
            for number in range(sessions):
                random = Random(f"{seed} {number}")
                work = _session(target, tables, random, self._counts[number])
                self._sessions.append(Child("a session that updates", work))
            for each in self._sessions:
                each.receive()  # Wait until it is connected.
        except BaseException:
            self.end()
            raise

    @property
    def sent(self) -> int:
        return int(self._counts[:, _SENT].sum())

    @property
    def answered(self) -> int:
        return int(self._counts[:, _ANSWERED].sum())

    def begin(self, seconds: float) -> None:
        """Lets the sessions work for `seconds`."""
        for each in self._sessions:
            each.send(seconds)

    def wait(self, seconds_max: float, may_lose: bool = False) -> None:
        """Waits for the end of all sessions.

        Raises LabError if one has lost its connection, unless it may.
        """
        left = list(self._sessions)
        while left:
            ready = Child.ready(left, seconds_max + GRACE_SECONDS)
            if not ready:
                raise LabError("sessions that update are stuck")
            for each in ready:
                if each.receive() == "lost" and not may_lose:
                    raise LabError("a session that updates has lost its connection")
                left.remove(each)

    def end(self) -> None:
        """Kills the sessions that still run; repeated calls have no effect."""
        for each in self._sessions:
            each.end()
        self._sessions = []


def _session(
    target: MySqlTarget, tables: Tables, random: Random, counts: NDArray[np.int64]
) -> Callable[[Connection], None]:
    def work(pipe: Connection) -> None:
        connection = target.connect()
        cursor = connection.cursor()
        pipe.send("ready")
        until = time.monotonic() + pipe.recv()
        try:
            while time.monotonic() < until:
                table = random.choice(random.choice((tables.small or tables.large, tables.large)))
                value = f"{random.getrandbits(400):0{C_BYTES}d}"[-C_BYTES:]
                statement = f"UPDATE {table.name} SET k = k + 1, c = %s WHERE id = %s"
                counts[_SENT] += 1
                changed = cursor.execute(statement, (value, random.randint(1, table.rows)))
                if changed != 1:
                    raise LabError(f"an update of {table.name} changed {changed} rows")
                counts[_ANSWERED] += 1
        except Exception as error:
            if meaning(error) is not Meaning.LOST:
                raise
            pipe.send("lost")
        else:
            pipe.send("done")

    return work


def require_sums(found: tuple[int, int], rows: int, least: int, most: int) -> None:
    """Raises CheckFailed unless the counted rows and the sum of k are possible."""
    count, k_sum = found
    if count != rows:
        raise CheckFailed(f"{count:,} rows are there, {rows:,} were loaded")
    if not least <= k_sum <= most:
        raise CheckFailed(
            f"the sum of k is {k_sum:,}; {least:,} to {most:,} is possible: "
            + (f"{least - k_sum:,} updates are lost" if k_sum < least else "there are too many")
        )
