"""Outcomes of tests, recorded as they happen and compared between engines.

A line of JSON is written per outcome and flushed, so that a run that is killed keeps what it found.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

DETAIL_CHARACTERS_MAX = 2000

# Outcomes in ascending rank. If a test reports twice (subtests, a fixture after the call), the higher one counts.
_RANKS = ("passed", "expected failure", "skipped", "failed")


class Recorder:
    """Appends to the file that FRAMEWORKS_OUTCOMES names."""

    def __init__(self) -> None:
        self._file = Path(os.environ["FRAMEWORKS_OUTCOMES"]).open("a", encoding="utf-8")  # noqa: SIM115
        self._before = time.monotonic()

    def add(self, test: str, outcome: str, detail: str = "") -> None:
        """Records one outcome of a test; the detail is cut at its front, where tracebacks begin."""
        now = time.monotonic()
        line = {
            "test": test,
            "outcome": outcome,
            "seconds": round(now - self._before, 2),
            "detail": detail[-DETAIL_CHARACTERS_MAX:],
        }
        self._before = now
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


@dataclass(frozen=True)
class Outcome:
    """One test on one engine."""

    outcome: str
    detail: str


def load(path: Path) -> dict[str, Outcome]:
    """The worst outcome of each test in a recorded file."""
    found: dict[str, Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        outcome = Outcome(entry["outcome"], entry["detail"])
        before = found.get(entry["test"])
        if before is None or _RANKS.index(before.outcome) < _RANKS.index(outcome.outcome):
            found[entry["test"]] = outcome
    return found


def slowest(path: Path, number: int) -> list[tuple[float, str]]:
    """The tests that took longest, since the test before ended; so fixtures count."""
    entries = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return sorted(((entry["seconds"], entry["test"]) for entry in entries), reverse=True)[:number]


def counts(outcomes: dict[str, Outcome]) -> str:
    """`812 passed, 31 skipped`, in a fixed order."""
    number = Counter(outcome.outcome for outcome in outcomes.values())
    return ", ".join(f"{number[name]} {name}" for name in _RANKS if number[name]) or "nothing ran"


@dataclass(frozen=True)
class Comparison:
    """The tests whose outcomes differ. `worse` decides the exit status."""

    worse: dict[str, str]
    expected: dict[str, str]
    other: dict[str, str]


def compare(oracle: dict[str, Outcome], tested: dict[str, Outcome], reasons: dict[str, str]) -> Comparison:
    """Sorts the differences.

    A test is worse if it fails on the tested engine alone, or passes on the oracle and did not run. A skip is
    the suite's own decision by the engine's name; it is shown, and does not count.
    """
    comparison = Comparison({}, {}, {})
    for test in sorted(oracle.keys() | tested.keys()):
        before = oracle.get(test, Outcome("not run", ""))
        after = tested.get(test, Outcome("not run", ""))
        if before.outcome == after.outcome:
            continue
        line = f"{before.outcome} -> {after.outcome}: {_last_line(after.detail) or _last_line(before.detail)}"
        if test in reasons:
            comparison.expected[test] = f"{line} [{reasons[test]}]"
        elif after.outcome == "failed" or (after.outcome == "not run" and before.outcome == "passed"):
            comparison.worse[test] = line
        else:
            comparison.other[test] = line
    return comparison


def _last_line(detail: str) -> str:
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def load_reasons(path: Path) -> dict[str, str]:
    """Lines `test: reason` of known differences; # begins a comment.

    Raises ValueError for a line without a reason.
    """
    reasons: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        test, separator, reason = line.partition(": ")
        if not separator or not reason.strip():
            raise ValueError(f"{path}: no reason: {line}")
        reasons[test.strip()] = reason.strip()
    return reasons
