"""Where runs of rows start: values of a column, and conditions on the columns of an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from firn_lab.estimate.schema import Column, quoted
from firn_lab.estimate.values import is_integer, is_text, variable

# Characters of a string that a start has behind what all keys begin with.
CHARACTERS = 5
PROBES = 24
_TIMES = ("timestamp", "date", "datetime")
_STRINGS = ("char", "varchar", "binary", "varbinary")


def compared(column: Column) -> str:
    """The right side of a comparison that an index can be used for."""
    if is_text(column):
        return f"CONVERT(%s USING {column.charset}) COLLATE {column.collation}"
    return "FROM_UNIXTIME(%s)" if column.kind == "timestamp" else "%s"


def after(parts: Sequence[tuple[Column, int | None, Any]]) -> tuple[str, list[Any]]:
    """The condition that an entry lies at or behind these values, in the index's order."""
    (column, prefix, value), *rest = parts
    name, right = quoted(column.name), compared(column)
    if is_integer(column) and value is not None:
        value = int(value)
    # A prefix orders by its characters only.
    more = after(rest) if rest and prefix is None else None
    if value is None:
        if more is None:
            return "TRUE", []
        return f"({name} IS NOT NULL OR ({name} IS NULL AND {more[0]}))", more[1]
    if more is None:
        return f"{name} >= {right}", [value]
    return f"({name} > {right} OR ({name} = {right} AND {more[0]}))", [value, value, *more[1]]


def has_places(column: Column) -> bool:
    """Whether `between` finds values of the column."""
    return is_integer(column) or column.kind in (*_TIMES, *_STRINGS)


def between(
    column: Column, low: Any, high: Any, places: Sequence[float], key_at: Callable[[Any], Any]
) -> list[Any] | None:
    """Values at places (0 to 1) between two, ascending and each once. None where that has no
    meaning. `key_at` is the first value of the column at or behind one."""
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
    """Of characters that keys have: between 9 and a no hexadecimal number begins."""
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
