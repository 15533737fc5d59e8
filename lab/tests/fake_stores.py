"""Stores with invented numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from firn_lab.clock import SystemClock
from firn_lab.histogram import Latency
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget, Settings
from firn_lab.workloads import Params, RoundPart
from firn_lab.workloads.workload import FigureKind

MACHINE = {"processor": "Abacus", "cores": 2, "memory_bytes": 8 << 30, "file_system": "ext4"}
TPS = FigureKind("1/s", "higher")
MS = FigureKind("ms")
BYTES = FigureKind("B")
# Bytes of the tables on each target.
SIZES = {"innodb": 90e6, "firn": 30e6, "</script><b>evil": 60e6}
SPEED = {"innodb": 100.0, "firn": 150.0, "</script><b>evil": 101.0}

EVIL = "</script><b>evil"
# Factors of `jitter` in each round, the same on all targets: a drift of the machine.
FACTORS = (0.0, -1.0, 1.0) * 5
# Noise of the one target whose ratio to the reference must not differ significantly from 1.
OWN = {EVIL: (0.0, -0.08, 0.08)}


def fill(
    path: Path,
    speed: Mapping[str, float] = SPEED,
    jitter: float = 0.05,
    end: str = "ok",
    sizes: Mapping[str, float] = SIZES,
) -> int:
    """Writes a run: a thread sweep of 15 blocks, and a case of three rounds with its own headline.

    One of FIRN's rounds in the latter case failed. Rounds deviate by up to `jitter` from the
    median, alike on all targets of a block.
    """
    writer = Writer(path, SystemClock())
    command = ["firn-lab", "run", "a b"]
    run = writer.run("made up", command, "0", MACHINE, Budget(), 15)
    targets = {
        name: writer.target(
            run,
            name,
            f"engine:{name}",
            Settings(
                "10.11", 512 << 20, True, False, "repeatable read", {"same": "1", "own": name}
            ),
        )
        for name in speed
    }
    for threads in (2, 8, 16):
        params = Params(threads=threads, options={"rows": "5"})
        case = writer.case(
            run, "oltp_read_write", f"rw threads={threads} rows=5", "rw data", "tps", params
        )
        for name, target in targets.items():
            for number, factor in enumerate(FACTORS):
                own = OWN.get(name, (0.0,) * 3)[number % 3]
                drawn = speed[name] * threads * (1 + factor * jitter) * (1 + own)
                _round(writer, run, case, target, number, drawn)
    case = writer.case(run, "list", "list threads=1", "list data", "seconds", Params(threads=1))
    for name, target in targets.items():
        figures = {"seconds": (speed[name] / 10, FigureKind("s"))}
        for number in range(3):
            if (name, number) == ("firn", 1):
                failure = ("failed", "the server died")
                writer.round(run, case, target, number, "2026-01-01", *failure)
                continue
            writer.round(
                run, case, target, number, "2026-01-01", dataset="list data", figures=figures
            )
    for name, target in targets.items():
        for moment in ("load", "update", "rest"):
            figures = {
                "data_bytes": (sizes[name], BYTES),
                "table_bytes.t": (sizes[name] / 2, BYTES),
                "load_seconds": (4.0, FigureKind("s")),
            }
            writer.state(run, target, "rw data", moment, figures)
    writer.warning(run, "memory", "memory differs: <i>a lot</i>")
    writer.event(run, "unsupported", {"message": "list on postgresql: MySQL protocol only"})
    if end:
        writer.end(run, end)
    writer.close()
    return run


def grow(
    path: Path,
    run: int,
    workload: str,
    rest: Mapping[str, float],
    written: Sequence[float] = (24576.0,) * 15,
    settled: float = 49152.0,
) -> None:
    """Adds a case with the dataset `more`, of 100 bytes on each target after the load.

    `written`: bytes per transaction, by round. `settled`: the same including deferred work.
    """
    writer = Writer(path, SystemClock())
    with Reader(path) as store:
        targets = store.targets(run)
    case = writer.case(run, workload, workload, "more", "tps", Params())
    for target in targets:
        for number, each in enumerate(written):
            _round(writer, run, case, target.id, number, rest[target.name], each)
        name = "settled_device_written_bytes_per_transaction"
        writer.state(run, target.id, workload, "settled", {name: (settled, BYTES)})
        for moment, size in (("load", 100.0), ("rest", rest[target.name])):
            writer.state(run, target.id, "more", moment, {"data_bytes": (size, BYTES)})
    writer.close()


def _round(
    writer: Writer,
    run: int,
    case: int,
    target: int,
    number: int,
    tps: float,
    written: float = 24576.0,
) -> None:
    figures = {
        "tps": (tps, TPS),
        "qps": (tps * 20, TPS),
        "transactions": (tps * 10, FigureKind("", "higher")),
        "queries": (tps * 200, FigureKind("", "higher")),
        "seconds": (10.0, FigureKind("s")),
        "errors": (1.0, FigureKind("")),
        "retries": (2.0, FigureKind("")),
        "cpu_us_per_transaction": (50.0, FigureKind("µs")),
        "switches_per_transaction": (3.0, FigureKind("")),
        "latency_average_ms": (1000 / tps, MS),
        "latency_p95_ms": (2000 / tps, MS),
        "latency_p99_ms": (3000 / tps, MS),
        "latency_p999_ms": (4000 / tps, MS),
        "resident_peak_bytes": (256 * 2.0**20, BYTES),
        "device_read_bytes_per_transaction": (8192.0, BYTES),
        "device_written_bytes_per_transaction": (written, BYTES),
        "disk_read_bytes_per_transaction": (8192.0, BYTES),
        "disk_reads_per_transaction": (0.25, FigureKind("")),
        "disk_written_bytes_per_transaction": (32768.0, BYTES),
        "disk_writes_per_transaction": (3.0, FigureKind("")),
    }
    samples = [(second, "tps", tps + second) for second in range(10)]
    samples += [(second, "device_written_bytes", 4096.0 * second) for second in range(10)]
    parts = [RoundPart("payment", 7, 3.0, Latency(1, 2, 3, 4, 5), 1, 2)]
    writer.round(
        run, case, target, number, "2026-01-01", dataset="rw data", figures=figures,
        parts=parts, samples=samples,
    )  # fmt: skip
