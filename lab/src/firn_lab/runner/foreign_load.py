"""Processors at work for somebody else while something is measured."""

from __future__ import annotations

import os
import time

from firn_lab.processes import processor_seconds, tree
from firn_lab.runner import machine


class ForeignLoad:
    """From now on: of all processor time, what neither the lab nor its servers have used."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = self._seconds()

    def cores(self) -> float:
        """On average until now."""
        seconds = time.monotonic() - self._began
        return max(0.0, self._seconds() - self._before) / max(seconds, 1e-9)

    def _seconds(self) -> float:
        # Everything that the lab starts is its descendant, and counts for it when it has ended.
        return machine.busy_seconds() - processor_seconds(tree(os.getpid()))
