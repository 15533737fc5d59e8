"""The results: an append-only SQLite file. `Writer` serves the runner, `Reader` the reports."""

from firn_lab.store.reader import Reader
from firn_lab.store.writer import Writer

__all__ = ["Reader", "Writer"]
