"""The stock sysbench: the program with its OLTP scripts and its own counting."""

from firn_lab.workloads.sysbench.workload import SCRIPTS, Sysbench

__all__ = ["SCRIPTS", "Sysbench"]
