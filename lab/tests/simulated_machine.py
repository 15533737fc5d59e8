"""A simulated machine: the throughput of two servers in turn, with drifts and bursts.

The logarithm of the throughput at a moment is the server's own, plus a mean-reverting drift (an
autoregressive process), plus noise of each moment, minus bursts of other work that start at any
time and last some seconds. Both servers run on the same machine at different times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Simulated moments per second.
STEPS = 10


@dataclass(frozen=True)
class Machine:
    """Parameters of a machine. `drift` and `noise` are standard deviations of the logarithm.

    `drift_seconds`: time constant of the drift; `noise` is that of a second's mean; `bursts`:
    number per minute; `burst_seconds`: average length; `burst_depth`: largest fraction of
    throughput that a burst takes.
    """

    drift: float = 0.05
    drift_seconds: float = 20.0
    noise: float = 0.03
    bursts: float = 2.0
    burst_seconds: float = 4.0
    burst_depth: float = 0.35


MACHINES = {
    "calm": Machine(drift=0.02, burst_depth=0.1),
    "shared": Machine(),
    "drifting": Machine(drift=0.12, drift_seconds=100.0),
    "restless": Machine(drift=0.06, drift_seconds=4.0),
    "busy": Machine(bursts=5.0, burst_depth=0.6),
}


def throughput(machine: Machine, seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The throughput at each moment, which varies around 1."""
    count = int(seconds * STEPS)
    keep = float(np.exp(-1 / (machine.drift_seconds * STEPS)))
    steps = rng.normal(0, machine.drift * (1 - keep**2) ** 0.5, count)
    found = np.empty(count)
    state = rng.normal(0, machine.drift)
    for n in range(count):
        state = keep * state + steps[n]
        found[n] = state
    found += rng.normal(0, machine.noise * STEPS**0.5, count)
    at = rng.exponential(60 / machine.bursts)
    while at < seconds:
        length = rng.exponential(machine.burst_seconds)
        depth = rng.uniform(0, machine.burst_depth)
        found[int(at * STEPS) : int((at + length) * STEPS)] += np.log1p(-depth)
        at += rng.exponential(60 / machine.bursts)
    return np.exp(found)


def blocks(
    machine: Machine,
    count: int,
    rng: np.random.Generator,
    effect: float = 1.0,
    measured: float = 0.5,
    lead: float = 0.1,
) -> list[tuple[float, float]]:
    """Throughput of two servers in blocks of two rounds in random order.

    The first server is `effect` times as fast. The unmeasured lead models the waking of a server.
    """
    each = lead + measured
    done = throughput(machine, 2 * each * count + 1, rng)
    found = []
    for number in range(count):
        rounds = []
        for place in (0, 1):
            began = (2 * number + place) * each + lead
            rounds.append(float(done[int(began * STEPS) : int((began + measured) * STEPS)].mean()))
        if rng.random() < 0.5:
            rounds.reverse()
        found.append((rounds[0] * effect, rounds[1]))
    return found
