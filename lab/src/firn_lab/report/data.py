"""A run as reports need it: read from the store once, plain values that JSON can hold."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from firn_lab.measures import STATE_MEASURES
from firn_lab.price import Prices
from firn_lab.report.costs import costs
from firn_lab.store import ROUNDS_MIN, Reader, Spread, mean, spread, unclear
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


def breaches(report: Report) -> list[str]:
    """Broken rules of fairness."""
    return _warnings(report, bound=False)


def bounds(report: Report) -> list[str]:
    """Where the load driver bounds what servers can show. No unfairness: it is the same for all."""
    return _warnings(report, bound=True)


def _warnings(report: Report, bound: bool) -> list[str]:
    """What is said of several cases and targets is one line."""
    places = {
        f"{case.label} on {target.name}: ": (case.label, target.name)
        for case in report.cases
        for target in report.targets
    }
    lines: dict[tuple[str, str], dict[str, list[str]]] = {}
    for each in report.store.warnings(report.run.id):
        if (each.rule == "client") == bound:
            place = next((place for place in places if each.message.startswith(place)), "")
            where = lines.setdefault((each.rule, each.message.removeprefix(place)), {})
            if place:
                case, target = places[place]
                where.setdefault(case, []).append(target)
    return [
        ": ".join(
            filter(None, (rule, "; ".join(f"{c} on {', '.join(where[c])}" for c in where), words))
        )
        for (rule, words), where in lines.items()
    ]


def doubts(report: Report) -> list[str]:
    """Differences to the reference from which nothing can be concluded."""
    found = []
    for each in report.results:
        against = report.against(each)
        if against is not None and report.doubtful(each, each.case.headline):
            few = min(each.good, against.good) < ROUNDS_MIN
            why = "are too few" if few else "spread wider than the two differ"
            found.append(
                f"{each.case.label}: the rounds of {each.target.name} and {against.target.name} "
                f"{why} ({each.case.headline})"
            )
    return found


def shortages(report: Report) -> list[str]:
    """Results of fewer good rounds than show the spread. Where no more were planned, the rule of
    fairness has said so for all."""
    return [
        f"{each.case.label} on {each.target.name}: {each.good} of {report.run.rounds} rounds count"
        for each in report.results
        if each.rounds and each.good < min(ROUNDS_MIN, report.run.rounds)
    ]


def unsupported(report: Report) -> list[str]:
    """Cases that a target does not offer."""
    events = report.store.events(report.run.id)
    return [event.data["message"] for event in events if event.kind == "unsupported"]


def failures(report: Report) -> list[str]:
    """Rounds that do not count, and targets that were left out."""
    found = [
        f"{each.case.label} on {each.target.name}, round {r.number + 1}: {r.status}: {r.message}"
        for each in report.results
        for r in each.rounds
        if r.status != "ok"
    ]
    for event in report.store.events(report.run.id):
        if event.kind == "failure":
            found.append(f"{event.data['target']} was left out: {event.data['message']}")
    return found


def commands(report: Report) -> dict[str, str]:
    """What was run, and for each case a command that repeats it alone."""
    budget = report.run.budget
    options = ["--rounds", str(report.run.rounds)]
    options += ["--memory", str(budget["memory_bytes"] >> 20)]
    options += [] if budget["durable"] else ["--not-durable"]
    options += [] if budget["direct_io"] else ["--page-cache"]
    costly = _costly(report)
    options += ["--measure", *costly] if costly else []
    specs = [target.spec for target in report.targets]
    found = {"the whole run": shlex.join(report.run.command)}
    for case in report.cases:
        params = case.params
        items = [f"{k}={params[k]:g}" for k in ("threads", "seconds", "warm_seconds", "scale")]
        items += [f"seed={params['seed']}"]
        items += [f"{key}={value}" for key, value in params["options"].items()]
        text = f"{case.workload}:{','.join(items)}"
        found[case.label] = shlex.join(["firn-lab", "run", text, "--targets", *specs, *options])
    return found


def _costly(report: Report) -> list[str]:
    """Measures that are taken only when asked for, and were."""
    taken = {each.name.partition(".")[0] for each in report.store.state(report.run.id)}
    measures = {name: STATE_MEASURES[name]() for name in STATE_MEASURES}
    return [name for name, each in measures.items() if each.costly and taken & set(each.figures)]


def to_json(report: Report) -> dict[str, Any]:
    """What the page draws from."""
    kinds = report.store.figure_kinds(report.run.id)
    names = {target.id: target.name for target in report.targets}
    return {
        "run": asdict(report.run),
        "targets": [asdict(target) for target in report.targets],
        "reference": report.reference.name if report.reference else None,
        "breaches": breaches(report),
        "bounds": bounds(report),
        "doubts": doubts(report),
        "shortages": shortages(report),
        "unsupported": unsupported(report),
        "failures": failures(report),
        "commands": commands(report),
        "kinds": {name: asdict(kind) for name, kind in kinds.items()},
        "cases": [
            {
                "id": case.id,
                "label": case.label,
                "family": family(case),
                "threads": threads_of(case),
                "headline": case.headline,
                "dataset": case.dataset,
            }
            for case in report.cases
        ],
        "results": [_result_json(report, each) for each in report.results if each.rounds],
        "state": [
            {
                **asdict(each),
                "target": names[each.target],
                "unlike": "" if report.comparable(each.dataset, each.moment) else UNLIKE,
            }
            for each in report.store.state(report.run.id)
            if each.target in names
        ],
        "costs": costs(report),
    }


def _result_json(report: Report, result: Result) -> dict[str, Any]:
    rounds = []
    for each in result.rounds:
        parts = [asdict(part) for part in report.store.parts(each.id)]
        series = {
            name: [[second, round(value, 3)] for second, value in points]
            for name, points in report.store.series(each.id).items()
        }
        rounds.append(
            {
                "number": each.number,
                "status": each.status,
                "message": each.message,
                "started_at": each.started_at,
                "parts": parts,
                "series": series,
            }
        )
    return {
        "case": result.case.id,
        "target": result.target.name,
        "figures": {name: asdict(value) for name, value in result.figures.items()},
        "doubts": [name for name in result.figures if report.doubtful(result, name)],
        "errors": result.total("errors"),
        "retries": result.total("retries"),
        "rounds": rounds,
    }
