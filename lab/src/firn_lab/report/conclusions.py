"""Conclusions of a run: each case's ratio, its precision, and whether a limit is met."""

from __future__ import annotations

from dataclasses import dataclass

from firn_lab.intervals import INTERVAL_MIN, Interval
from firn_lab.report.report_data import Report, Result

CPU, SWITCHES = "cpu_us_per_transaction", "switches_per_transaction"


@dataclass(frozen=True)
class Conclusion:
    """The headline of a case on a target, compared with the reference; all are target ÷ reference.

    `ratio` is that of a typical block, `whole` that of all transactions of all blocks. `cpu` and
    `switches` are the server's, per transaction.
    """

    result: Result
    reference: str
    within: float
    ratio: Interval
    whole: Interval | None
    cpu: Interval | None
    switches: Interval | None
    # What others have published for the ratio.
    published: float | None = None

    @property
    def concluded(self) -> bool:
        return self.ratio.concluded(self.within)

    @property
    def lumpy(self) -> bool:
        """Whether a few blocks differ from the others, by stalls or other work on the machine."""
        if self.whole is None or self.ratio.count < INTERVAL_MIN:
            return False
        return abs(self.whole.value / self.ratio.value - 1) > self.within

    def words(self) -> str:
        """The conclusion as a sentence."""
        name, ratio = self.result.target.name, self.ratio
        text = f"{self.result.case.label}: {name} ÷ {self.reference} {ratio_text(ratio)}"
        if self.concluded:
            return f"{text}, concluded at ±{self.within:.1%}"
        known = f"±{ratio.half_width:.1%}" if ratio.half_width < float("inf") else "no interval"
        return f"{text}, not concluded at ±{self.within:.1%}: {known} after {ratio.count} blocks"


def conclusions(report: Report) -> list[Conclusion]:
    """Conclusions of all cases whose headline was measured on a target and on the reference."""
    base = report.reference
    found = []
    for each in report.results:
        ratio = report.ratio(each, each.case.headline)
        if base is not None and ratio is not None:
            found.append(
                Conclusion(
                    each,
                    base.name,
                    report.within,
                    ratio,
                    report.whole(each) if each.case.headline == "tps" else None,
                    report.ratio(each, each.settled(CPU)) or report.ratio(each, CPU),
                    report.ratio(each, SWITCHES),
                    report.published.get(each.case.label),
                )
            )
    return found


def ratio_text(value: Interval) -> str:
    if value.count < 2:
        return f"×{value.value:.2f}"
    return f"×{value.value:.3f} ({value.low:.3f}…{value.high:.3f})"


def published_text(ratio: float | None) -> str:
    """What others have published for a ratio."""
    return "–" if ratio is None else f"×{ratio:.2f}"


@dataclass(frozen=True)
class Verdict:
    """The result of `judge` for one case: met, missed or undecided; undecided is not met.

    `ratio` is oriented so that more is better: times and costs are reference ÷ target.
    """

    case: str
    target: str
    reference: str
    figure: str
    ratio: Interval
    whole: Interval | None
    verdict: str


def judge(report: Report, at_least: float, figure: str | None = None) -> list[Verdict]:
    """Judges every case against a limit.

    The limit is met when the lower end of the interval of the paired ratios reaches it, and the
    ratio over all transactions does, too: a typical block shows no rare stalls. It is missed when
    the upper end of either interval stays below it. `figure` replaces each case's headline.
    """
    kinds = report.store.figure_kinds(report.run.id)
    base = report.reference
    found = []
    for each in report.results:
        name = figure or each.case.headline
        ratio = report.ratio(each, name)
        if ratio is None or base is None:
            continue
        whole = report.whole(each) if name == "tps" else None
        if kinds[name].better == "lower":
            ratio = turned(ratio)
        found.append(
            Verdict(
                each.case.label, each.target.name, base.name, name, ratio, whole,
                _verdict(ratio, whole, at_least),
            )
        )  # fmt: skip
    return found


def _verdict(ratio: Interval, whole: Interval | None, at_least: float) -> str:
    if ratio.count < INTERVAL_MIN:
        return "undecided"
    if ratio.high < at_least or (whole is not None and whole.high < at_least):
        return "missed"
    reached = ratio.low >= at_least and (whole is None or whole.value >= at_least)
    return "met" if reached else "undecided"


def turned(value: Interval) -> Interval:
    """The inverse of a ratio."""
    return Interval(1 / value.value, 1 / value.high, 1 / value.low, value.count)
