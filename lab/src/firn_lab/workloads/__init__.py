"""The workloads: one file or folder each. See `base`."""

from firn_lab.workloads.base import (
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
