"""The run as plain JSON values, from which the page draws."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from firn_lab.intervals import Interval
from firn_lab.report.conclusions import Conclusion, conclusions
from firn_lab.report.costs import costs
from firn_lab.report.remarks import (
    bounds,
    breaches,
    commands,
    failures,
    lumps,
    open_questions,
    unsupported,
)
from firn_lab.report.report_data import UNLIKE, Report, Result, family, threads_of

# Figures that the page draws block by block, in addition to the headline figure of the case, such
# as transactions per second.
BY_BLOCK = ("cpu_us_per_transaction", "switches_per_transaction", "other_cores")


def to_json(report: Report) -> dict[str, Any]:
    """The data of the page."""
    kinds = report.store.figure_kinds(report.run.id)
    names = {target.id: target.name for target in report.targets}
    return {
        "run": asdict(report.run),
        "targets": [asdict(target) for target in report.targets],
        "reference": report.reference.name if report.reference else None,
        "breaches": breaches(report),
        "bounds": bounds(report),
        "open": open_questions(report),
        "lumps": lumps(report),
        "conclusions": [_conclusion_json(each) for each in conclusions(report)],
        "within": report.within,
        "publishedBy": report.published_by,
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


def _conclusion_json(each: Conclusion) -> dict[str, Any]:
    def plain(value: Interval | None) -> dict[str, Any] | None:
        return None if value is None else asdict(value)

    return {
        "case": each.result.case.label,
        "target": each.result.target.name,
        "figure": each.result.case.headline,
        "concluded": each.concluded,
        "ratio": plain(each.ratio),
        "whole": plain(each.whole),
        "cpu": plain(each.cpu),
        "switches": plain(each.switches),
        "published": each.published,
    }


def _result_json(report: Report, result: Result) -> dict[str, Any]:
    rounds = []
    drawn = {*BY_BLOCK, result.case.headline}
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
                "figures": {k: round(v, 4) for k, v in each.figures.items() if k in drawn},
                "parts": parts,
                "series": series,
            }
        )
    return {
        "case": result.case.id,
        "target": result.target.name,
        "figures": {name: asdict(value) for name, value in result.figures.items()},
        "ratios": {
            name: asdict(ratio)
            for name in result.figures
            if (ratio := report.ratio(result, name)) is not None
        },
        "good": len(result.good),
        "errors": result.total("errors"),
        "retries": result.total("retries"),
        "rounds": rounds,
    }
