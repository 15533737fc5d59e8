"""TPC-H: the 22 queries over data of tpchgen. See `workload`."""

from firn_lab.workloads.tpch.workload import TpcH

__all__ = ["TpcH"]
