"""The data of a run for reports, read from the store once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firn_lab.intervals import Interval, Share, mean, paired, ratio, single, typical, whole
from firn_lab.plan.case import Plan
from firn_lab.price import Prices
from firn_lab.runner.blocks import reference_of
from firn_lab.store import Reader
from firn_lab.store.rows import CaseRow, Round, Run, TargetRow
from firn_lab.workloads import WORKLOADS

# Text beside a size that cannot be compared between targets, because faster rounds leave other
# numbers of rows.
UNLIKE = "rows depend on throughput"
# Figures of one case on one target by name, computed from the rounds that count.
Figures = dict[str, Interval]
BY_TRANSACTION = "_per_transaction"


@dataclass(frozen=True)
class Result:
    """One case on one target. `rounds` also contains the rounds that do not count."""

    case: CaseRow
    target: TargetRow
    rounds: tuple[Round, ...]
    figures: Figures

    @property
    def headline(self) -> Interval | None:
        return self.figures.get(self.case.headline)

    @property
    def good(self) -> tuple[Round, ...]:
        """The rounds with status ok, or none if a check found wrong data."""
        return good(self.rounds)

    def by_block(self, name: str) -> dict[int, float]:
        """Values of a figure by block number."""
        return {r.number: r.figures[name] for r in self.good if name in r.figures}

    def settled(self, name: str) -> str:
        """The name of the settled form of a figure if it exists, else the name itself.

        The settled form includes work until the server was at rest. Without that work, an engine
        that defers work would look cheaper than it is.
        """
        whole = f"settled_{name}"
        return whole if whole in self.figures else name

    def total(self, name: str) -> float:
        """Sum of a counter over the rounds that count."""
        return sum(r.figures.get(name, 0.0) for r in self.good)

    def shares(self, name: str) -> dict[int, Share]:
        """Numerator and denominator of a rate in each block.

        The figure must be a throughput or a figure per transaction.
        """
        weight = "seconds" if name in ("tps", "qps") else "transactions"
        values = self.by_block(name)
        return {
            number: (values[number] * each, each)
            for number, each in self.by_block(weight).items()
            if number in values
        }


@dataclass(frozen=True)
class Report:
    """All data of a run."""

    run: Run
    targets: list[TargetRow]
    cases: list[CaseRow]
    results: list[Result]
    store: Reader
    prices: tuple[Prices, ...] = ()
    # The wanted precision of ratios, as a fraction of the ratio.
    within: float = Plan.within
    # Ratios by label of the case that others have published, and who has.
    published: Mapping[str, float] = field(default_factory=dict)
    published_by: str = ""

    def result(self, case: CaseRow, target: TargetRow) -> Result | None:
        """The result of a case on a target; None if the case did not run there."""
        for each in self.results:
            if each.case.id == case.id and each.target.id == target.id and each.rounds:
                return each
        return None

    @property
    def reference(self) -> TargetRow | None:
        """The target that the others are compared with: InnoDB, else the first one."""
        name = reference_of(target.name for target in self.targets)
        return next((target for target in self.targets if target.name == name), None)

    def against(self, result: Result) -> Result | None:
        """The reference's result of the same case; None for the reference itself."""
        base = self.reference
        if base is None or base.id == result.target.id:
            return None
        return self.result(result.case, base)

    def comparable(self, dataset: str, moment: str) -> bool:
        """Whether all targets and runs hold the same number of rows at a moment.

        After the load they do. Later they do unless a workload of the dataset adds or removes rows,
        or is unknown to this version of the lab.
        """
        workloads = {case.workload for case in self.cases if case.dataset == dataset}
        return moment == "load" or all(
            name in WORKLOADS and getattr(WORKLOADS[name], "keeps_rows", False)
            for name in workloads
        )

    def ratio(self, result: Result, figure: str) -> Interval | None:
        """The ratio of a figure to the reference's; None for the reference itself.

        A figure per transaction uses the totals of all blocks, other figures a typical block.
        """
        against = self.against(result)
        if against is None or figure not in result.figures or figure not in against.figures:
            return None
        if figure.endswith(BY_TRANSACTION):
            found = whole(paired(result.shares(figure), against.shares(figure)))
        else:
            found = ratio(paired(result.by_block(figure), against.by_block(figure)))
        if found is not None:
            return found
        # The figure has one value instead of a value for each block, so there is no interval.
        one, other = result.figures[figure].value, against.figures[figure].value
        return single(one / other) if one > 0 and other > 0 else None

    def whole(self, result: Result) -> Interval | None:
        """Throughput over all transactions of all blocks, relative to the reference's."""
        against = self.against(result)
        if against is None or "tps" not in result.figures:
            return None
        return whole(paired(result.shares("tps"), against.shares("tps")))


def collect(store: Reader, which: str | int = "last", prices: Sequence[Prices] = ()) -> Report:
    """Reads a run. The caller keeps `store` open as long as it uses the report."""
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
    events = store.events(run.id)
    ended = [event.data for event in events if event.kind == "case"]
    within = ended[-1]["within"] if ended else Plan.within
    told = [event.data for event in events if event.kind == "published"]
    published = {each["case"]: each["ratio"] for each in told}
    by = told[-1]["by"] if told else ""
    return Report(run, targets, cases, results, store, tuple(prices), within, published, by)


def good(rounds: Sequence[Round]) -> tuple[Round, ...]:
    """The rounds that count: those with status ok, and none if the data was wrong."""
    if any(each.status == "wrong" for each in rounds):
        return ()
    return tuple(each for each in rounds if each.status == "ok")


def _figures(rounds: Sequence[Round]) -> Figures:
    """By name: the median of a figure over the rounds.

    A figure per transaction comes in lumps, so the mean stands for it, weighted by transactions.
    """
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
    """The label without the thread count. Cases of one family are points of one curve."""
    return re.sub(r" ?\bthreads=\d+", "", case.label)
