"""A workload: data it loads, work it measures, and a check of what it left behind.

The runner calls, for each target: `supports`; `load` once a dataset; `warm` before the first round;
`prepare` and `measure` once a round; `leave` after the last one; `check` after the last round, and
after each one that had new tables or has no time limit. Workloads of one run with the same
`dataset` share the loaded tables.

    @WORKLOADS.register("users")
    class Users(Workload):
        summary = "a web user-account table: by key, by secondary index, covered, LIMIT 20"
        options = {"rows": "1000000"}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from firn_lab.clock import Clock
from firn_lab.errors import UsageError
from firn_lab.histogram import Latency
from firn_lab.registry import Registry
from firn_lab.targets.base import Dialect, Target


@dataclass(frozen=True)
class Params:
    """How much, how many, how long. `options` are the workload's own, all checked by it."""

    # 1 is the size that the workload has by itself; 0.1 a tenth of it.
    scale: float = 1.0
    threads: int = 8
    # Of a round that is measured; the load has run for `lead_seconds` by then.
    seconds: float = 0.5
    lead_seconds: float = 0.05
    # Once, before the first round.
    warm_seconds: float = 5.0
    seed: int = 920967
    # Bytes of each target's cache (the runner sets it): data may be sized by it.
    memory_bytes: int = 512 << 20
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Second:
    """One second of a round, as the load driver counted it."""

    second: int
    transactions: float
    queries: float
    errors: float = 0.0
    retries: float = 0.0
    p95_ms: float | None = None


@dataclass(frozen=True)
class RoundPart:
    """One kind of transaction, or one statement of a list, within a round."""

    name: str
    count: int
    seconds: float
    latency: Latency | None = None
    errors: int = 0
    retries: int = 0


@dataclass(frozen=True)
class Outcome:
    """One round. `seconds` is the time measured; errors were given up, retries were repeated;
    `client_cpu_seconds` is the processor time of the load driver, where it is known. `lead`:
    transactions of the time before, which the server had to work for as well.

    `figures` are the workload's own numbers by name; their units are declared in
    `Workload.figures`.
    """

    transactions: int
    queries: int
    seconds: float
    errors: int = 0
    retries: int = 0
    latency: Latency | None = None
    parts: tuple[RoundPart, ...] = ()
    client_cpu_seconds: float | None = None
    lead: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def all_transactions(self) -> int:
        """With those of the lead."""
        return self.lead + self.transactions


class Sink(Protocol):
    """Takes the seconds of a round while it runs: kept as raw series, shown by `watch`."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None:
        """The lead is over: throughput counts from here on. A workload without a lead need not say
        so."""

    def progress(self, done: float) -> None:
        """The part of the work that is done, 0 to 1, of workloads without a time limit."""


@dataclass(frozen=True)
class FigureKind:
    """The unit of a figure, and whether more of it is better."""

    unit: str
    better: str = "lower"  # or "higher"


class Workload(ABC):
    """One workload with its parameters. Files hold classes; the runner makes an object a case."""

    name: str
    summary: ClassVar[str] = ""
    # Names and defaults of the options it knows.
    options: ClassVar[Mapping[str, str]] = {}
    # Figures of its own that an Outcome may carry.
    figures: ClassVar[Mapping[str, FigureKind]] = {}
    # The figure that reports show first: "tps", "seconds", or one of its own.
    headline: ClassVar[str] = "tps"
    # Whether a round lasts `seconds`; otherwise as long as its work takes.
    timed: ClassVar[bool] = True
    # The servers it can talk to.
    dialects: ClassVar[tuple[Dialect, ...]] = ("mysql", "postgresql")
    # Whether its transactions are work that one could ask for more or less of, at a price. A list
    # of unlike statements has none: then there is no throughput, and nothing counts by transaction.
    counts_transactions: ClassVar[bool] = True
    # Whether it changes data: then what the server owes after the last round is waited for and
    # counted, and space is taken again.
    writes: ClassVar[bool] = True
    # Whether rounds leave as many rows as they find. Where they do not, faster ones leave more (or
    # fewer): then only the space after the load is compared.
    keeps_rows: ClassVar[bool] = True

    def __init__(self, name: str, params: Params) -> None:
        self.name = name
        self.params = params
        for key in params.options:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(f"workload {name} has no option {key!r}; known: {known}")

    def option(self, key: str) -> str:
        """The value of an option, given or default."""
        return self.params.options.get(key, self.options[key])

    @property
    def label(self) -> str:
        """The case's name in reports: what differs between cases of one workload."""
        given = " ".join(f"{key}={value}" for key, value in sorted(self.params.options.items()))
        scale = "" if self.params.scale == 1 else f" scale={self.params.scale:g}"
        return f"{self.name} threads={self.params.threads}{scale} {given}".strip()

    @property
    def about_bytes(self) -> float:
        """Bytes of its data on each target, as InnoDB stores it, within a factor of 1.5."""
        return 0.0

    @property
    def dataset(self) -> str:
        """Cases with the same text share loaded tables. By default: nobody shares."""
        return self.label

    def supports(self, target: Target) -> str:
        """ "" when it runs on the target, else why not, in a few words."""
        return "" if target.dialect in self.dialects else f"{' and '.join(self.dialects)} only"

    @abstractmethod
    def load(self, target: Target, sink: Sink) -> None:
        """Makes tables in an empty database `lab` and fills them. Same seed, same data."""

    def warm(self, target: Target, clock: Clock) -> None:
        """Brings caches to where they stay; nothing is counted."""
        return None

    def prepare(self, target: Target, sink: Sink) -> bool:
        """Before each round, unseen by clock and measures: makes anew what rounds use up. Whether
        it did: then the server is brought to rest before it is measured."""
        return False

    @abstractmethod
    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        """The round of a number, from 0. Random draws depend on it and on the seed, so that no
        round repeats another, and on nothing else. Raises TargetDied, DiskFull or any error of the
        driver when it cannot."""

    def leave(self, target: Target) -> None:
        """Ends the clients that `measure` has kept for the next round: after the last one, and when
        the server is to end."""
        return None

    def check(self, target: Target) -> list[str]:
        """Problems of the data, a line each; empty when there are none."""
        return []


WorkloadFactory = Callable[[str, Params], Workload]
WORKLOADS: Registry[WorkloadFactory] = Registry("workload", "firn_lab.workloads")


def make_workload(name: str, params: Params) -> Workload:
    """The workload of a name, with parameters."""
    return WORKLOADS[name](name, params)
