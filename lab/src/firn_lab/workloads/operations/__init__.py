"""A list of single-user operations. See `workload`."""

from firn_lab.workloads.operations.workload import Operations

__all__ = ["Operations"]
