"""The estimated time left of a run."""

from __future__ import annotations

from firn_lab.runner.progress import LOAD_SECONDS, Progress


def test_loads_take_as_long_as_those_so_far_and_cases_their_time() -> None:
    progress = Progress(2, {"short": 10.0, "long": 600.0})
    assert progress.total == 4
    assert progress.seconds_left == 2 * LOAD_SECONDS + 610
    progress.load_over(100)
    progress.case_over("long")
    assert (progress.seconds_left, progress.cases_left) == (110, 1)


def test_what_is_left_is_shared_out() -> None:
    progress = Progress(0, {"a": 10.0, "b": 600.0})
    progress.share(90)
    assert progress.seconds_left == 90
    progress.case_over("a")
    assert progress.seconds_left == 45
    progress.share(-5)
    assert progress.seconds_left == 0


def test_what_will_not_be_done_is_over() -> None:
    progress = Progress(1, {"case": 10.0})
    progress.load_over(None)
    progress.case_over("case")
    assert (progress.done, progress.total, progress.seconds_left) == (2, 2, 0)
