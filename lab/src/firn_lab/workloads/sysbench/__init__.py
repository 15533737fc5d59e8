"""The stock sysbench, run as it is: `sysbench` the program, its OLTP scripts, its own counting."""

from firn_lab.workloads.sysbench.workload import SCRIPTS, Sysbench

__all__ = ["SCRIPTS", "Sysbench"]
