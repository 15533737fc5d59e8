"""Profiles a case on each target in turn, while the other targets are frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from firn_lab.clock import Clock
from firn_lab.errors import LabError
from firn_lab.measures.context_switches import Switches
from firn_lab.measures.cpu import Cpu
from firn_lab.profile.page import Profile
from firn_lab.profile.perf import Recording, samples
from firn_lab.targets import Target
from firn_lab.workloads import Second, Workload

ROUNDS = 3
# Attempts to profile a round: on a busy machine perf sometimes records nothing.
TRIES = 3


class Quiet:
    """A sink that ignores all reports."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None: ...

    def progress(self, done: float) -> None: ...


def load(target: Target, workload: Workload, clock: Clock) -> None:
    """Loads the data, warms the caches and freezes the target."""
    target.start()
    target.create_database()
    workload.load(target, Quiet())
    target.rest()
    workload.warm(target, clock)
    target.freeze()


def profile(
    targets: list[Target],
    workload: Workload,
    clock: Clock,
    scratch: Path,
    say: Callable[[str], None],
) -> list[Profile]:
    """Runs ROUNDS rounds on each target in turn."""
    found = {target.name: Profile(target.name) for target in targets}
    for target in targets:
        say(f"load {target.name}")
        load(target, workload, clock)
    for number in range(ROUNDS):
        for target in targets:
            say(f"round {number + 1} of {ROUNDS}  {target.name}")
            target.thaw()
            file, into = scratch / "perf.data", found[target.name]
            if not any(_round(target, workload, clock, number, file, into) for _ in range(TRIES)):
                raise LabError(f"perf has seen nothing of {target.name}")
            target.freeze()
    return list(found.values())


def _round(
    target: Target, workload: Workload, clock: Clock, number: int, file: Path, into: Profile
) -> bool:
    """Profiles one round; returns whether perf recorded samples."""
    pids = target.pids
    probes = [measure().begin(target) for measure in (Cpu, Switches)]
    recording = Recording(file)
    try:
        recording.begin()
        outcome = workload.measure(target, clock, Quiet(), number)
        cpu, switches = (probe.finish(outcome) for probe in probes)
    finally:
        recording.end()
    count = max(1, outcome.all_transactions)
    found = samples(file, pids)
    file.unlink()
    if found:
        cpu_us = cpu["cpu_seconds"] * 1e6
        into.add(found, cpu_us, switches["switches"], count, target.plugins())
    return bool(found)
