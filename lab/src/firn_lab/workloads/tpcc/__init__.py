"""TPC-C with transactions and data of its specification (revision 5.11). See `workload`."""

from firn_lab.workloads.tpcc.workload import Tpcc

__all__ = ["Tpcc"]
