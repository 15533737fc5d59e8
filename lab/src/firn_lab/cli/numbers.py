"""Types of options, for argparse: what makes no sense is told before anything begins."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", int, float)
# Beyond it a product of two is no number any more.
MOST = 1e15


def at_least(low: N) -> Callable[[str], N]:
    """A number of this kind, finite, of `low` or more."""
    return _number(type(low), lambda value: value >= low, f"{low:g} or more")


def above(low: N) -> Callable[[str], N]:
    """A number of this kind, finite, of more than `low`."""
    return _number(type(low), lambda value: value > low, f"above {low:g}")


def _number(kind: type[N], fits: Callable[[N], bool], wanted: str) -> Callable[[str], N]:
    what = "a whole number" if kind is int else "a number"

    def read(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not math.isfinite(value) or value > MOST or not fits(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}, {wanted}")
        return value

    return read


def new_file(*endings: str) -> Callable[[str], Path]:
    """A file that can be written, with one of the endings."""

    def read(text: str) -> Path:
        path = Path(text)
        if endings and path.suffix not in endings:
            raise argparse.ArgumentTypeError(f"{text} does not end in {' or '.join(endings)}")
        place = path if path.exists() else path.parent
        if path.is_dir() or not place.exists() or not os.access(place, os.W_OK):
            raise argparse.ArgumentTypeError(f"{text} cannot be written")
        return path

    return read


def new_directory(text: str) -> Path:
    """A directory that is there or can be made."""
    path = Path(text)
    place = path.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is no directory that can be written to")
    return path
