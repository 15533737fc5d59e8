"""Results: an SQLite file that only grows. `Writer` for the runner, `Reader` for reports."""

from firn_lab.store.reader import Reader
from firn_lab.store.writer import Writer

__all__ = ["Reader", "Writer"]
