"""The content of a run: plans, one file each, and the rules of fairness. See `base`."""

from firn_lab.plan.base import PLANS, Case, Plan, parse_case

__all__ = ["PLANS", "Case", "Plan", "parse_case"]
