"""Collects the per-second samples of a round: from the load driver, and from the probes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from firn_lab.clock import Clock
from firn_lab.measures.measure import Probe
from firn_lab.workloads.workload import Outcome, Second

# A list of samples. A sample has the second of the round, the name of the series and the value.
Samples = list[tuple[int, str, float]]
Tell = Callable[[str, Mapping[str, Any]], None]


class Sampler:
    """The sink of one round.

    A thread samples the probes each second. When the load driver reports a second, `tell` gets it
    together with the probes' latest values.
    """

    def __init__(self, clock: Clock, probes: list[Probe], tell: Tell) -> None:
        self.samples: Samples = []
        self._clock = clock
        self._probes = probes
        self._tell = tell
        self._latest: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._began = clock.monotonic()
        self._second = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(self._began + self._second + 1 - self._clock.monotonic()):
            values: dict[str, float] = {}
            with self._lock:
                if self._clock.monotonic() < self._began + self._second + 1:
                    continue  # Meanwhile the lead has ended, which restarted the count of seconds.
                for probe in self._probes:
                    # A probe fails if the server ends or restarts at this moment; then this second
                    # has no values of the probe.
                    with contextlib.suppress(OSError):
                        values.update(probe.sample())
                self.samples += [(self._second, name, value) for name, value in values.items()]
                self._latest = values
                self._second += 1

    def second(self, second: Second) -> None:
        values = {
            "tps": second.transactions,
            "qps": second.queries,
            "errors": second.errors,
            "retries": second.retries,
        }
        if second.p95_ms is not None:
            values["p95_ms"] = second.p95_ms
        with self._lock:
            self.samples += [(second.second, name, value) for name, value in values.items()]
            latest = dict(self._latest)
        self._tell("second", {"second": second.second, **latest, **values})

    def measured(self) -> None:
        """Ends the lead: drops its samples and restarts the count of seconds."""
        with self._lock:
            for probe in self._probes:
                probe.sample()
            self.samples.clear()
            self._began, self._second = self._clock.monotonic(), 0

    def progress(self, done: float) -> None:
        self._tell("progress", {"done": done})

    def finish(self, outcome: Outcome) -> dict[str, float]:
        """The probes' figures. The sampling thread must have ended."""
        return {k: v for probe in self._probes for k, v in probe.finish(outcome).items()}

    def totals(self) -> dict[str, float]:
        """The server's usage including the lead. The sampling thread must have ended."""
        return totals(self._probes)


def totals(probes: Iterable[Probe]) -> dict[str, float]:
    """Totals of all probes, in one mapping."""
    return {name: value for probe in probes for name, value in probe.totals().items()}
