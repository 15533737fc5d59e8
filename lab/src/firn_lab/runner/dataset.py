"""The cases of one dataset: load it on each target, measure the rounds, take the space."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from firn_lab.errors import CheckFailed, DiskFull, LabError, TargetDied
from firn_lab.measures.base import ROUND_MEASURES, STATE_MEASURES, Moment, Probe
from firn_lab.measures.outcome import outcome_figures
from firn_lab.plan.fairness import BUSY_TOLERANCE
from firn_lab.runner.failure import why
from firn_lab.runner.others import Others
from firn_lab.runner.sampler import Sampler
from firn_lab.runner.watch import Watch
from firn_lab.targets.base import Rest
from firn_lab.workloads.base import FigureKind, Outcome, Second

if TYPE_CHECKING:
    from firn_lab.runner.run import CaseRun, Runner, TargetRun

# How long a server may take to write what it owes: a load or all rounds; one round.
REST_SECONDS_MAX = 240.0
SETTLE_SECONDS_MAX = 60.0
# Of the machine's processor time, for the load driver.
CLIENT_SHARE_MAX = 1 / 3
LOAD_SECONDS = FigureKind("s")
REST_SECONDS = FigureKind("s")


class DatasetRun:
    """`_targets` are those that have not failed so far."""

    def __init__(self, runner: Runner, cases: list[CaseRun], targets: list[TargetRun]) -> None:
        self._runner = runner
        self._cases = cases
        self._all = targets
        self._targets = [
            target
            for target in targets
            if any(not case.workload.supports(target.target) for case in cases)
        ]
        self.dataset = cases[0].workload.dataset
        self._warm: set[tuple[int, int]] = set()

    def run(self) -> None:
        runner = self._runner
        for case in self._cases:
            for target in self._all:
                reason = case.workload.supports(target.target)
                if reason:
                    message = f"{case.workload.label} on {target.target.name}: {reason}"
                    runner.tell("unsupported", {"message": message})
        for target in list(self._targets):
            seconds = self._attempt(target, self._load)
            runner.progress.load_over(seconds)
            runner.step()
        for number in range(runner.plan.rounds):
            for case in self._cases:
                self._round_of(case, number)
        for target in list(self._targets):
            self._attempt(target, self._finish)
        for target in self._all:
            target.target.destroy()

    def _round_of(self, case: CaseRun, number: int) -> None:
        """Every target in turn, in another order each round."""
        progress = self._runner.progress
        supported = [t for t in self._all if not case.workload.supports(t.target)]
        targets = [t for t in supported if t in self._targets]
        for _ in range(len(supported) - len(targets)):
            progress.round_over(case.workload.label, None)
        for place in order(len(targets), number):
            seconds = self._attempt(targets[place], lambda t: self._round(case, t, number))
            progress.round_over(case.workload.label, seconds)
            self._runner.step()

    def _attempt(self, target: TargetRun, work: Callable[[TargetRun], None]) -> float | None:
        """Work on a server that is awake; returns the seconds. When it fails the target is left out
        of this dataset; a full disk ends the run."""
        clock = self._runner.clock
        began = clock.monotonic()
        try:
            self._switch(target, self._wake)
            work(target)
            self._switch(target, self._park)
        except DiskFull:
            raise
        except LabError as error:
            self._leave_out(target, error)
            return None
        return clock.monotonic() - began

    def _switch(self, target: TargetRun, work: Callable[[TargetRun], None]) -> None:
        """Wakes or parks it. A server that is not running is no cause here, but what follows."""
        try:
            with Watch(self._runner.require_space):
                work(target)
        except Exception as error:
            self._runner.require_space()
            if isinstance(error, LabError):
                raise
            raise why(target.target, error, self._runner.require_space) from error

    def _leave_out(self, target: TargetRun, error: LabError) -> None:
        self._runner.fail(target.target, f"{self.dataset}: {error}")
        self._targets.remove(target)
        target.target.destroy()

    def _wake(self, target: TargetRun) -> None:
        target.target.thaw()
        target.target.start()

    def _park(self, target: TargetRun) -> None:
        self._runner.park(target.target)
        if not self._runner.freeze:
            self._warm = {warm for warm in self._warm if warm[1] != target.id}

    def _explained(self, target: TargetRun, work: Callable[[], Any]) -> Any:
        """Errors of drivers become the lab's, with the real cause. A disk that fills up ends the
        work, whatever it waits for."""
        try:
            with Watch(self._runner.require_space):
                return work()
        except Exception as error:
            raise why(target.target, error, self._runner.require_space) from error

    def _load(self, target: TargetRun) -> None:
        runner, server = self._runner, target.target
        workload = next(c.workload for c in self._cases if not c.workload.supports(server))
        runner.require_space()
        self._phase("load", target)
        began = runner.clock.monotonic()

        def load() -> None:
            server.create_database()
            workload.load(server, self._load_sink(target))

        self._explained(target, load)
        seconds = runner.clock.monotonic() - began
        # Before it rests, an engine holds much of a load in memory and in its log: no size to show.
        rest_seconds = self._rest(target, f"{self.dataset} after the load")
        times = {
            "load_seconds": (seconds, LOAD_SECONDS),
            "rest_seconds": (rest_seconds, REST_SECONDS),
        }
        self._state(target, "load", times)

    def _finish(self, target: TargetRun) -> None:
        """Space at rest."""
        seconds = self._rest(target, f"{self.dataset} after the rounds")
        self._state(target, "rest", {"rest_seconds": (seconds, REST_SECONDS)})
        target.target.stop()

    def _state(
        self,
        target: TargetRun,
        moment: Moment,
        figures: Mapping[str, tuple[float, FigureKind]],
    ) -> None:
        self._phase("state", target)
        values = dict(figures)
        for name in STATE_MEASURES:
            measure = STATE_MEASURES[name]()
            if measure.costly and name not in self._runner.plan.measures:
                continue
            if not measure.supports(target.target):
                continue
            taken = self._explained(target, partial(measure.take, target.target, moment))
            for figure, value in taken.items():
                values[figure] = (value, measure.figures[figure.partition(".")[0]])
        self._runner.writer.state(self._runner.id, target.id, self.dataset, moment, values)

    def _round(self, case: CaseRun, target: TargetRun, number: int) -> None:
        """One round, recorded whatever comes of it."""
        runner, workload = self._runner, case.workload
        runner.require_space()
        context = {"target": target.target.name, "case": workload.label, "round": number}
        samples: list[tuple[int, str, float]] = []
        figures: dict[str, tuple[float, FigureKind]] = {}
        outcome: Outcome | None = None
        status, message, failure = "ok", "", None
        started = runner.clock.now().isoformat(timespec="milliseconds")
        try:
            warmed = self._warm_up(case, target) and workload.writes
            if self._prepare(case, target) or warmed:
                self._rest(target, f"{workload.label} before a round")
            os.sync()  # What others left in the page cache is not this round's to write.
            self._phase("measure", target, case=workload.label, round=number)
            started = runner.clock.now().isoformat(timespec="milliseconds")
            outcome, figures = self._measure(case, target, number, context, samples)
            wrong = self._explained(target, lambda: workload.check(target.target))
            if wrong:
                raise CheckFailed("; ".join(wrong))
        except CheckFailed as error:
            status, message = "wrong", str(error)
            runner.failures.append(f"{workload.label} on {target.target.name}: {message}")
        except LabError as error:
            status, message, failure = "failed", str(error), error
        runner.writer.round(
            runner.id,
            case.id,
            target.id,
            number,
            started,
            status,
            message,
            self.dataset,
            figures if status != "failed" else {},
            outcome.parts if outcome is not None else (),
            samples,
        )
        shown = {name: value for name, (value, _) in figures.items()}
        ended = {"status": status, "message": message, "headline": workload.headline}
        runner.tell("round", {**context, **ended, "figures": shown})
        if failure is not None:
            # A statement that fails once need not end it for the target: a dead server does.
            if isinstance(failure, TargetDied | DiskFull):
                raise failure
            runner.failures.append(f"{workload.label} on {target.target.name}: {message}")

    def _warm_up(self, case: CaseRun, target: TargetRun) -> bool:
        """Whether there was need to."""
        if (case.id, target.id) in self._warm:
            return False
        self._phase("warm", target, case=case.workload.label)
        clock = self._runner.clock
        self._explained(target, lambda: case.workload.warm(target.target, clock))
        self._warm.add((case.id, target.id))
        return True

    def _prepare(self, case: CaseRun, target: TargetRun) -> bool:
        self._phase("prepare", target, case=case.workload.label)
        workload, sink = case.workload, self._load_sink(target)
        done: bool = self._explained(target, lambda: workload.prepare(target.target, sink))
        return done

    def _rest(self, target: TargetRun, where: str, seconds_max: float = REST_SECONDS_MAX) -> float:
        """Seconds until the server came to rest; where it did not, the run says so."""
        self._phase("rest", target)
        rest: Rest = self._explained(target, lambda: target.target.rest(seconds_max))
        if rest.owes:
            message = f"{where}, {target.target.name} was not at rest after {seconds_max:.0f} s"
            self._runner.warn("rest", f"{message}: {rest.owes}")
        return rest.seconds

    def _load_sink(self, target: TargetRun) -> _LoadSink:
        runner, name = self._runner, target.target.name
        return _LoadSink(lambda kind, data: runner.tell(kind, {"target": name, **data}))

    def _measure(
        self,
        case: CaseRun,
        target: TargetRun,
        number: int,
        context: Mapping[str, Any],
        samples: list[tuple[int, str, float]],
    ) -> tuple[Outcome, dict[str, tuple[float, FigureKind]]]:
        runner, server = self._runner, target.target
        measures = [measure for measure in (ROUND_MEASURES[name]() for name in ROUND_MEASURES)
                    if measure.supports(server)]  # fmt: skip
        probes: list[Probe] = [measure.begin(server) for measure in measures]
        kinds = {name: kind for measure in measures for name, kind in measure.figures.items()}
        sampler = Sampler(
            runner.clock,
            probes,
            lambda kind, data: runner.tell(kind, {**context, **data}),
        )
        others = Others()
        try:
            with sampler:
                outcome: Outcome = self._explained(
                    target,
                    lambda: case.workload.measure(server, runner.clock, sampler, number),
                )
        finally:
            samples += sampler.samples
        self._look_at_client(case, target, outcome)
        self._look_at_others(case, target, others)
        figures = outcome_figures(case.workload, outcome)
        figures |= {
            name: (value, kinds[name])
            for name, value in sampler.finish(outcome).items()
            if case.workload.counts_transactions or not name.endswith("_per_transaction")
        }
        if "resident_peak_bytes" in figures:
            peak = round(figures["resident_peak_bytes"][0])
            runner.peaks[server.name] = max(peak, runner.peaks.get(server.name, 0))
        if self._is_last_write(case, target, number):
            self._state(target, "update", {})  # Before the server has tidied up.
        if case.workload.writes:
            seconds = self._rest(target, f"{case.workload.label} after a round", SETTLE_SECONDS_MAX)
            figures["settle_seconds"] = (seconds, REST_SECONDS)
            if case.workload.counts_transactions:
                settled = sampler.settled(outcome)
                figures |= {name: (value, kinds[name]) for name, value in settled.items()}
        return outcome, figures

    def _is_last_write(self, case: CaseRun, target: TargetRun, number: int) -> bool:
        """Whether nothing changes the data after this round."""
        workloads = [each.workload for each in self._cases]
        writing = [w for w in workloads if w.writes and not w.supports(target.target)]
        return number == self._runner.plan.rounds - 1 and case.workload in writing[-1:]

    def _look_at_client(self, case: CaseRun, target: TargetRun, outcome: Outcome) -> None:
        """A load driver that takes much of the machine measures itself."""
        machine = outcome.seconds * (os.cpu_count() or 1)
        if outcome.client_cpu_seconds and outcome.client_cpu_seconds > CLIENT_SHARE_MAX * machine:
            self._runner.warn(
                "client",
                f"{case.workload.label} on {target.target.name}: the load driver took more than "
                "a third of the machine's processor time, which bounds what the server can show",
            )

    def _look_at_others(self, case: CaseRun, target: TargetRun, others: Others) -> None:
        """Of a server that is not the lab's nobody knows what is its own."""
        machine = os.cpu_count() or 1
        if target.target.pids and others.cores() > BUSY_TOLERANCE * machine:
            self._runner.warn(
                "busy",
                f"{case.workload.label} on {target.target.name}: the machine was at other work "
                f"within a round, with more than a tenth of its processors",
            )

    def _phase(self, phase: str, target: TargetRun, **more: Any) -> None:
        data = {"phase": phase, "target": target.target.name, "dataset": self.dataset, **more}
        self._runner.tell("phase", data)


def order(count: int, number: int) -> list[int]:
    """Who is measured after whom in a round: a design balanced for carry-over (Williams, 1949).
    Within `count` rounds each is first once; within as many, or twice as many where `count` is odd,
    each follows every other equally often."""
    sign = -1 if count % 2 and number % 2 else 1
    zigzag = ((step + 1) // 2 * (1 if step % 2 else -1) for step in range(count))
    return [(number + sign * step) % count for step in zigzag]


@dataclasses.dataclass(frozen=True)
class _LoadSink:
    """Of a load: only progress is told."""

    tell: Callable[[str, Mapping[str, Any]], None]

    def second(self, second: Second) -> None: ...

    def progress(self, done: float) -> None:
        self.tell("progress", {"done": done})
