"""Option types for argparse. They reject invalid values before a run begins."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", int, float)
# Upper limit of every option, so that products of options stay finite.
MOST = 1e15


def at_least(low: N) -> Callable[[str], N]:
    """A parser of finite numbers of the type of `low`, not smaller than `low`."""
    return _number(type(low), lambda value: value >= low, f"{low:g} or more")


def above(low: N) -> Callable[[str], N]:
    """A parser of finite numbers of the type of `low`, larger than `low`."""
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
    """A parser of paths of writable files with one of the endings."""

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
    """Parses the path of a directory that exists or can be created."""
    path = Path(text)
    place = path.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is no directory that can be written to")
    return path
