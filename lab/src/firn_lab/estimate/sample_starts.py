"""Start positions of runs: values of a column, and conditions on the columns of an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from firn_lab.estimate.schema import Column, quoted
from firn_lab.estimate.values import is_integer, is_text, variable

# Number of characters that a start value has after the common prefix of all keys.
CHARACTERS = 5
PROBES = 24
_TIMES = ("timestamp", "date", "datetime")
_STRINGS = ("char", "varchar", "binary", "varbinary")


def compared(column: Column) -> str:
    """The right side of a comparison with the column for which the server can use an index."""
    if is_text(column):
        return f"CONVERT(%s USING {column.charset}) COLLATE {column.collation}"
    return "FROM_UNIXTIME(%s)" if column.kind == "timestamp" else "%s"


def after(parts: Sequence[tuple[Column, int | None, Any]]) -> tuple[str, list[Any]]:
    """A condition for entries at or after these values in index order."""
    (column, prefix, value), *rest = parts
    name, right = quoted(column.name), compared(column)
    if is_integer(column) and value is not None:
        value = int(value)
    # An index over a prefix of a column orders entries only by that prefix. The later columns are
    # unordered within equal prefixes, so they cannot be part of the condition.
    more = after(rest) if rest and prefix is None else None
    if value is None:
        if more is None:
            return "TRUE", []
        return f"({name} IS NOT NULL OR ({name} IS NULL AND {more[0]}))", more[1]
    if more is None:
        return f"{name} >= {right}", [value]
    return f"({name} > {right} OR ({name} = {right} AND {more[0]}))", [value, value, *more[1]]


def has_places(column: Column) -> bool:
    """Whether `between` can interpolate values of the column."""
    return is_integer(column) or column.kind in (*_TIMES, *_STRINGS)


def between(
    column: Column, low: Any, high: Any, places: Sequence[float], key_at: Callable[[Any], Any]
) -> list[Any] | None:
    """Distinct values at fractions (0 to 1) of the distance from `low` to `high`, ascending.

    The result is None if values of the column's type have no distance. `key_at` returns the first
    stored value at or after its argument.
    """
    if is_integer(column):
        span = int(high) - int(low)
        return sorted({int(low) + int(span * place) for place in places})
    if column.kind == "timestamp":
        span_seconds = float(high) - float(low)
        return sorted({float(low) + span_seconds * place for place in places})
    if column.kind in _TIMES:
        first, last = (datetime.fromisoformat(str(value)) for value in (low, high))
        steps = [(last - first).total_seconds() * place for place in places]
        return [str(first + timedelta(seconds=step)) for step in steps]
    if column.kind in _STRINGS:
        return _strings(variable(low), variable(high), places, key_at)
    return None


def _strings(
    low: bytes, high: bytes, places: Sequence[float], key_at: Callable[[Any], Any]
) -> list[Any]:
    """Interpolated strings that use only characters that occur in keys.

    Without that restriction most start values could fall into gaps: in hexadecimal numbers no key
    lies between "9" and "a".
    """
    common = 0
    while common < min(len(low), len(high)) and low[common] == high[common]:
        common += 1
    seen = {*low[common:], *high[common:]}
    first, last = (
        int.from_bytes(each[common : common + 2].ljust(2, b"\0")) for each in (low, high)
    )
    for n in range(PROBES):
        probe = (first + (last - first) * n // PROBES).to_bytes(2)
        key = key_at(low[:common] + probe)
        seen.update(variable(key)[common:] if key is not None else b"")
    letters = sorted(seen)
    if not letters:
        return [low]

    def rank(value: bytes) -> int:
        number = 0
        for n in range(common, common + CHARACTERS):
            number *= len(letters)
            if n < len(value):
                number += letters.index(value[n])
        return number

    bottom, top = rank(low), rank(high)
    found = []
    for place in places:
        number = bottom + int((top - bottom) * place)
        text = bytearray()
        for _ in range(CHARACTERS):
            number, letter = divmod(number, len(letters))
            text.append(letters[letter])
        found.append(low[:common] + bytes(reversed(text)))
    return sorted(set(found))
