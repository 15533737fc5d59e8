"""A shop like DVD Store: customers log in, browse, and buy. See `workload`."""

from firn_lab.workloads.shop.workload import Shop

__all__ = ["Shop"]
