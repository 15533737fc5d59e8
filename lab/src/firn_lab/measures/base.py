"""Two kinds of measures.

A round measure watches a server while a round runs: `begin` gives a probe, which is sampled once a
second (a raw series) and finished with figures. Another probe watches it come to rest after the
rounds of a case. A state measure looks at what the server holds at a
moment: after the load, right after the rounds, and at rest.

    @ROUND_MEASURES.register("cpu")
    class Cpu(RoundMeasure):
        figures = {"cpu_seconds": FigureKind("s")}
        def begin(self, target): return CpuProbe(target)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from firn_lab.registry import Registry
from firn_lab.targets.base import Target
from firn_lab.workloads.base import FigureKind, Outcome

# When a figure was taken. "round" belongs to a round, the others to a dataset on a target.
Moment = Literal["round", "load", "update", "rest"]


class Probe(ABC):
    """One measure of one round on one target."""

    @abstractmethod
    def sample(self) -> Mapping[str, float]:
        """Values of this second, by figure name; kept as series."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        """Figures of the round with its lead: when the lead is over is known to the load driver
        alone, and on a busy machine heard of late."""

    def totals(self) -> Mapping[str, float]:
        """The server's usage until now, with the lead, by name of the work. It is added up until
        the server is at rest after the last round: see `settled` of the measure."""
        return {}


class RoundMeasure(ABC):
    """Watches a server during rounds. `figures` names all it can return."""

    figures: ClassVar[Mapping[str, FigureKind]]
    # By name of the work in a probe's totals: all of it for a transaction, with what was put off
    # until after the rounds, is the figure `settled_NAME_per_transaction`.
    settled: ClassVar[Mapping[str, FigureKind]] = {}

    def supports(self, target: Target) -> bool:
        """By default: private servers only."""
        return target.pid is not None

    @abstractmethod
    def begin(self, target: Target) -> Probe: ...


class StateMeasure(ABC):
    """Looks at a server that is running and not busy."""

    figures: ClassVar[Mapping[str, FigureKind]]
    # Costly ones are taken only when asked for (--measure NAME) and by the plan `full`.
    costly: ClassVar[bool] = False

    def supports(self, target: Target) -> bool:
        """By default: private servers only."""
        return target.data_dir is not None

    @abstractmethod
    def take(self, target: Target, moment: Moment) -> Mapping[str, float]:
        """Figures of now. A name may continue after a dot: `table_bytes.sbtest1`; the part
        before the dot is in `figures`."""


ROUND_MEASURES: Registry[Callable[[], RoundMeasure]] = Registry("measure", "firn_lab.measures")
STATE_MEASURES: Registry[Callable[[], StateMeasure]] = Registry("measure", "firn_lab.measures")
