"""Runs a plan: loads each dataset on each target, measures its cases, records everything.

Cases with the same dataset share the loaded tables. A case is measured in blocks of short rounds,
one on each target in random order, until its ratios are precise enough or its time is over. Only
one server works at a time. The others are frozen with warm caches, or stopped if the machine's
memory cannot hold all of them.

A failure stays local: a target that fails is left out of the dataset, and the others continue.
Ctrl-C, a full disk and a failing store end the run. In every case the finished rounds stay in the
store, every server is ended and its data removed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from firn_lab import __version__
from firn_lab.clock import Clock
from firn_lab.errors import DiskFull, LabError, Paused
from firn_lab.plan.case import Plan
from firn_lab.plan.fairness import Breach, breaches, busy_breaches, peak_breaches
from firn_lab.runner.blocks import reference_of
from firn_lab.runner.dataset import DatasetRun
from firn_lab.runner.events import Listener
from firn_lab.runner.machine import available_memory_bytes, machine, require_space
from firn_lab.runner.prepared_plan import PreparedPlan, case_seconds, prepare_plan
from firn_lab.runner.progress import Progress
from firn_lab.runner.resume import EarlierSlices
from firn_lab.store.writer import Writer
from firn_lab.targets.target import Settings, Target
from firn_lab.workloads.workload import Workload

# A run stops when fewer bytes than this are free on the disk. So much space suffices to clean up.
FREE_BYTES_MIN = 1 << 30
# Bytes that are kept of the end of a failed server's log.
LOG_BYTES_MAX = 1 << 20
# Signals that end a run cleanly.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that a run with a time limit reserves per target and case, for checks and for coming to
# rest.
SETTLE_SECONDS = 4.0
# Memory that is assumed for a server beyond its cache, including a share for the rest of the
# machine.
SERVER_EXTRA_BYTES = 256 << 20


@dataclass(frozen=True)
class CaseRun:
    """A case of this run: its row in the store and its workload."""

    id: int
    workload: Workload


@dataclass(frozen=True)
class TargetRun:
    """A target of this run: its row in the store and the server."""

    id: int
    target: Target


class Runner:
    """Executes one run, or one slice of it: the part that one call with `--resume` does.

    `run` returns the status (ok, failed, paused, interrupted or aborted) and a message.
    """

    def __init__(
        self,
        plan: Plan,
        writer: Writer,
        listener: Listener,
        clock: Clock,
        scratch: Path,
        command: Sequence[str],
        free_bytes_min: int = FREE_BYTES_MIN,
        before: EarlierSlices | None = None,
        slice_seconds: float | None = None,
    ) -> None:
        """`before`: results of the run's earlier slices. `slice_seconds`: time limit of this slice.

        A slice is the part of a run that one call with `--resume` executes.
        """
        self.plan = plan
        self.writer = writer
        self.clock = clock
        self.scratch = scratch
        self.freeze = True
        self.progress = Progress()
        self.before = before or EarlierSlices(0)
        self.failures: list[str] = list(self.before.failures)
        # Number of cases that this call with `--resume` has finished; earlier calls may have
        # finished others.
        self.finished = 0
        # Peak resident bytes of each target over all rounds.
        self.peaks: dict[str, int] = {}
        self.id = 0
        self._listener = listener
        self._command = command
        self._free_bytes_min = free_bytes_min
        self._targets: list[Target] = []
        self._warned: set[tuple[str, str]] = set(self.before.warnings)
        self._began = clock.monotonic()
        self._slice_seconds = slice_seconds
        self._interrupted = False

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Reports an event to the terminal and to `watch`. A closed terminal is no error."""
        try:
            self._listener(kind, data)
        except OSError:
            self._listener = _nobody
        self.writer.event(self.id, kind, data)

    def require_space(self) -> None:
        """Raises DiskFull if the disk of the data or of the store is nearly full."""
        for directory in {self.scratch, self.writer.path.parent}:
            require_space(directory, self._free_bytes_min)

    def warn(self, rule: str, message: str) -> None:
        """Reports, once, a condition that makes results doubtful."""
        if (rule, message) not in self._warned:
            self._warned.add((rule, message))
            self.writer.warning(self.id, rule, message)
            self.tell("warning", {"rule": rule, "message": message})

    def case_seconds(self, case: CaseRun, targets: int) -> float:
        """Limit on the seconds in which this case is measured: its share of the time left."""
        minutes = self.plan.minutes
        if minutes is None:
            return case_seconds(self.plan, case.workload, targets)
        progress = self.progress
        settling = SETTLE_SECONDS * targets * progress.cases_left
        left = minutes * 60 - self._elapsed - progress.loads_left - settling
        progress.share(left)
        return max(0.0, left) / max(1, progress.cases_left)

    def require_time(self, seconds: float) -> None:
        """Raises Paused if less than `seconds` are left to this slice of the run.

        A slice is the part of a run that one call with `--resume` executes. A slice that has not
        finished any case goes on regardless, so that every slice makes progress.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        limit = self._slice_seconds
        if limit is not None and self.finished and self._elapsed + seconds > limit:
            raise Paused(f"{self.progress.cases_left} cases are left: go on with --resume")

    @property
    def _elapsed(self) -> float:
        return self.clock.monotonic() - self._began

    def step(self) -> None:
        """Reports the progress of the run."""
        progress = self.progress
        self.tell(
            "step",
            {
                "done": progress.done,
                "steps_total": progress.total,
                "seconds_left": round(progress.seconds_left),
            },
        )

    def park(self, target: Target) -> None:
        """Freezes or stops the target, so that another gets the machine.

        `thaw` and `start` wake it.
        """
        if self.freeze:
            target.freeze()
        else:
            target.stop()

    def run(self) -> tuple[str, str]:
        plan = self.plan
        parts = prepare_plan(plan, self.scratch)
        self._targets = parts.targets
        self.scratch.mkdir(parents=True, exist_ok=True)
        found = machine(self.scratch)
        if self.before.run:
            self.id = self.before.run
            self.writer.end(self.id, "running")
        else:
            self.id = self.writer.run(
                plan.name, self._command, __version__, found, plan.budget, plan.blocks
            )
        busy = busy_breaches(found["busy_cores"], found["cores"])
        # SIGTERM and the end of the terminal (SIGHUP) interrupt the run as Ctrl-C does.
        previous = {
            number: signal.signal(number, self._interrupt)
            for number in ENDING
            if signal.getsignal(number) is not signal.SIG_IGN  # nohup ignores SIGHUP; keep that.
        }
        try:
            status, message = self._guarded(lambda: self._run(parts, busy))
        finally:
            # Ignore signals while the servers and their data are removed.
            for number in previous:
                signal.signal(number, signal.SIG_IGN)
            self._tidy_up()
        # The data of the servers is removed by now, so even a disk that was full has room for the
        # last records of the run.
        try:
            self.tell("ended", {"status": status, "message": message})
            self.writer.end(self.id, status, message)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        return status, message

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupts the run, and sets a flag.

        The flag is needed because Python drops exceptions that a signal handler raises within
        finalizers and callbacks. `require_time` checks the flag before the next block.
        """
        self._interrupted = True
        raise KeyboardInterrupt

    def _guarded(self, work: Callable[[], None]) -> tuple[str, str]:
        """Runs the work; returns the status and message for the store."""
        try:
            work()
        except KeyboardInterrupt:
            return "interrupted", "stopped by hand; the rounds so far are kept"
        except DiskFull as error:
            return "aborted", f"{error}; the rounds so far are kept"
        except Paused as error:
            return "paused", str(error)
        except LabError as error:
            return "aborted", str(error)
        except Exception as error:
            _complain(traceback.format_exc())
            return "aborted", f"a mistake in the lab: {error!r}"
        return ("failed", "; ".join(self.failures)) if self.failures else ("ok", "")

    def _tidy_up(self) -> None:
        """Ends all servers and removes their data; reports failures and continues."""
        for target in self._targets:
            try:
                target.destroy()
            except Exception as error:
                _complain(f"{target.name} could not be removed: {error}")
        for template in self.scratch.glob("mariadb-template*"):
            shutil.rmtree(template, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.scratch.rmdir()

    def _run(self, parts: PreparedPlan, busy: list[Breach]) -> None:
        workloads = parts.workloads
        self.require_space()
        self._warn(busy)
        needed = len(self._targets) * (self.plan.budget.memory_bytes + SERVER_EXTRA_BYTES)
        fits = needed < available_memory_bytes()
        self.freeze = fits and not self.plan.budget.new_servers
        targets = self._look_at_targets()
        self._require_work(workloads, targets)
        cases = [CaseRun(self._case_row(each), each) for each in workloads]
        for row, case in zip(cases, self.plan.cases, strict=True):
            if case.published is not None:
                published = {"ratio": case.published, "by": self.plan.published_by}
                self.tell("published", {"case": row.workload.label, **published})
        left = [case for case in cases if case.workload.label not in self.before.finished]
        datasets: dict[str, list[CaseRun]] = {}
        for case in left:
            datasets.setdefault(case.workload.dataset, []).append(case)
        self._plan_progress(cases, left, datasets, targets)
        self._look_at_room(datasets, len(targets))
        for group in datasets.values():
            DatasetRun(self, group, targets).run()
        self._warn(peak_breaches(self.peaks))

    def _case_row(self, workload: Workload) -> int:
        """The case's id in the store; a resumed run has it already."""
        known = self.before.cases.get(workload.label)
        return known or self.writer.case(
            self.id,
            workload.name,
            workload.label,
            workload.dataset,
            workload.headline,
            workload.params,
        )

    def _require_work(self, workloads: list[Workload], targets: list[TargetRun]) -> None:
        """Raises LabError if no target supports any case."""
        why = {
            f"{workload.label} on {each.target.name}: {workload.supports(each.target)}"
            for workload in workloads
            for each in targets
        }
        if all(not reason.endswith(": ") for reason in why):
            raise LabError("no case can be measured: " + "; ".join(sorted(why)))

    def _plan_progress(
        self,
        cases: list[CaseRun],
        left: list[CaseRun],
        datasets: Mapping[str, list[CaseRun]],
        targets: list[TargetRun],
    ) -> None:
        def supporting(case: CaseRun) -> set[int]:
            return {each.id for each in targets if not case.workload.supports(each.target)}

        loads = sum(len(set().union(*map(supporting, group))) for group in datasets.values())
        names = [target.target.name for target in targets]
        self.progress = Progress(
            loads,
            {
                case.workload.label: case_seconds(self.plan, case.workload, len(supporting(case)))
                for case in left
            },
        )
        if self.plan.minutes is not None:
            self.progress.share(self.plan.minutes * 60 - self._elapsed - self.progress.loads_left)
        self.tell(
            "started",
            {
                "cases": [case.workload.label for case in cases],
                "targets": names,
                "reference": reference_of(names),
                "steps_total": self.progress.total,
                "seconds_left": round(self.progress.seconds_left),
            },
        )

    def _look_at_room(self, datasets: Mapping[str, list[CaseRun]], targets: int) -> None:
        """Warns if the disk may be too small for a dataset on all servers at once.

        It is only a warning, because engines that compress need less.
        """
        free = shutil.disk_usage(self.scratch).free - self._free_bytes_min
        for dataset, cases in datasets.items():
            needed = max(case.workload.about_bytes for case in cases) * targets
            if needed > free:
                self.warn(
                    "room",
                    f"{dataset} takes about {needed / 2**30:.1f} GiB on {targets} servers, "
                    f"{max(0, free) / 2**30:.1f} GiB can be used in {self.scratch}",
                )

    def _look_at_targets(self) -> list[TargetRun]:
        """Starts each target, records its settings and checks the rules of fairness.

        Targets that do not start are left out.
        """
        found: list[TargetRun] = []
        settings: dict[str, Settings] = {}
        for target in self._targets:
            self.tell("phase", {"phase": "start", "target": target.name})
            try:
                target.start()
                settings[target.name] = target.settings()
                self.park(target)
            except (LabError, OSError) as error:
                self.fail(target, str(error))
                target.destroy()
                continue
            row = self.before.targets.get(target.name) or self.writer.target(
                self.id, target.name, target.spec, settings[target.name]
            )
            found.append(TargetRun(row, target))
        if not found:
            raise LabError("no target can be measured: " + "; ".join(self.failures))
        self._warn(breaches(settings))
        return found

    def _warn(self, found: list[Breach]) -> None:
        for breach in found:
            self.warn(breach.rule, breach.message)

    def fail(self, target: Target, message: str) -> None:
        """Reports that a target is left out. Its data will be removed; its log is kept."""
        self.failures.append(message.splitlines()[0])
        kept = self._keep_log(target)
        if kept is not None:
            message += f"\nthe end of its log is kept in {kept}"
        self.tell("failure", {"target": target.name, "message": message})

    def _keep_log(self, target: Target) -> Path | None:
        """Appends the end of the server's log to a file beside the store."""
        log = target.error_log
        if log is None or not log.is_file():
            return None
        kept = self.writer.path.parent / f"run-{self.id}" / f"{log.parent.name}.log"
        try:
            kept.parent.mkdir(exist_ok=True)
            with log.open("rb") as source, kept.open("ab") as copy:
                source.seek(max(0, log.stat().st_size - LOG_BYTES_MAX))
                copy.write(source.read())
        except OSError as error:
            _complain(f"{log} could not be kept: {error}")
            return None
        return kept


def _complain(text: str) -> None:
    """Prints to stderr, which may be closed."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _nobody(kind: str, data: Mapping[str, Any]) -> None:
    """The listener after the terminal is closed."""
