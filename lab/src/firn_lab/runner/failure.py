"""Finds the cause behind an error."""

from __future__ import annotations

from collections.abc import Callable

from firn_lab.errors import DiskFull, LabError, TargetDied
from firn_lab.sqlerrors import Meaning, meaning
from firn_lab.targets.target import Target


def why(target: Target, error: Exception, require_space: Callable[[], None]) -> LabError:
    """The real cause of a failure on a target.

    A full disk and a dead server surface as all kinds of errors, so both are checked first.
    """
    try:
        require_space()
    except DiskFull as full:
        return full
    if isinstance(error, DiskFull) or meaning(error) is Meaning.FULL:
        return DiskFull(f"the disk is full, says {target.name}: {error}")
    try:
        target.require_alive()
    except LabError as dead:
        return dead if isinstance(dead, TargetDied) else TargetDied(str(dead))
    if isinstance(error, LabError):
        return error
    return LabError(f"{target.name}: {type(error).__name__}: {error}")
