"""TPC-C, transactions and data as its specification (revision 5.11) has them. See `workload`."""

from firn_lab.workloads.tpcc.workload import Tpcc

__all__ = ["Tpcc"]
