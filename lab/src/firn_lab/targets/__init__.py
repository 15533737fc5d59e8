"""The measured servers: one file per kind of target. See `base`."""

from firn_lab.targets.base import TARGETS, Address, Budget, Settings, Target, make_target

__all__ = ["TARGETS", "Address", "Budget", "Settings", "Target", "make_target"]
