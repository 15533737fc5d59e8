"""Raw data of a proof: a CSV file with a line per round, extended after each run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firn_lab.errors import LabError
from firn_lab.intervals import Interval, ratio
from firn_lab.report.report_data import Report

FIGURES = (
    "tps", "seconds", "transactions", "cpu_us_per_transaction", "switches_per_transaction",
    "other_cores",
)  # fmt: skip
HEAD = ("run", "started_at", "truth", "case", "block", "target", *FIGURES)


@dataclass(frozen=True)
class ProofRun:
    """One run of two targets. `truth`: the known ratio, second ÷ first."""

    number: int
    truth: float
    ratio: Interval

    @property
    def holds(self) -> bool:
        return self.ratio.holds(self.truth)


def append(path: Path, number: int, truth: float, report: Report) -> None:
    """Appends all rounds of a run."""
    names = {target.id: target.name for target in report.targets}
    labels = {case.id: case.label for case in report.cases}
    lines: list[list[object]] = [
        [number, each.started_at, truth, labels[each.case], each.number, names[each.target]]
        + [f"{each.figures[name]:.6g}" for name in FIGURES]
        for result in report.results
        for each in result.good
    ]
    lines.sort(key=lambda line: str(line[1]))
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(HEAD)
        writer.writerows(lines)


def read(path: Path) -> list[ProofRun]:
    """The runs in the file; the ratios are recomputed from the rounds."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not set(HEAD) <= set(rows[0]):
        raise LabError(f"{path} is not of this command: move it away")
    found = []
    for number in sorted({int(row["run"]) for row in rows}):
        own = [row for row in rows if int(row["run"]) == number]
        found.append(ProofRun(number, float(own[0]["truth"]), _ratio(own, path)))
    return found


def _ratio(rows: Sequence[dict[str, str]], path: Path) -> Interval:
    """Throughput ratio of a typical block: the target that sorts last divided by the first."""
    first, second = sorted({row["target"] for row in rows})
    tps = {(int(row["block"]), row["target"]): float(row["tps"]) for row in rows}
    blocks = sorted({block for block, _ in tps})
    pairs = [
        (tps[block, second], tps[block, first])
        for block in blocks
        if (block, first) in tps and (block, second) in tps
    ]
    found = ratio(pairs)
    if found is None:
        raise LabError(f"{path} has a run without a block")
    return found
