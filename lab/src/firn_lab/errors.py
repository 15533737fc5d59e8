"""Errors that end a run. Their messages address the user of the command."""

from __future__ import annotations


class LabError(Exception):
    """Base of all errors whose message tells the user the problem and the remedy.

    The command prints the message without a traceback.
    """


class UsageError(LabError):
    """The command line, a plan or an option of a workload is invalid."""


class TargetError(LabError):
    """A server cannot be started, reached or set up."""


class TargetDied(TargetError):
    """A running server ended by itself; the message carries the tail of its log."""


class DiskFull(LabError):
    """The file system of the data or of the store is full, or nearly so."""


class Paused(LabError):
    """The time slice of a run is used up; `--resume` continues the run."""


class CheckFailed(LabError):
    """The workload's own check found wrong data; the round counts as failed."""
