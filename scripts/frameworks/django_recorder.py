"""Django's test runner, which also records the outcome of each test."""

from __future__ import annotations

import unittest
from typing import Any

from django.test.runner import DiscoverRunner  # type: ignore[import-not-found]
from outcomes import Recorder


class RecordingResult(unittest.TextTestResult):
    """Records each test once; a subtest that fails makes its test fail."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder = Recorder()

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.recorder.add(test.id(), "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.recorder.add(test.id(), "failed", str(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.recorder.add(test.id(), "failed", str(err[1]))

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.recorder.add(test.id(), "failed", str(err[1]))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.recorder.add(test.id(), "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.recorder.add(test.id(), "expected failure", str(err[1]))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self.recorder.add(test.id(), "failed", "passed, but Django expects a failure")


class RecordingRunner(DiscoverRunner):
    """The runner that django_settings names."""

    def get_resultclass(self) -> type[unittest.TextTestResult]:
        return RecordingResult
