"""Rules that keep a comparison honest. What breaks one is recorded and shown in red."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firn_lab.plan.base import Plan
from firn_lab.targets.base import Settings

# Settings round sizes to pages and segments.
MEMORY_TOLERANCE = 0.05
ROUNDS_MIN = 3


@dataclass(frozen=True)
class Breach:
    """rule: memory, durability, rounds or page-cache."""

    rule: str
    message: str


def breaches(plan: Plan, settings: Mapping[str, Settings]) -> list[Breach]:
    """What is unfair between the servers, as they describe themselves."""
    found = []
    if plan.rounds < ROUNDS_MIN:
        found.append(
            Breach("rounds", f"{plan.rounds} rounds only: {ROUNDS_MIN} or more show the spread")
        )
    if len(settings) < 2:
        return found
    sizes = {name: each.memory_bytes for name, each in settings.items()}
    known = [size for size in sizes.values() if size is not None]
    unknown = [name for name, size in sizes.items() if size is None]
    if known and max(known) > min(known) * (1 + MEMORY_TOLERANCE):
        listed = ", ".join(f"{name} {_mib(size)}" for name, size in sizes.items())
        found.append(Breach("memory", f"memory differs: {listed}"))
    if unknown:
        found.append(Breach("memory", f"memory is not known: {', '.join(unknown)}"))
    durable = {name: each.durable for name, each in settings.items()}
    if len(set(durable.values())) > 1:
        words = {True: "at each commit", False: "not at each commit", None: "unknown"}
        listed = ", ".join(f"{name} {words[value]}" for name, value in durable.items())
        found.append(Breach("durability", f"durability differs: {listed}"))
    buffered = [name for name, each in settings.items() if each.version.startswith("PostgreSQL")]
    if plan.budget.direct_io and 0 < len(buffered) < len(settings):
        found.append(
            Breach(
                "page-cache",
                f"{', '.join(buffered)} reads through the page cache, which is memory beyond its "
                "share; the others read past it",
            )
        )
    return found


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:.0f} MiB"
