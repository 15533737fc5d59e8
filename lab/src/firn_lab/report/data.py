"""A run as reports need it: read from the store once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from firn_lab.price import Prices
from firn_lab.store import Reader, Spread, mean, spread, unclear
from firn_lab.store.rows import CaseRow, Round, Run, TargetRow
from firn_lab.workloads import WORKLOADS

# Behind the moment of a size that is not compared.
UNLIKE = "rows depend on throughput"
# A figure of a case on a target, over the rounds that were ok.
Figures = dict[str, Spread]


@dataclass(frozen=True)
class Result:
    """One case on one target. `rounds` holds failed ones too."""

    case: CaseRow
    target: TargetRow
    rounds: tuple[Round, ...]
    figures: Figures

    @property
    def headline(self) -> Spread | None:
        return self.figures.get(self.case.headline)

    @property
    def good(self) -> int:
        """Rounds that count."""
        return sum(each.status == "ok" for each in self.rounds)

    def settled(self, name: str) -> str:
        """The name of the figure with what the server did until it was at rest, where there is one:
        without it an engine that puts its work off would look as if it had none."""
        whole = f"settled_{name}"
        return whole if whole in self.figures else name

    def total(self, name: str) -> float:
        """Of counters: the sum over all rounds that were ok."""
        return sum(r.figures.get(name, 0.0) for r in self.rounds if r.status == "ok")


@dataclass(frozen=True)
class Report:
    """All of a run."""

    run: Run
    targets: list[TargetRow]
    cases: list[CaseRow]
    results: list[Result]
    store: Reader
    prices: tuple[Prices, ...] = ()

    def result(self, case: CaseRow, target: TargetRow) -> Result | None:
        """None where the case did not run."""
        for each in self.results:
            if each.case.id == case.id and each.target.id == target.id and each.rounds:
                return each
        return None

    @property
    def reference(self) -> TargetRow | None:
        """The target that others are compared with: InnoDB, or the first."""
        named = [target for target in self.targets if target.name == "innodb"]
        return next(iter(named or self.targets), None)

    def against(self, result: Result) -> Result | None:
        """What a result is compared with; None for the reference's own."""
        base = self.reference
        if base is None or base.id == result.target.id:
            return None
        return self.result(result.case, base)

    def comparable(self, dataset: str, moment: str) -> bool:
        """Whether sizes of a moment are of as many rows on every target and in every run: not after
        rounds of a workload that adds or removes rows, nor of one that is not known here."""
        workloads = {case.workload for case in self.cases if case.dataset == dataset}
        return moment == "load" or all(
            name in WORKLOADS and getattr(WORKLOADS[name], "keeps_rows", False)
            for name in workloads
        )

    def doubtful(self, result: Result, figure: str) -> bool:
        """Whether nothing can be concluded from the difference of a figure to the reference's."""
        against = self.against(result)
        one, other = result.figures.get(figure), against.figures.get(figure) if against else None
        if one is None or other is None or one.median == other.median:
            return False
        return unclear(one, other)


def collect(store: Reader, which: str | int = "last", prices: Sequence[Prices] = ()) -> Report:
    """Reads a run. `store` is needed as long as the report is."""
    run = store.run(which)
    targets, cases = store.targets(run.id), store.cases(run.id)
    rounds = store.rounds(run.id)
    results = []
    for case in cases:
        for target in targets:
            own = tuple(r for r in rounds if (r.case, r.target) == (case.id, target.id))
            results.append(Result(case, target, own, _figures(own)))
    return Report(run, targets, cases, results, store, tuple(prices))


def _figures(rounds: Sequence[Round]) -> Figures:
    """Medians; what is counted by transaction may be put off from one round to another: means."""
    good = [each.figures for each in rounds if each.status == "ok"]
    found = {}
    for name in dict.fromkeys(name for figures in good for name in figures):
        own = [figures for figures in good if name in figures]
        values = [figures[name] for figures in own]
        by_transaction = name.endswith("_per_transaction")
        weights = [figures.get("transactions", 1.0) for figures in own]
        found[name] = mean(values, weights) if by_transaction else spread(values)
    return {name: value for name, value in found.items() if value is not None}


def threads_of(case: CaseRow) -> int:
    return int(case.params.get("threads", 0))


def family(case: CaseRow) -> str:
    """The label without the threads: cases of one family are points of one curve."""
    return re.sub(r" ?\bthreads=\d+", "", case.label)
