"""Rules of a fair comparison. A breach is recorded and shown in red."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firn_lab.targets.target import Settings

# Relative difference of the servers' memory settings that still counts as equal: servers round
# sizes, to whole pages for example.
MEMORY_TOLERANCE = 0.05
# Relative difference of the servers' peak memory that still counts as equal: servers need different
# amounts outside their caches.
PEAK_TOLERANCE = 0.25
# Fraction of the processors that may be busy with other work.
BUSY_TOLERANCE = 0.1


@dataclass(frozen=True)
class Breach:
    """A broken rule; `rule` is memory, durability, isolation, page-cache or busy."""

    rule: str
    message: str


def breaches(settings: Mapping[str, Settings]) -> list[Breach]:
    """Unfair differences between the servers' own settings."""
    found: list[Breach] = []
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
    synced = {True: "at each commit", False: "not at each commit"}
    durable = {name: synced.get(each.durable) for name, each in settings.items()}
    found += _alike("durability", "durability", durable)
    found += _alike("isolation", "isolation", {n: s.isolation for n, s in settings.items()})
    path = {True: "through it, which is memory beyond its share", False: "past it"}
    reads = {name: path.get(each.buffered) for name, each in settings.items()}
    found += _alike("page-cache", "use of the page cache", reads)
    return found


def _alike(rule: str, what: str, values: Mapping[str, str | None]) -> list[Breach]:
    """A breach of `rule` if the servers' values differ or one is unknown."""
    different = len(set(values.values())) > 1
    if not different and None not in values.values():
        return []
    listed = ", ".join(f"{name} {value or 'unknown'}" for name, value in values.items())
    return [Breach(rule, f"{what} {'differs' if different else 'is not known'}: {listed}")]


def peak_breaches(peaks: Mapping[str, int]) -> list[Breach]:
    """A breach if the servers' peak memory over the run differs, which their settings do not
    show."""
    if len(peaks) < 2 or max(peaks.values()) <= min(peaks.values()) * (1 + PEAK_TOLERANCE):
        return []
    listed = ", ".join(f"{name} {_mib(size)}" for name, size in peaks.items())
    return [Breach("memory", f"resident memory differs by more than a quarter: {listed}")]


def busy_breaches(busy: float, cores: int) -> list[Breach]:
    """A breach if other programs use the machine before the run starts anything."""
    if busy <= BUSY_TOLERANCE * cores:
        return []
    return [Breach("busy", f"the machine was at other work: {busy:.1f} of {cores} cores")]


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:.0f} MiB"
