"""The time left of a run."""

from __future__ import annotations

from firn_lab.runner.progress import ROUND_EXTRA_SECONDS, UNKNOWN_SECONDS, Progress


def test_steps_take_as_long_as_those_so_far() -> None:
    progress = Progress(2, {"timed": (3, 10.0), "untimed": (2, None)})
    assert progress.total == 7
    rounds = 3 * (10 + ROUND_EXTRA_SECONDS)
    assert progress.seconds_left == 2 * UNKNOWN_SECONDS + rounds + 2 * UNKNOWN_SECONDS
    progress.load_over(100)
    progress.round_over("untimed", 600)
    assert progress.seconds_left == 100 + rounds + 600
    progress.round_over("timed", 14)
    progress.round_over("timed", 16)
    assert progress.seconds_left == 100 + 15 + 600


def test_what_will_not_be_done_is_over() -> None:
    progress = Progress(1, {"case": (2, 10.0)})
    progress.load_over(5)
    progress.round_over("case", None)
    progress.round_over("case", None)
    assert (progress.done, progress.total, progress.seconds_left) == (3, 3, 0)
