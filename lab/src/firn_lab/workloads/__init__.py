"""The workloads: one file or folder each. See `workload`."""

from firn_lab.workloads.workload import (
    WORKLOADS,
    Outcome,
    Params,
    RoundPart,
    Second,
    Sink,
    Workload,
    make_workload,
)

__all__ = [
    "WORKLOADS",
    "Outcome",
    "Params",
    "RoundPart",
    "Second",
    "Sink",
    "Workload",
    "make_workload",
]
