"""Throughput and latency: the figures that every outcome has, for any workload."""

from __future__ import annotations

from firn_lab.workloads.workload import FigureKind, Outcome, Workload

FIGURES = {
    "tps": FigureKind("1/s", "higher"),
    "qps": FigureKind("1/s", "higher"),
    "seconds": FigureKind("s"),
    "transactions": FigureKind("", "higher"),
    "queries": FigureKind("", "higher"),
    "errors": FigureKind(""),
    "retries": FigureKind(""),
    "client_cpu_seconds": FigureKind("s"),
    "latency_average_ms": FigureKind("ms"),
    "latency_p50_ms": FigureKind("ms"),
    "latency_p95_ms": FigureKind("ms"),
    "latency_p99_ms": FigureKind("ms"),
    "latency_p999_ms": FigureKind("ms"),
    "latency_max_ms": FigureKind("ms"),
}


def outcome_figures(workload: Workload, outcome: Outcome) -> dict[str, tuple[float, FigureKind]]:
    """Figures of an outcome, including the workload's own.

    A workload figure that the workload does not declare raises KeyError.
    """
    seconds = max(outcome.seconds, 1e-9)
    values: dict[str, float] = {
        "seconds": outcome.seconds,
        "transactions": outcome.transactions,
        "queries": outcome.queries,
        "errors": outcome.errors,
        "retries": outcome.retries,
    }
    if workload.counts_transactions:
        values |= {"tps": outcome.transactions / seconds, "qps": outcome.queries / seconds}
    if outcome.client_cpu_seconds is not None:
        values["client_cpu_seconds"] = outcome.client_cpu_seconds
    if outcome.latency is not None:
        latency = outcome.latency
        values |= {
            "latency_average_ms": latency.average_ms,
            "latency_p50_ms": latency.p50_ms,
            "latency_p95_ms": latency.p95_ms,
            "latency_p99_ms": latency.p99_ms,
            "latency_max_ms": latency.max_ms,
        }
        if latency.p999_ms is not None:
            values["latency_p999_ms"] = latency.p999_ms
    figures = {name: (value, FIGURES[name]) for name, value in values.items()}
    for name, value in outcome.figures.items():
        figures[name] = (value, workload.figures[name])
    return figures
