"""Processor use by other programs during a measurement."""

from __future__ import annotations

import os
import time

from firn_lab.processes import processor_seconds, tree
from firn_lab.runner import machine


class LoadByOthers:
    """Processor time since the construction that neither the lab nor its servers used."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = self._seconds()

    def cores(self) -> float:
        """Average number of busy processors since the construction."""
        seconds = time.monotonic() - self._began
        return max(0.0, self._seconds() - self._before) / max(seconds, 1e-9)

    def _seconds(self) -> float:
        # Every process that the lab starts is a descendant of the lab. The processor time of
        # descendants that the lab has reaped is part of the lab's own time.
        return machine.busy_seconds() - processor_seconds(tree(os.getpid()))
