"""Large values: rows with a value of 512 KiB, read and replaced by primary key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed, UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import (
    SqlSession,
    create_table,
    digest,
    md5,
    number_option,
    sized_option,
    text,
)
from firn_lab.workloads.workload import WORKLOADS, Params

ACCESSES = {"select": ("select",), "update": ("update",), "both": ("select", "update")}
# A value consists of pieces of this size, either random bytes or text.
PIECE_BYTES = 4096


def value(random: Random, length: int, share: float) -> bytes:
    """A value of which about `share` is random and incompressible; the rest repeats a line."""
    line = (text(random, 60) + "\n").encode()
    lines = (line * (PIECE_BYTES // len(line) + 1))[:PIECE_BYTES]
    pieces = []
    for _ in range(0, length, PIECE_BYTES):
        pieces.append(random.randbytes(PIECE_BYTES) if random.random() < share else lines)
    return b"".join(pieces)[:length]


class BlobsSession(SqlSession):
    """Reads and updates values, and checks each value that it reads against its digest."""

    def __init__(self, connection: Any, rows: int, length: int, share: float, access: str) -> None:
        super().__init__(connection)
        self._rows = rows
        self._length = length
        self._share = share
        self._kinds = ACCESSES[access]

    def choose(self, random: Random) -> Callable[[], Done]:
        key = random.randint(1, self._rows)
        if random.choice(self._kinds) == "select":
            return lambda: self._select(key)
        data = value(random, self._length, self._share)
        return lambda: self._update(key, data)

    def _select(self, key: int) -> Done:
        rows = self.rows("SELECT digest, data FROM blobs WHERE id = %s", (key,))
        if len(rows) != 1 or digest(rows[0][1]) != rows[0][0]:
            raise CheckFailed(f"blob {key} is not the one that was written")
        return Done("select", 1)

    def _update(self, key: int, data: bytes) -> Done:
        self.rows(
            "UPDATE blobs SET digest = %s, data = %s WHERE id = %s", (digest(data), data, key)
        )
        return Done("update", 1)


@WORKLOADS.register("blobs")
class Blobs(SessionWorkload):
    summary = "large values, selected and updated by primary key"
    # random: the incompressible fraction of each value.
    options = {"rows": "1000", "cache": "", "bytes": "524288", "random": "0.5", "access": "both"}
    warm_reads = {"blobs": "SUM(LENGTH(data))"}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.length = round(number_option(self, "bytes", 1, 64 << 20))
        self.rows = sized_option(self, self.length)
        self.share = number_option(self, "random", 0, 1)
        if self.option("access") not in ACCESSES:
            raise UsageError(f"{name}: access is one of {', '.join(ACCESSES)}")

    @property
    def about_bytes(self) -> float:
        return 1.0 * self.rows * self.length

    @property
    def dataset(self) -> str:
        size = f"rows={self.rows} bytes={self.length} random={self.share:g}"
        return f"blobs {size} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        kind = "LONGBLOB" if target.dialect == "mysql" else "BYTEA"
        columns = (
            f"id INT NOT NULL, digest CHAR(32) NOT NULL, data {kind} NOT NULL, PRIMARY KEY (id)"
        )
        create_table(target, "blobs", columns)

    def shares(self) -> list[Share]:
        return shares("blobs", self.rows, self._values, 50)

    def _values(self, numbers: range) -> Iterator[Row]:
        for number in numbers:
            data = value(Random(f"blob {self.params.seed} {number}"), self.length, self.share)
            yield number, digest(data), data

    def session(self, target: Target) -> Callable[[int], BlobsSession]:
        access = self.option("access")
        return lambda number: BlobsSession(
            target.connect(), self.rows, self.length, self.share, access
        )

    def check(self, target: Target) -> list[str]:
        """Checks every value against its digest."""
        rows = target.query(
            f"SELECT id FROM blobs WHERE {md5(target, 'data')} <> digest ORDER BY id"
        )
        wrong = [f"blob {key} does not fit its digest" for (key,) in rows[:5]]
        count = target.query("SELECT COUNT(*) FROM blobs")[0][0]
        if count != self.rows:
            wrong.append(f"{count} blobs, not {self.rows}")
        return wrong
