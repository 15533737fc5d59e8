"""A plan: cases × targets, the precision wanted, and the budget of every target.

On the command line a case is `NAME[:key=value,…]`; keys are those of Params or of the workload.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from firn_lab.disks import parse_disk
from firn_lab.errors import UsageError
from firn_lab.registry import Registry
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import Params

_NUMBERS = {
    "scale": float,
    "threads": int,
    "seconds": float,
    "lead_seconds": float,
    "warm_seconds": float,
    "seed": int,
}


@dataclass(frozen=True)
class Case:
    """A workload with its parameters.

    `published`: what others have published for the ratio, target ÷ reference; reports show it
    beside the measured one.
    """

    workload: str
    params: Params = field(default_factory=Params)
    published: float | None = None


@dataclass(frozen=True)
class Plan:
    """A set of cases and targets, and the conditions that end the measurement of a case.

    A case ends when its ratios are known to `within`, a fraction of the ratio, or after `blocks`
    blocks, or when its time is over. With `minutes`, the limit of the whole run including loads, a
    case gets its share of the remaining time; otherwise it gets `case_seconds`. `measures`: names
    of the costly state measures to take in addition. `published_by`: whose figures the cases have
    as `published`.
    """

    name: str
    summary: str
    cases: tuple[Case, ...]
    targets: tuple[str, ...] = ("engine:innodb", "engine:firn")
    within: float = 0.025
    blocks: int = 400
    minutes: float | None = None
    case_seconds: float = 240.0
    budget: Budget = field(default_factory=Budget)
    measures: tuple[str, ...] = ()
    published_by: str = ""


PLANS: Registry[Plan] = Registry("plan", "firn_lab.plan")


def parse_case(text: str, base: Params) -> Case:
    """Parses `oltp_read_write:threads=16,zipf=0.9`; `base` gives the other parameters."""
    name, _, rest = text.partition(":")
    fields: dict[str, float | int | str] = {}
    options: dict[str, str] = dict(base.options)
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{text}: {item!r} is not of the form key=value")
        if key in _NUMBERS:
            try:
                fields[key] = _NUMBERS[key](value)
            except ValueError:
                raise UsageError(f"{text}: {key} takes a number, not {value!r}") from None
        elif key == "disk":
            try:
                fields[key] = parse_disk(value)
            except ValueError as error:
                raise UsageError(f"{text}: {error}") from None
        else:
            options[key] = value
    return Case(name, replace_params(base, fields, options))


def replace_params(
    base: Params, fields: Mapping[str, float | int | str], options: Mapping[str, str]
) -> Params:
    """A copy of `base` with these fields replaced and these options."""
    values = {**dataclasses.asdict(base), **fields, "options": dict(options)}
    return Params(**values)
