"""The measured servers: one file per kind of target. See `target`."""

from firn_lab.targets.target import TARGETS, Address, Budget, Settings, Target, make_target

__all__ = ["TARGETS", "Address", "Budget", "Settings", "Target", "make_target"]
