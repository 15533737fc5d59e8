"""The cases of one dataset: load it on each target, measure the rounds, record the space."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from firn_lab.errors import CheckFailed, DiskFull, LabError, TargetDied
from firn_lab.intervals import INTERVAL_MIN
from firn_lab.measures.measure import ROUND_MEASURES, STATE_MEASURES, Moment, Probe, RoundMeasure
from firn_lab.measures.throughput import FIGURES as OUTCOME_FIGURES
from firn_lab.measures.throughput import outcome_figures
from firn_lab.plan.fairness import BUSY_TOLERANCE
from firn_lab.runner.blocks import Blocks, order
from firn_lab.runner.disk_watch import DiskWatch
from firn_lab.runner.failure import why
from firn_lab.runner.load_by_others import LoadByOthers
from firn_lab.runner.sampler import Sampler, totals
from firn_lab.runner.settling import OWED_TOLERANCE, Settling
from firn_lab.targets.target import RestState
from firn_lab.workloads.workload import FigureKind, Outcome, Second, Workload

if TYPE_CHECKING:
    from firn_lab.runner.run import CaseRun, Runner, TargetRun

# Longest wait for a server to finish its background work.
REST_SECONDS_MAX = 240.0
# Fraction of the machine's processor time that the load driver may use without a warning.
CLIENT_SHARE_MAX = 1 / 3
LOAD_SECONDS = FigureKind("s")
REST_SECONDS = FigureKind("s")
OTHER_CORES = FigureKind("")


class DatasetRun:
    """Runs the cases of a dataset. `_targets` are the targets that have not failed so far."""

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
        try:
            self._run()
        finally:
            for target in self._all:
                self._leave(target)

    def _leave(self, target: TargetRun) -> None:
        """Ends the clients of all cases on the target."""
        for case in self._cases:
            case.workload.leave(target.target)

    def _run(self) -> None:
        runner = self._runner
        for case in self._cases:
            for target in self._all:
                reason = case.workload.supports(target.target)
                if reason:
                    message = f"{case.workload.label} on {target.target.name}: {reason}"
                    runner.tell("unsupported", {"message": message})
        runner.require_time(runner.progress.loads_left + self._expected(self._cases[0]))
        for target in list(self._targets):
            seconds = self._attempt(target, self._load)
            runner.progress.load_over(seconds)
            runner.step()
        for case in self._cases:
            runner.require_time(self._expected(case))
            self._measure_case(case)
            runner.finished += 1
            runner.progress.case_over(case.workload.label)
            runner.step()
        for target in list(self._targets):
            self._attempt(target, self._finish)
        for target in self._all:
            target.target.destroy()

    def _expected(self, case: CaseRun) -> float:
        return self._runner.case_seconds(case, len(self._offering(case)))

    def _offering(self, case: CaseRun) -> list[TargetRun]:
        """Targets that have not failed and that support the case."""
        return [each for each in self._targets if not case.workload.supports(each.target)]

    def _measure_case(self, case: CaseRun) -> None:
        """Measures block by block, until the ratios are precise enough or the time is over."""
        runner, label = self._runner, case.workload.label
        targets = self._offering(case)
        names = [each.target.name for each in targets]
        blocks = Blocks(names, _better(case.workload), runner.before.values.get(label, {}))
        settling = {each.id: Settling() for each in targets}
        for target in targets if runner.freeze else ():
            self._attempt(target, lambda each: self._warm_up(case, each))
        until = runner.clock.monotonic() + runner.case_seconds(case, len(targets))
        longest = 0.0
        while self._goes_on(case, blocks, until, longest):
            runner.require_time(longest)
            began = runner.clock.monotonic()
            self._block(case, blocks, blocks.next, settling)
            longest = max(longest, runner.clock.monotonic() - began)
        last = blocks.next
        for target in self._offering(case):
            self._attempt(target, lambda each: self._end_case(case, each, last, settling[each.id]))
        within = runner.plan.within
        told = {"blocks": last, "concluded": blocks.concluded(within), "within": within}
        runner.tell("case", {"case": label, **told})

    def _goes_on(self, case: CaseRun, blocks: Blocks, until: float, longest: float) -> bool:
        runner = self._runner
        if not self._offering(case) or blocks.next >= runner.plan.blocks:
            return False
        if blocks.concluded(runner.plan.within):
            return False
        in_time = runner.clock.monotonic() + longest <= until
        return in_time or blocks.next < INTERVAL_MIN

    def _block(
        self, case: CaseRun, blocks: Blocks, number: int, settling: Mapping[int, Settling]
    ) -> None:
        """Runs a round on each target, in random order."""
        runner, label = self._runner, case.workload.label
        by_name = {each.target.name: each for each in self._offering(case)}
        for name in order(list(by_name), case.workload.params.seed, label, number):
            target = by_name[name]
            if case.workload.writes:
                os.sync()  # Otherwise this round pays for dirty pages of other servers.
            found: list[float | None] = []

            def work(each: TargetRun, found: list[float | None] = found) -> None:
                found.append(self._round(case, each, number, settling[each.id]))

            if self._attempt(target, work) is None:
                blocks.leave_out(name)
            elif found[0] is not None:
                blocks.add(number, name, found[0])
        blocks.close(number)
        ratios = {n: [i.value, i.low, i.high] for n, i in blocks.ratios().items()}
        runner.tell("block", {"case": label, "block": number, "ratios": ratios})

    def _attempt(self, target: TargetRun, work: Callable[[TargetRun], None]) -> float | None:
        """Wakes the server, does the work and parks the server; returns the seconds that this took.

        If the work fails, the target is left out of this dataset and the result is None. A full
        disk ends the run instead.
        """
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
        """Calls `work`, which wakes or parks the server.

        It passes a LabError on unchanged. `_explained` would replace it by the news that the server
        is dead, but a server that wakes or parks need not be running.
        """
        try:
            with DiskWatch(self._runner.require_space):
                work(target)
        except Exception as error:
            self._runner.require_space()
            if isinstance(error, LabError):
                raise
            raise why(target.target, error, self._runner.require_space) from error

    def _leave_out(self, target: TargetRun, error: LabError) -> None:
        self._leave(target)
        self._runner.fail(target.target, f"{self.dataset}: {error}")
        self._targets.remove(target)
        target.target.destroy()

    def _wake(self, target: TargetRun) -> None:
        target.target.thaw()
        target.target.start()

    def _park(self, target: TargetRun) -> None:
        if not self._runner.freeze:
            self._leave(target)
        self._runner.park(target.target)
        if not self._runner.freeze:
            self._warm = {warm for warm in self._warm if warm[1] != target.id}

    def _explained(self, target: TargetRun, work: Callable[[], Any]) -> Any:
        """Does the work. Any error becomes a LabError with the real cause, such as a dead server.

        A disk that fills up meanwhile interrupts the work, even a statement that runs for an hour.
        """
        try:
            with DiskWatch(self._runner.require_space):
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
        # Wait for rest before the space is recorded: until then much of the load is only in memory
        # and in the log, and the tables are too small.
        rest_seconds = self._rest(target, f"{self.dataset} after the load")
        times = {
            "load_seconds": (seconds, LOAD_SECONDS),
            "rest_seconds": (rest_seconds, REST_SECONDS),
        }
        self._state(target, "load", times)

    def _finish(self, target: TargetRun) -> None:
        """Records the space at rest, and stops the server."""
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

    def _round(
        self, case: CaseRun, target: TargetRun, number: int, settling: Settling
    ) -> float | None:
        """Runs and records one round, even if it fails; returns its headline if it counts."""
        runner, workload = self._runner, case.workload
        runner.require_space()
        context = {"target": target.target.name, "case": workload.label, "round": number}
        samples: list[tuple[int, str, float]] = []
        figures: dict[str, tuple[float, FigureKind]] = {}
        outcome: Outcome | None = None
        status, message, failure = "ok", "", None
        started = runner.clock.now().isoformat(timespec="milliseconds")
        try:
            if not runner.freeze:
                self._warm_up(case, target)
            fresh = self._prepare(case, target)
            if fresh:
                self._rest(target, f"{workload.label} before a round")
            self._phase("measure", target, case=workload.label, round=number)
            started = runner.clock.now().isoformat(timespec="milliseconds")
            outcome, figures = self._measure(case, target, number, context, samples, settling)
            if fresh or not workload.timed:
                self._check(case, target)
        except CheckFailed as error:
            status, message = "wrong", str(error)
            runner.failures.append(f"{workload.label} on {target.target.name}: {message}")
        except LabError as error:
            status, message, failure = "failed", str(error), error
        self._record(case, target, number, started, (status, message), figures, outcome, samples)
        if failure is not None:
            # A failed round does not exclude its target from the run. Only a dead server excludes
            # it, and a full disk ends the run.
            if isinstance(failure, TargetDied | DiskFull):
                raise failure
            runner.failures.append(f"{workload.label} on {target.target.name}: {message}")
        value = figures.get(workload.headline)
        return None if status != "ok" or value is None else value[0]

    def _record(
        self,
        case: CaseRun,
        target: TargetRun,
        number: int,
        started: str,
        ended: tuple[str, str],
        figures: Mapping[str, tuple[float, FigureKind]] = {},
        outcome: Outcome | None = None,
        samples: Sequence[tuple[int, str, float]] = (),
    ) -> None:
        """Stores a round and reports it. `ended`: the status of the round, and a message."""
        runner, workload = self._runner, case.workload
        status, message = ended
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
        runner.tell(
            "round",
            {
                "target": target.target.name,
                "case": workload.label,
                "round": number,
                "status": status,
                "message": message,
                "headline": workload.headline,
                "figures": {name: value for name, (value, _) in figures.items()},
            },
        )

    def _check(self, case: CaseRun, target: TargetRun) -> None:
        self._phase("check", target, case=case.workload.label)
        wrong = self._explained(target, lambda: case.workload.check(target.target))
        if wrong:
            raise CheckFailed("; ".join(wrong))

    def _end_case(self, case: CaseRun, target: TargetRun, number: int, settling: Settling) -> None:
        """Ends a case on one target: waits for work that the engine deferred, and checks the
        data."""
        workload = case.workload
        workload.leave(target.target)
        if workload.writes and not self._writes_later(case, target):
            # Record the space right after the last round, before the server's background work
            # reduces it. `_settle` then waits for that work, and the space at rest is recorded
            # apart.
            self._state(target, "update", {})
        if workload.writes:
            self._settle(case, target, settling)
        if workload.timed:
            try:
                self._check(case, target)
            except CheckFailed as error:
                started = self._runner.clock.now().isoformat(timespec="milliseconds")
                message = f"{workload.label} on {target.target.name}: {error}"
                self._runner.failures.append(message)
                self._record(case, target, number, started, ("wrong", str(error)))

    def _settle(self, case: CaseRun, target: TargetRun, settling: Settling) -> None:
        """Waits for work that the engine deferred past the last round, and adds it to the
        figures."""
        runner, label = self._runner, case.workload.label
        measures = _measures(target)
        probes = [measure.begin(target.target) for measure in measures]
        self._rest(target, f"{label} after its rounds")
        os.sync()  # Count the bytes, too, that the server left in the page cache.
        settling.rest_over(totals(probes))
        if not case.workload.counts_transactions:
            return
        kinds = {
            f"settled_{name}_per_transaction": kind
            for measure in measures
            for name, kind in measure.settled.items()
        }
        figures = {name: (value, kinds[name]) for name, value in settling.figures().items()}
        runner.writer.state(runner.id, target.id, label, "settled", figures)
        if settling.owed > OWED_TOLERANCE:
            runner.warn(
                "owed",
                f"{label} on {target.target.name}: throughput is without {settling.owed:.0%} of "
                "the processor time of its rounds, for work that was put off until after the last; "
                "processor time and bytes of a transaction are with it",
            )

    def _warm_up(self, case: CaseRun, target: TargetRun) -> None:
        """Warms the caches for the case, unless they are still warm from an earlier call."""
        if (case.id, target.id) in self._warm:
            return
        self._phase("warm", target, case=case.workload.label)
        clock, disk = self._runner.clock, case.workload.params.disk
        self._explained(target, lambda: target.target.use_disk(disk))
        self._explained(target, target.target.fill_outer_caches)
        self._explained(target, lambda: case.workload.warm(target.target, clock))
        self._warm.add((case.id, target.id))

    def _prepare(self, case: CaseRun, target: TargetRun) -> bool:
        self._phase("prepare", target, case=case.workload.label)
        workload, sink = case.workload, self._load_sink(target)
        done: bool = self._explained(target, lambda: workload.prepare(target.target, sink))
        return done

    def _rest(self, target: TargetRun, where: str) -> float:
        """Waits for the server to come to rest; returns the seconds.

        Warns if it is not at rest in time.
        """
        self._phase("rest", target)
        rest: RestState = self._explained(target, lambda: target.target.rest(REST_SECONDS_MAX))
        if rest.owes:
            message = (
                f"{where}, {target.target.name} was not at rest after {REST_SECONDS_MAX:.0f} s"
            )
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
        settling: Settling,
    ) -> tuple[Outcome, dict[str, tuple[float, FigureKind]]]:
        runner, server = self._runner, target.target
        measures = _measures(target)
        probes: list[Probe] = [measure.begin(server) for measure in measures]
        kinds = {name: kind for measure in measures for name, kind in measure.figures.items()}
        sampler = Sampler(
            runner.clock,
            probes,
            lambda kind, data: runner.tell(kind, {**context, **data}),
        )
        others = LoadByOthers()
        try:
            with sampler:
                outcome: Outcome = self._explained(
                    target,
                    lambda: case.workload.measure(server, runner.clock, sampler, number),
                )
        finally:
            samples += sampler.samples
        figures = outcome_figures(case.workload, outcome)
        figures |= {
            name: (value, kinds[name])
            for name, value in sampler.finish(outcome).items()
            if case.workload.counts_transactions or not name.endswith("_per_transaction")
        }
        settling.round_over(sampler.totals(), outcome.all_transactions)
        figures["other_cores"] = (others.cores(), OTHER_CORES)
        self._look_at_client(case, target, outcome)
        self._look_at_others(case, target, figures["other_cores"][0])
        if "resident_peak_bytes" in figures:
            peak = round(figures["resident_peak_bytes"][0])
            runner.peaks[server.name] = max(peak, runner.peaks.get(server.name, 0))
        return outcome, figures

    def _writes_later(self, case: CaseRun, target: TargetRun) -> bool:
        """Whether a later case of this dataset changes the data again."""
        later = self._cases[self._cases.index(case) + 1 :]
        return any(c.workload.writes and not c.workload.supports(target.target) for c in later)

    def _look_at_client(self, case: CaseRun, target: TargetRun, outcome: Outcome) -> None:
        """Warns if the load driver takes so much of the machine that it limits the servers."""
        machine = outcome.seconds * (os.cpu_count() or 1)
        if outcome.client_cpu_seconds and outcome.client_cpu_seconds > CLIENT_SHARE_MAX * machine:
            self._runner.warn(
                "client",
                f"{case.workload.label} on {target.target.name}: the load driver took more than "
                "a third of the machine's processor time, which bounds what the server can show",
            )

    def _look_at_others(self, case: CaseRun, target: TargetRun, cores: float) -> None:
        """Warns if other programs used much of the machine during a round.

        It does not judge a round on a server that the lab did not start: that server's own
        processor time would look like the work of another program.
        """
        machine = os.cpu_count() or 1
        if target.target.pids and cores > BUSY_TOLERANCE * machine:
            self._runner.warn(
                "busy",
                f"{case.workload.label} on {target.target.name}: the machine was at other work "
                f"within a round, with more than a tenth of its processors",
            )

    def _phase(self, phase: str, target: TargetRun, **more: Any) -> None:
        data = {"phase": phase, "target": target.target.name, "dataset": self.dataset, **more}
        self._runner.tell("phase", data)


def _measures(target: TargetRun) -> list[RoundMeasure]:
    made = [ROUND_MEASURES[name]() for name in ROUND_MEASURES]
    return [measure for measure in made if measure.supports(target.target)]


def _better(workload: Workload) -> str:
    """Whether more or less of the headline figure is better: "higher" or "lower"."""
    kind = OUTCOME_FIGURES.get(workload.headline) or workload.figures[workload.headline]
    return kind.better


@dataclasses.dataclass(frozen=True)
class _LoadSink:
    """The sink of a load, which reports only progress."""

    tell: Callable[[str, Mapping[str, Any]], None]

    def second(self, second: Second) -> None: ...

    def measured(self) -> None: ...

    def progress(self, done: float) -> None:
        self.tell("progress", {"done": done})
