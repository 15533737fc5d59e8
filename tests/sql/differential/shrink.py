"""Reduces a failing log to a few statements that still fail."""

from __future__ import annotations

import time

from .pair import Pair
from .program import Failure


def shrink(pair: Pair, failure: Failure, seconds_max: float) -> Failure:
    """Removes ever smaller pieces of the log while the engines still differ in the same way.

    Returns the smallest failure within the time limit. If the failure does not repeat on fresh
    databases, it depends on the server's state, and the original is returned.
    """
    deadline = time.monotonic() + seconds_max
    signature = _signature(failure.message)

    def fails(log: list[tuple[str, str]]) -> str:
        message = pair.replay(log, failure.settings, failure.one_session)
        return message if message and _signature(message) == signature else ""

    message = fails(failure.log)
    if not message:
        return failure
    log = failure.log
    piece = max(1, len(log) // 2)
    while time.monotonic() < deadline:
        start, removed = 0, False
        while start < len(log) and time.monotonic() < deadline:
            shorter = log[:start] + log[start + piece :]
            found = fails(shorter) if shorter else ""
            if found:
                log, message, removed = shorter, found, True
            else:
                start += piece
        if piece == 1 and not removed:
            break
        piece = max(1, piece // 2)
    return Failure(failure.seed, message, log, failure.settings, failure.one_session)


def _signature(message: str) -> str:
    """The kind of difference, so that shrinking does not end in another bug."""
    first = message.split()[0]
    return first if first in ("error", "warnings", "order", "CHECK") else "rows"
