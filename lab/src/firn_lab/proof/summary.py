"""Results of a proof: a page, and a picture of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firn_lab.proof.record import ProofRun
from firn_lab.report.markdown import table

# Required share of the runs whose interval contains the truth and is narrow enough.
HELD_SHARE = 17 / 20
HALF_WIDTH_MAX = 0.025
BLOCKS_MIN = 20


def sound(run: ProofRun) -> bool:
    """Whether the run's interval contains the truth and is as narrow as required."""
    narrow = run.ratio.half_width <= HALF_WIDTH_MAX and run.ratio.count >= BLOCKS_MIN
    return run.holds and narrow


def found(run: ProofRun) -> bool:
    """Whether the run detects the difference: its interval and the truth are on one side of 1."""
    return run.ratio.high < 1.0 if run.truth < 1 else run.ratio.low > 1.0


def passed(runs: Sequence[ProofRun]) -> bool:
    """Whether the proof passes.

    For identical targets, enough runs must be sound; otherwise every run must detect the
    difference.
    """
    if not runs:
        return False
    if all(run.truth == 1.0 for run in runs):
        return sum(map(sound, runs)) >= HELD_SHARE * len(runs)
    return all(map(found, runs))


def page(title: str, about: str, runs: Sequence[ProofRun], picture: str) -> str:
    """The results as Markdown."""
    rows = [
        [
            str(run.number + 1),
            f"{run.ratio.value:.4f}",
            f"{run.ratio.low:.4f}…{run.ratio.high:.4f}",
            f"±{run.ratio.half_width:.2%}",
            str(run.ratio.count),
            "yes" if run.holds else "no",
        ]
        for run in runs
    ]
    truth = runs[0].truth
    head = ["run", "ratio", "95 % interval", "half-width", "blocks", f"holds {truth:.3f}"]
    same = truth == 1.0
    what = (
        f"{sum(map(sound, runs))} of {len(runs)} runs hold 1.00 with a half-width of "
        f"{HALF_WIDTH_MAX:.1%} or less and {BLOCKS_MIN} blocks or more; "
        f"{HELD_SHARE * 20:.0f} of 20 are wanted"
        if same
        else f"{sum(map(found, runs))} of {len(runs)} runs find the difference: 1 is not in the "
        f"interval; {sum(run.holds for run in runs)} hold {truth:.3f}"
    )
    verdict = "passed" if passed(runs) else "not passed"
    lines = [f"# {title}", "", about, "", f"**{verdict}**: {what}.", "", f"![{title}]({picture})"]
    return "\n".join([*lines, "", *table(head, rows)])


def draw(title: str, runs: Sequence[ProofRun], path: Path) -> None:
    """Draws the interval of each run."""
    # Imported here because the import takes half a second.
    from firn_lab.report.drawing import intervals

    intervals(title, [run.ratio for run in runs], [1.0, runs[0].truth], path)
