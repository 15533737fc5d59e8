"""A workload: data to load, work to measure, and a check of the data afterwards.

For each target the runner calls: `supports`; `load` once per dataset; `warm` before the first
round; `prepare` and `measure` once per round; `leave` after the last one; `check` after the last
round, and after each round that had new tables or has no time limit. Workloads of one run with the
same `dataset` share the loaded tables.

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
from firn_lab.targets.target import Dialect, Target


@dataclass(frozen=True)
class Params:
    """Sizes and times of a case. The workload itself defines and checks its `options`."""

    # Factor on the workload's default size.
    scale: float = 1.0
    threads: int = 8
    # Measured seconds of a round, after `lead_seconds` of unmeasured load.
    seconds: float = 0.5
    lead_seconds: float = 0.05
    # Duration of the warm-up before the first round.
    warm_seconds: float = 5.0
    seed: int = 920967
    # The target's cache, set by the runner; data may be sized relative to it.
    memory_bytes: int = 512 << 20
    # Speed of the emulated disk that holds the tables in rounds (see `disks`); "" is the real disk.
    disk: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Second:
    """One second of a round, as counted by the load driver."""

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
    """The result of one round.

    `seconds` is the measured time. `errors` were given up, `retries` were repeated.
    `client_cpu_seconds` is the processor time of the load driver, if known. `lead` counts the
    transactions of the lead, which cost the server work as well. `figures` are the workload's own
    numbers by name; `Workload.figures` declares their units.
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
        """Transactions including those of the lead."""
        return self.lead + self.transactions


class Sink(Protocol):
    """Receives the seconds of a running round, for the raw series and for `watch`."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None:
        """Reports the end of the lead: throughput counts from here on.

        A workload without a lead need not call it.
        """

    def progress(self, done: float) -> None:
        """Reports the finished fraction, 0 to 1, of work without a time limit."""


@dataclass(frozen=True)
class FigureKind:
    """The unit of a figure, and whether more or less of it is better."""

    unit: str
    better: str = "lower"  # "lower" or "higher"


class Workload(ABC):
    """One workload with its parameters; the runner creates an object for each case."""

    name: str
    summary: ClassVar[str] = ""
    # Names and defaults of the options.
    options: ClassVar[Mapping[str, str]] = {}
    # The workload's own figures, which an Outcome may contain.
    figures: ClassVar[Mapping[str, FigureKind]] = {}
    # The figure that reports show first: "tps", "seconds", or one of the workload's own.
    headline: ClassVar[str] = "tps"
    # Whether a round lasts `seconds`; otherwise it lasts as long as its work takes.
    timed: ClassVar[bool] = True
    # The protocols of servers on which the workload runs.
    dialects: ClassVar[tuple[Dialect, ...]] = ("mysql", "postgresql")
    # Whether the workload's transactions are comparable units of work. A list of different
    # statements has no such unit, so it gets no throughput and no figure per transaction.
    counts_transactions: ClassVar[bool] = True
    # Whether the workload changes data. If so, the runner waits after the last round for the work
    # that the engine deferred, adds it to the figures, and records the space again.
    writes: ClassVar[bool] = True
    # Whether rounds preserve the number of rows. If not, faster rounds leave more or fewer rows,
    # and only the space after the load is comparable.
    keeps_rows: ClassVar[bool] = True

    def __init__(self, name: str, params: Params) -> None:
        self.name = name
        self.params = params
        for key in params.options:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(f"workload {name} has no option {key!r}; known: {known}")

    def option(self, key: str) -> str:
        """The value of an option, or its default."""
        return self.params.options.get(key, self.options[key])

    @property
    def label(self) -> str:
        """The case's name in reports; it must differ between cases of one workload."""
        given = " ".join(f"{key}={value}" for key, value in sorted(self.params.options.items()))
        scale = "" if self.params.scale == 1 else f" scale={self.params.scale:g}"
        disk = f" disk={self.params.disk}" if self.params.disk else ""
        return f"{self.name} threads={self.params.threads}{scale}{disk} {given}".strip()

    @property
    def about_bytes(self) -> float:
        """Approximate size of the data in InnoDB, to plus or minus a half."""
        return 0.0

    @property
    def dataset(self) -> str:
        """Cases with equal text share the loaded tables. By default no case shares them."""
        return self.label

    def supports(self, target: Target) -> str:
        """ "" if the workload runs on the target, else the reason why not."""
        if target.dialect not in self.dialects:
            return f"{' and '.join(self.dialects)} only"
        emulated = not self.params.disk or target.emulates_disk
        return "" if emulated else "only FIRN's tables can be on an emulated disk"

    @abstractmethod
    def load(self, target: Target, sink: Sink) -> None:
        """Creates and fills tables in an empty database `lab`. Equal seeds give equal data."""

    def warm(self, target: Target, clock: Clock) -> None:
        """Warms the caches; nothing is measured."""
        return None

    def prepare(self, target: Target, sink: Sink) -> bool:
        """Recreates before each round the data that rounds use up; it is not measured.

        Returns whether it did so: then the runner brings the server to rest before it measures.
        """
        return False

    @abstractmethod
    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        """Runs and measures the round with this number, from 0.

        Random draws depend only on the number and the seed, so that no round repeats another and
        all targets get the same. Raises TargetDied, DiskFull or any error of the driver.
        """

    def leave(self, target: Target) -> None:
        """Ends the clients that `measure` keeps between rounds.

        The runner calls it after the last round, and before it ends the server.
        """
        return None

    def check(self, target: Target) -> list[str]:
        """Errors in the data, one per line; empty if there are none."""
        return []


WorkloadFactory = Callable[[str, Params], Workload]
WORKLOADS: Registry[WorkloadFactory] = Registry("workload", "firn_lab.workloads")


def make_workload(name: str, params: Params) -> Workload:
    """Creates the workload with this name."""
    return WORKLOADS[name](name, params)
