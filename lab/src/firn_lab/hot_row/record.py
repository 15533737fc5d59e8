"""Rounds of sessions on one row, engine beside engine, for several numbers of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from firn_lab.errors import CheckFailed
from firn_lab.hot_row.sessions import TIMED_OUT, HotRow, Mix, Round
from firn_lab.measures.memory import resident_bytes
from firn_lab.processes import processor_seconds
from firn_lab.runner.blocks import order
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.workloads.child_processes import Child


@dataclass(frozen=True)
class Times:
    """The rounds of each number of sessions: how many, their lead and their measured seconds."""

    blocks: int
    lead: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """One round; the fields are those of the raw data."""

    target: str
    sessions: int
    block: int
    seconds: float
    commits: int
    commits_per_second: float
    cpu_us_per_commit: float
    client_cpu_seconds: float
    latency_p50_ms: float
    latency_p99_ms: float
    latency_p999_ms: float
    latency_max_ms: float
    timed_out: int
    killed: int
    drain_seconds: float
    resident_bytes: float

    def raw(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    targets: Sequence[MySqlTarget], mixes: Sequence[Mix], times: Times, say: Callable[[str], None]
) -> Iterator[Result]:
    """Measures in blocks of a round on each target, in random order.

    The sessions of all targets are connected; those of which no round is under way do nothing.
    Raises CheckFailed if a count is wrong.
    """
    for mix in mixes:
        clients: dict[str, Child] = {}
        try:
            for target in targets:
                say(f"{target.name}: {mix.sessions:,} sessions connect")
                client = Child(f"the client of {target.name}", _client(target, mix, times))
                clients[target.name] = client
                client.receive()  # Wait until all are connected.
            by_name = {target.name: target for target in targets}
            for block in range(times.blocks):
                for name in order(list(by_name), mix.sessions, "hot row", block):
                    yield _round(by_name[name], clients[name], mix, block)
            for name, client in clients.items():
                client.send("check")
                wrong: list[str] = client.receive()
                if wrong:
                    raise CheckFailed(f"{name}: {'; '.join(wrong[:5])}")
                say(f"{name}: the count of {mix.sessions:,} sessions is exact")
        finally:
            for client in clients.values():
                client.end()


def _client(target: MySqlTarget, mix: Mix, times: Times) -> Callable[[Connection], None]:
    """The sessions on one target, in a process with descriptors of its own."""

    def work(pipe: Connection) -> None:
        with HotRow(target.connect, target.engine, mix) as row:
            row.create()
            row.connect()
            pipe.send("ready")
            while True:
                if pipe.recv() == "check":
                    pipe.send(row.check())
                else:
                    done = row.round(
                        times.lead, times.seconds, lambda: processor_seconds(target.pids)
                    )
                    pipe.send(done)

    return work


def _round(target: MySqlTarget, client: Child, mix: Mix, block: int) -> Result:
    client.send("round")
    done: Round = client.receive()
    target.require_alive()
    latency = done.latency
    p50, p99, p999, most = (
        (0.0, 0.0, 0.0, 0.0)
        if latency is None
        else (latency.p50_ms, latency.p99_ms, latency.p999_ms or 0.0, latency.max_ms)
    )
    errors = done.errors
    return Result(
        target=target.name,
        sessions=mix.sessions,
        block=block,
        seconds=done.seconds,
        commits=done.commits,
        commits_per_second=done.commits / done.seconds,
        cpu_us_per_commit=done.server_cpu_seconds / max(1, done.commits) * 1e6,
        client_cpu_seconds=done.client_cpu_seconds,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
        latency_p999_ms=p999,
        latency_max_ms=most,
        timed_out=errors[TIMED_OUT],
        killed=sum(errors.values()) - errors[TIMED_OUT],
        drain_seconds=done.drain_seconds,
        resident_bytes=resident_bytes(target.pids),
    )
