"""Results: an SQLite file that only grows. `Writer` for the runner, `Reader` for reports."""

from firn_lab.store.reader import Reader
from firn_lab.store.summary import ROUNDS_MIN, Spread, mean, spread, unclear
from firn_lab.store.writer import Writer

__all__ = ["ROUNDS_MIN", "Reader", "Spread", "Writer", "mean", "spread", "unclear"]
