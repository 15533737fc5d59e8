"""Remarks on a run beside its numbers, and the commands that repeat it."""

from __future__ import annotations

import shlex

from firn_lab.measures import STATE_MEASURES
from firn_lab.report.conclusions import conclusions, ratio_text
from firn_lab.report.report_data import Report

# Parameters of a case that the command to repeat it contains.
_PARAMS = ("threads", "seconds", "lead_seconds", "warm_seconds", "scale")


def breaches(report: Report) -> list[str]:
    """Broken rules of fairness, as text."""
    return _warnings(report, bound=False)


def bounds(report: Report) -> list[str]:
    """Cases whose load driver limits the servers. It limits all alike, so it is not unfair."""
    return _warnings(report, bound=True)


def _warnings(report: Report, bound: bool) -> list[str]:
    """Warnings as lines; the same warning on several cases and targets becomes one line."""
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


def open_questions(report: Report) -> list[str]:
    """Ratios that did not reach the wanted precision."""
    return [each.words() for each in conclusions(report) if not each.concluded]


def lumps(report: Report) -> list[str]:
    """Cases whose typical block differs from the total of all blocks."""
    return [
        f"{each.result.case.label}: in a typical block {each.result.target.name} ÷ "
        f"{each.reference} is {ratio_text(each.ratio)}, over all transactions "
        f"{ratio_text(each.whole)}: some blocks are unlike the others"
        for each in conclusions(report)
        if each.whole is not None and each.lumpy
    ]


def unsupported(report: Report) -> list[str]:
    """Cases that a target does not support."""
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
    """The command of the whole run, and for each case a command that repeats it alone."""
    budget = report.run.budget
    options = ["--blocks", str(report.run.rounds), "--within", f"{100 * report.within:g}"]
    options += ["--memory", str(budget["memory_bytes"] >> 20)]
    options += [] if budget["durable"] else ["--not-durable"]
    options += [] if budget["direct_io"] else ["--page-cache"]
    options += ["--thread-pool"] if budget["thread_pool"] else []
    options += ["--new-servers"] if budget.get("new_servers") else []
    costly = _costly(report)
    options += ["--measure", *costly] if costly else []
    specs = [target.spec for target in report.targets]
    found = {"the whole run": shlex.join(report.run.command)}
    for case in report.cases:
        params = case.params
        items = [f"{k}={params[k]:g}" for k in _PARAMS if k in params]
        items += [f"seed={params['seed']}"]
        items += [f"disk={params['disk']}"] if params.get("disk") else []
        items += [f"{key}={value}" for key, value in params["options"].items()]
        text = f"{case.workload}:{','.join(items)}"
        found[case.label] = shlex.join(["firn-lab", "run", text, "--targets", *specs, *options])
    return found


def _costly(report: Report) -> list[str]:
    """The costly measures that this run took."""
    taken = {each.name.partition(".")[0] for each in report.store.state(report.run.id)}
    measures = {name: STATE_MEASURES[name]() for name in STATE_MEASURES}
    return [name for name, each in measures.items() if each.costly and taken & set(each.figures)]
