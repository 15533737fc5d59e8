"""Processes forked by the lab itself: sessions of the load driver, shares of a load.

Threads of one Python would take turns. A child works with a pipe to the lab; what it fails with
comes out of `receive` as the lab's own error. Ctrl-C is the parent's affair, and so are its open
files and exit handlers: a child ends without running them down.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

from firn_lab.errors import DiskFull, LabError, TargetDied
from firn_lab.processes import GUARD
from firn_lab.sqlerrors import Meaning, meaning


class Child:
    """Works from the moment it is made, until it has done so or `end` kills it."""

    def __init__(self, what: str, work: Callable[[Connection], None]) -> None:
        """`what` it is, for messages."""
        self._what = what
        context = multiprocessing.get_context("fork")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_run, args=(there, self._pipe, work), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self._pid = self._process.pid
        GUARD.watch(self._pid)
        there.close()
        self.send(None)

    def send(self, message: Any) -> None:
        """To a child that has died, nothing: `receive` tells."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(message)

    def receive(self) -> Any:
        """The child's next message; raises what it failed with."""
        try:
            message = self._pipe.recv()
        except EOFError:
            raise LabError(f"{self._what} was killed") from None
        if isinstance(message, LabError):
            raise message
        return message

    def end(self) -> None:
        """Kills it, if it still works, and reaps it."""
        self._process.kill()
        self._process.join()
        GUARD.forget(self._pid)
        self._pipe.close()

    @staticmethod
    def ready(children: Iterable[Child], seconds_max: float) -> list[Child]:
        """Those that have something to say, as soon as there are any."""
        by_pipe = {id(child._pipe): child for child in children}
        said = wait([child._pipe for child in by_pipe.values()], seconds_max)
        return [by_pipe[id(pipe)] for pipe in said]


def _run(pipe: Connection, parent: Connection, work: Callable[[Connection], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    parent.close()
    GUARD.leave()
    try:
        # The parent is about to name this child to the guard. A lab that is killed before that
        # leaves a closed pipe.
        pipe.recv()
        work(pipe)
    except (BrokenPipeError, EOFError):
        pass  # The parent has given up.
    except Exception as error:
        pipe.send(as_lab_error(error))
    finally:
        os._exit(0)


def as_lab_error(error: Exception) -> LabError:
    """The error of a child, in a form that a pipe carries."""
    if isinstance(error, LabError):
        return error
    text = f"{type(error).__name__}: {error}"
    match meaning(error):
        case Meaning.FULL:
            return DiskFull(text)
        case Meaning.LOST:
            return TargetDied(f"the connection was lost: {text}")
        case _:
            return LabError(text)
