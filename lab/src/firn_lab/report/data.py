"""A run as reports need it: read from the store once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from firn_lab.intervals import Interval, Share, mean, paired, ratio, single, typical, whole
from firn_lab.plan.base import Plan
from firn_lab.price import Prices
from firn_lab.runner.blocks import reference_of
from firn_lab.store import Reader
from firn_lab.store.rows import CaseRow, Round, Run, TargetRow
from firn_lab.workloads import WORKLOADS

# Behind the moment of a size that is not compared.
UNLIKE = "rows depend on throughput"
# A figure of a case on a target, over the rounds that count.
Figures = dict[str, Interval]
BY_TRANSACTION = "_per_transaction"


@dataclass(frozen=True)
class Result:
    """One case on one target. `rounds` holds those that do not count, too."""

    case: CaseRow
    target: TargetRow
    rounds: tuple[Round, ...]
    figures: Figures

    @property
    def headline(self) -> Interval | None:
        return self.figures.get(self.case.headline)

    @property
    def good(self) -> tuple[Round, ...]:
        """Rounds that count: none where the data was found to be wrong."""
        return good(self.rounds)

    def by_block(self, name: str) -> dict[int, float]:
        """Values of a figure by number of the block."""
        return {r.number: r.figures[name] for r in self.good if name in r.figures}

    def settled(self, name: str) -> str:
        """The name of the figure with what the server did until it was at rest, where there is one:
        without it an engine that puts its work off would look as if it had none."""
        whole = f"settled_{name}"
        return whole if whole in self.figures else name

    def total(self, name: str) -> float:
        """Of counters: the sum over all rounds that were ok."""
        return sum(r.figures.get(name, 0.0) for r in self.good)

    def shares(self, name: str) -> dict[int, Share]:
        """Of a figure by transaction, or of throughput: what was counted in each block, and what
        it is divided by."""
        weight = "seconds" if name in ("tps", "qps") else "transactions"
        values = self.by_block(name)
        return {
            number: (values[number] * each, each)
            for number, each in self.by_block(weight).items()
            if number in values
        }


@dataclass(frozen=True)
class Report:
    """All of a run."""

    run: Run
    targets: list[TargetRow]
    cases: list[CaseRow]
    results: list[Result]
    store: Reader
    prices: tuple[Prices, ...] = ()
    # Ratios are wanted to plus or minus this part of them.
    within: float = Plan.within

    def result(self, case: CaseRow, target: TargetRow) -> Result | None:
        """None where the case did not run."""
        for each in self.results:
            if each.case.id == case.id and each.target.id == target.id and each.rounds:
                return each
        return None

    @property
    def reference(self) -> TargetRow | None:
        """The target that others are compared with: InnoDB, or the first."""
        name = reference_of(target.name for target in self.targets)
        return next((target for target in self.targets if target.name == name), None)

    def against(self, result: Result) -> Result | None:
        """The result that another is compared with; None for the reference's own."""
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

    def ratio(self, result: Result, figure: str) -> Interval | None:
        """Of a figure to the reference's: in a typical block, or over all of them for what is
        counted by transaction. None for the reference's own."""
        against = self.against(result)
        if against is None or figure not in result.figures or figure not in against.figures:
            return None
        if figure.endswith(BY_TRANSACTION):
            found = whole(paired(result.shares(figure), against.shares(figure)))
        else:
            found = ratio(paired(result.by_block(figure), against.by_block(figure)))
        if found is not None:
            return found
        # Counted once, or only when all rounds were over: there are no blocks.
        one, other = result.figures[figure].value, against.figures[figure].value
        return single(one / other) if one > 0 and other > 0 else None

    def whole(self, result: Result) -> Interval | None:
        """All transactions of all blocks beside the reference's: with every stall in it."""
        against = self.against(result)
        if against is None or "tps" not in result.figures:
            return None
        return whole(paired(result.shares("tps"), against.shares("tps")))


def collect(store: Reader, which: str | int = "last", prices: Sequence[Prices] = ()) -> Report:
    """Reads a run. `store` is needed as long as the report is."""
    run = store.run(which)
    targets, cases = store.targets(run.id), store.cases(run.id)
    rounds = store.rounds(run.id)
    settled: dict[tuple[str, int], Figures] = {}
    for each in store.settled(run.id):
        settled.setdefault((each.dataset, each.target), {})[each.name] = single(each.value)
    results = []
    for case in cases:
        for target in targets:
            own = tuple(r for r in rounds if (r.case, r.target) == (case.id, target.id))
            figures = _figures(good(own))
            if figures:
                figures |= settled.get((case.label, target.id), {})
            results.append(Result(case, target, own, figures))
    ended = [event.data for event in store.events(run.id) if event.kind == "case"]
    within = ended[-1]["within"] if ended else Plan.within
    return Report(run, targets, cases, results, store, tuple(prices), within)


def good(rounds: Sequence[Round]) -> tuple[Round, ...]:
    """Those that count."""
    if any(each.status == "wrong" for each in rounds):
        return ()
    return tuple(each for each in rounds if each.status == "ok")


def _figures(rounds: Sequence[Round]) -> Figures:
    """Medians; what is counted by transaction comes in lumps: means."""
    found = {}
    for name in dict.fromkeys(name for each in rounds for name in each.figures):
        own = [each.figures for each in rounds if name in each.figures]
        values = [figures[name] for figures in own]
        weights = [figures.get("transactions", 1.0) for figures in own]
        by_transaction = name.endswith(BY_TRANSACTION)
        found[name] = mean(values, weights) if by_transaction else typical(values)
    return {name: value for name, value in found.items() if value is not None}


def threads_of(case: CaseRow) -> int:
    return int(case.params.get("threads", 0))


def family(case: CaseRow) -> str:
    """The label without the threads: cases of one family are points of one curve."""
    return re.sub(r" ?\bthreads=\d+", "", case.label)
