"""Watches the free disk space while the main thread works.

A load, a statement or a rest may block for an hour. A thread checks the space meanwhile, and
interrupts the main thread there with a signal, as Ctrl-C does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from firn_lab.errors import LabError

LOOK_SECONDS = 1.0


class DiskWatch:
    """Context manager that calls `look` every second.

    If `look` raises a LabError, the body of the `with` statement gets it. Use it only in the main
    thread, and never nested: it replaces the handler of SIGUSR1.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._found: LabError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> DiskWatch:
        self._previous = signal.signal(signal.SIGUSR1, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._previous)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except LabError as error:
                self._found = error
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGUSR1)
                return

    def _interrupt(self, *signal_and_frame: object) -> None:
        """The signal handler in the main thread. It raises nothing if the body has just ended."""
        if self._found is not None and not self._over.is_set():
            raise self._found
