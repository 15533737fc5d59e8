"""Base classes of the two kinds of measures.

A round measure watches a server during a round: `begin` returns a probe, which is sampled once a
second (a raw series) and finished with figures. Another probe watches the server come to rest after
the rounds of a case. A state measure inspects the server at a moment: after the load, right after
the rounds, and at rest.

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
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome

# When a figure is measured. A figure with the moment "round" belongs to one round; at the other
# moments a figure is measured once for a dataset on a target.
Moment = Literal["round", "load", "update", "rest"]


class Probe(ABC):
    """Watches one target during one round."""

    @abstractmethod
    def sample(self) -> Mapping[str, float]:
        """Values since the last sample, by figure name; the store keeps them as series."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        """Figures of the round including its lead.

        Only the load driver knows the end of the lead, and its report arrives late on a busy
        machine.
        """

    def totals(self) -> Mapping[str, float]:
        """The server's usage since `begin`, including the lead, by name (processor time, bytes …).

        The runner adds the totals of all rounds and of the rest after them; see the measure's
        `settled`.
        """
        return {}


class RoundMeasure(ABC):
    """Watches a server during rounds. `figures` declares every figure that it can return."""

    figures: ClassVar[Mapping[str, FigureKind]]
    # The keys are names of totals that a probe returns. For each of them, the total per
    # transaction, including work that the engine deferred until after the rounds, is the figure
    # `settled_NAME_per_transaction`.
    settled: ClassVar[Mapping[str, FigureKind]] = {}

    def supports(self, target: Target) -> bool:
        """Whether the target can be measured; by default only private servers."""
        return target.pid is not None

    @abstractmethod
    def begin(self, target: Target) -> Probe: ...


class StateMeasure(ABC):
    """Inspects a server that is running but not under load."""

    figures: ClassVar[Mapping[str, FigureKind]]
    # Costly measures are taken only on request (--measure NAME) and by the plan `full`.
    costly: ClassVar[bool] = False

    def supports(self, target: Target) -> bool:
        """Whether the target can be measured; by default only private servers."""
        return target.data_dir is not None

    @abstractmethod
    def take(self, target: Target, moment: Moment) -> Mapping[str, float]:
        """Current figures. A name may have a suffix after a dot, such as `table_bytes.sbtest1`;
        the part before the dot is declared in `figures`."""


ROUND_MEASURES: Registry[Callable[[], RoundMeasure]] = Registry("measure", "firn_lab.measures")
STATE_MEASURES: Registry[Callable[[], StateMeasure]] = Registry("measure", "firn_lab.measures")
