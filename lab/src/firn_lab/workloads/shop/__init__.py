"""A shop as DVD Store has it: customers log in, browse, and buy. See `workload`."""

from firn_lab.workloads.shop.workload import Shop

__all__ = ["Shop"]
