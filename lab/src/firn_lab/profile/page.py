"""Formats a profile as a table and a picture: microseconds per transaction, by engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firn_lab.intervals import single
from firn_lab.profile.groups import UNNAMED, group
from firn_lab.profile.perf import Sample
from firn_lab.report.markdown import table

# Groups with a smaller share are added up as "others".
SMALL_SHARE = 0.01
TOP = 5
STRIPPED = (
    "The server's program holds no names of InnoDB's functions: install its debug symbols "
    "(mariadb-server-core-dbgsym, from Debian's debug archive) to see InnoDB by layer."
)


@dataclass
class Profile:
    """Profile of one target. `groups` and `functions` (by group) hold processor microseconds."""

    target: str
    cpu_us: float = 0.0
    switches: float = 0.0
    transactions: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    functions: dict[str, Counter[str]] = field(default_factory=dict)

    def add(
        self,
        samples: Sequence[Sample],
        cpu_us: float,
        switches: float,
        transactions: int,
        plugins: Mapping[str, str] = {},
    ) -> None:
        """Adds a round: its samples, and the totals of its transactions."""
        self.cpu_us += cpu_us
        self.switches += switches
        self.transactions += transactions
        whole = sum(each.weight for each in samples)
        for each in samples:
            name = group(each, plugins)
            # Scale the samples of each round so that they add up to the round's processor time.
            # Otherwise a round with more samples would count more.
            self.groups[name] += each.weight / whole * cpu_us  # type: ignore[assignment]
            own = self.functions.setdefault(name, Counter())
            own[each.frames[0].name] += each.weight / whole * cpu_us  # type: ignore[assignment]

    def each(self, name: str) -> float:
        """Microseconds per transaction in a group."""
        return self.groups[name] / max(1, self.transactions)


def ordered(profiles: Sequence[Profile]) -> list[str]:
    """Groups large enough to show, by kind (server, engines, libraries, kernel), then by size."""
    most: dict[str, float] = {}
    for profile in profiles:
        whole = sum(profile.groups.values()) or 1.0
        for name, value in profile.groups.items():
            most[name] = max(most.get(name, 0.0), value / whole)
    kinds = ("server", UNNAMED.partition(":")[0], "innodb", "firn", "rocksdb", "library", "kernel")

    def place(name: str) -> tuple[int, float]:
        kind = name.partition(":")[0]
        return (kinds.index(kind) if kind in kinds else len(kinds), -most[name])

    return sorted((name for name, share in most.items() if share >= SMALL_SHARE), key=place)


def page(case: str, profiles: Sequence[Profile], picture: str) -> str:
    """The profile as Markdown."""
    head = ["µs a transaction", *(profile.target for profile in profiles)]
    shown = ordered(profiles)
    rows = [[name, *(f"{profile.each(name):.2f}" for profile in profiles)] for name in shown]
    rest = [sum(p.each(name) for name in p.groups if name not in shown) for p in profiles]
    rows.append(["others", *(f"{value:.2f}" for value in rest)])
    rows.append(["all", *(f"{p.cpu_us / max(1, p.transactions):.2f}" for p in profiles)])
    rows.append(["context switches", *(f"{p.switches / max(1, p.transactions):.2f}"
                                       for p in profiles)])  # fmt: skip
    lines = [
        f"# {case}", "",
        "Processor time of the server for a transaction, by what it was spent on: shares of perf's "
        "samples of the time that the kernel counted.", "",
        f"![{case}]({picture})", "", *table(head, rows),
    ]  # fmt: skip
    if UNNAMED in shown:
        lines += [STRIPPED, ""]
    for profile in profiles:
        lines += [f"## {profile.target}", ""]
        largest = [[name, f"{profile.each(name):.2f}", _top(profile, name)] for name in
                   sorted(profile.groups, key=lambda each: -profile.groups[each])[:15]]  # fmt: skip
        lines += table(["group", "µs", "most of it"], largest)
    return "\n".join(lines)


def _top(profile: Profile, name: str) -> str:
    found = profile.functions[name].most_common(TOP)
    count = max(1, profile.transactions)
    return ", ".join(f"`{_short(text)}` {value / count:.2f}" for text, value in found)


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:67] + "…"


def draw(case: str, profiles: Sequence[Profile], path: Path) -> None:
    """Draws the groups as bars, with the engines side by side."""
    # Imported here because the import takes half a second.
    from firn_lab.report.drawing import Bar, bars

    groups = {
        name: {p.target: Bar(single(p.each(name))) for p in profiles} for name in ordered(profiles)
    }
    words = f"{case}: µs of the server's processor time for a transaction"
    bars(groups, [profile.target for profile in profiles], "", words, 1.0, path)


def to_json(case: str, profiles: Sequence[Profile]) -> Mapping[str, Any]:
    """The profile as JSON values."""
    return {
        "case": case,
        "targets": {
            p.target: {
                "transactions": p.transactions,
                "cpu_us_per_transaction": p.cpu_us / max(1, p.transactions),
                "switches_per_transaction": p.switches / max(1, p.transactions),
                "us_by_group": {name: p.each(name) for name in sorted(p.groups)},
            }
            for p in profiles
        },
    }
