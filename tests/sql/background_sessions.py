"""Sessions that work beside a test until it has seen enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType

import pymysql


class BackgroundSessions:
    """Threads that run while the `with` block does. An error of one of them fails the test.

    Each function must return soon after `stop` is set.
    """

    def __init__(self, works: Iterable[Callable[[], None]]) -> None:
        self.stop = threading.Event()
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except pymysql.err.MySQLError as error:
            self.errors.append(str(error))

    def __enter__(self) -> BackgroundSessions:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        # An error of the test itself says more.
        assert error is not None or not self.errors, self.errors
