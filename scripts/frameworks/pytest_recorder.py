"""A pytest plugin that records the outcome of each test."""

from __future__ import annotations

import re

import pytest
from outcomes import Recorder

_RECORDER = Recorder()

# SQLAlchemy appends driver and server version to the names of its classes.
_VERSION = re.compile(r"_mariadb\+mysqldb_[0-9_]+(?=::)")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Records the call, or the fixture that failed or skipped it."""
    if report.when != "call" and report.passed:
        return
    if hasattr(report, "wasxfail"):
        outcome = "expected failure"
    elif report.passed:
        outcome = "passed"
    elif report.skipped:
        outcome = "skipped"
    else:
        outcome = "failed"
    _RECORDER.add(_VERSION.sub("", report.nodeid), outcome, "" if report.passed else report.longreprtext)
