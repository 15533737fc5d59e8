"""Tables and rows of `volume`: those of sysbench, written as lines for LOAD DATA.

The digits are random, as sysbench's are, so that an engine can compress a row to 42 % at best.
NumPy draws them, because the client shares the processors with the server.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firn_lab.errors import UsageError

# Groups of eleven digits in the columns c and pad.
_C_GROUPS, _PAD_GROUPS = 10, 5
_NUMBER_DIGITS = 10
C_BYTES, PAD_BYTES = 12 * _C_GROUPS - 1, 12 * _PAD_GROUPS - 1
# The user's bytes of a row: two integers, c and pad.
ROW_BYTES = 4 + 4 + C_BYTES + PAD_BYTES
ROWS_MAX = 2**31 - 1

_Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Table:
    """A table with its number of rows; ids are those from 1 on."""

    name: str
    rows: int

    def create(self, suffix: str) -> str:
        return (
            f"CREATE TABLE {self.name} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, "
            "c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, KEY k_1 (k)) "
            f"DEFAULT CHARSET=latin1{suffix}"
        )


@dataclass(frozen=True)
class Tables:
    """Small tables of equal size, and large ones that share the rest of the bytes."""

    small: tuple[Table, ...]
    large: tuple[Table, ...]

    @property
    def all(self) -> tuple[Table, ...]:
        return self.small + self.large

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.all)

    @property
    def user_bytes(self) -> int:
        return self.rows * ROW_BYTES


def plan_tables(user_bytes: float, tables: int, large: int, small_rows: int) -> Tables:
    """Divides the bytes among the tables. Raises UsageError if that is impossible."""
    if not 0 < large <= tables:
        raise UsageError(f"{large} large tables of {tables}")
    small = [Table(f"small{number}", small_rows) for number in range(1, tables - large + 1)]
    left = user_bytes - len(small) * small_rows * ROW_BYTES
    each = int(left / large / ROW_BYTES)
    if each < small_rows:
        raise UsageError(
            f"{len(small):,} tables of {small_rows:,} rows take "
            f"{len(small) * small_rows * ROW_BYTES / 1e9:.2f} GB: nothing is left for large ones"
        )
    if each > ROWS_MAX:
        raise UsageError(f"a large table would have {each:,} rows: name more with --large")
    return Tables(
        tuple(small), tuple(Table(f"large{number}", each) for number in range(1, large + 1))
    )


def lines(table: Table, first: int, count: int) -> tuple[bytes, int]:
    """Rows `first` to `first + count - 1` of a table as lines, and the sum of their column k."""
    draws = np.random.default_rng((zlib.crc32(table.name.encode()), first))
    k = draws.integers(1, table.rows + 1, count)
    columns = (
        _number(np.arange(first, first + count)),
        _number(k),
        _groups(draws, count, _C_GROUPS),
        _groups(draws, count, _PAD_GROUPS),
    )
    tab, end = (np.full((count, 1), ord(text), np.uint8) for text in "\t\n")
    parts = [part for column in columns for part in (column, tab)]
    return np.concatenate([*parts[:-1], end], axis=1).tobytes(), int(k.sum())


def _number(values: NDArray[np.int64]) -> _Bytes:
    """The numbers as digits, with zeros in front."""
    digits = np.empty((len(values), _NUMBER_DIGITS), np.uint8)
    for place in range(_NUMBER_DIGITS - 1, -1, -1):
        values, rest = np.divmod(values, 10)
        digits[:, place] = rest + ord("0")
    return digits


def _groups(draws: Any, count: int, groups: int) -> _Bytes:
    """Groups of eleven random digits with dashes between them."""
    text: _Bytes = draws.integers(ord("0"), ord("9") + 1, (count, 12 * groups - 1), np.uint8)
    text[:, 11::12] = ord("-")
    return text
