"""Errors that end a run, with messages for its user."""

from __future__ import annotations


class LabError(Exception):
    """The message says what is wrong and what to do; the command prints it without a traceback."""


class UsageError(LabError):
    """The command line, a plan or a workload's option makes no sense."""


class TargetError(LabError):
    """A server cannot be started, reached or set up."""


class TargetDied(TargetError):
    """A server that ran ended by itself; the message carries the tail of its log."""


class DiskFull(LabError):
    """The file system of the data or of the store is full, or nearly so."""


class Paused(LabError):
    """The slice of a run is over; `--resume` goes on with it."""


class CheckFailed(LabError):
    """A workload's own check found wrong data: the round counts as failed."""
