"""Child processes forked by the lab: sessions of the load driver, shares of a load.

Threads of one Python process would run one at a time. A child communicates over a pipe, and its
error is raised from `receive` as a LabError. A child ignores Ctrl-C, which the parent handles, and
exits with os._exit: open files and exit handlers belong to the parent.
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
    """Starts a child process at construction; it runs until its work is done or `end` kills it."""

    def __init__(self, what: str, work: Callable[[Connection], None]) -> None:
        """`what` describes the child in messages."""
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
        """Sends a message. If the child has died, `receive` reports that."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(message)

    def receive(self) -> Any:
        """The child's next message; raises the child's error."""
        try:
            message = self._pipe.recv()
        except EOFError:
            raise LabError(f"{self._what} was killed") from None
        if isinstance(message, LabError):
            raise message
        return message

    def end(self) -> None:
        """Kills the child if it is still running, and reaps it."""
        self._process.kill()
        self._process.join()
        GUARD.forget(self._pid)
        self._pipe.close()

    @staticmethod
    def ready(children: Iterable[Child], seconds_max: float) -> list[Child]:
        """The children with a message, as soon as there are any; empty after `seconds_max`."""
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
        # The parent sends a first message after it registered this child with the guard. If the
        # lab is killed before that, the pipe is closed and the child ends.
        pipe.recv()
        work(pipe)
    except (BrokenPipeError, EOFError):
        pass  # The parent has closed the pipe.
    except Exception as error:
        pipe.send(as_lab_error(error))
    finally:
        os._exit(0)


def as_lab_error(error: Exception) -> LabError:
    """The child's error in a form that can pass through a pipe."""
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
