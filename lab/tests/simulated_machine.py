"""A machine that never was: throughput of two servers in turn, with drifts and bursts.

The logarithm of what a server does in a moment is its own, plus a drift that comes back (an
autoregressive process), plus noise of each moment, less bursts of other work that come at any time
and take some seconds. Both servers meet the same machine, at their own times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Moments a second.
STEPS = 10


@dataclass(frozen=True)
class Machine:
    """drift: its standard deviation, and the seconds after which it is forgotten; noise: of a
    second; bursts: how many a minute, seconds of each on average, the most that one takes."""

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
    """Of each moment, around 1."""
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
    """Throughput of a server that does `effect` times as much, and of the other one, in blocks of
    two rounds in an order drawn at random. The lead goes with waking a server."""
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
