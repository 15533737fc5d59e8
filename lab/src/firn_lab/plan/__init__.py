"""The content of a run: plans, one file each, and the rules of fairness. See `case`."""

from firn_lab.plan.case import PLANS, Case, Plan, parse_case

__all__ = ["PLANS", "Case", "Plan", "parse_case"]
