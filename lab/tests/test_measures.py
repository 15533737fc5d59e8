"""Measures of objects with known sizes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firn_lab import cli
from firn_lab.histogram import Latency
from firn_lab.measures import ROUND_MEASURES, STATE_MEASURES, context_switches, device, memory
from firn_lab.measures.csv import compressed_sizes
from firn_lab.measures.ssd import compressed_tree_bytes
from firn_lab.measures.throughput import outcome_figures
from firn_lab.runner.settling import Settling
from firn_lab.targets.private import allocated_bytes
from firn_lab.workloads import Outcome, Params, make_workload


class Process:
    """Replaces a target: one process that computes and writes."""

    def __init__(self, directory: Path, work: str) -> None:
        self.data_dir = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.pids = [self.pid]

    def go(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.communicate("end\n")


WORK = """
import os, time
x = bytearray(50 << 20)
input()
began = time.process_time()
while time.process_time() - began < 0.3: pass
f = os.open("{file}", os.O_CREAT | os.O_WRONLY)
os.write(f, os.urandom(8 << 20)); os.fsync(f)
print("done", flush=True)
input()
"""


@pytest.fixture
def process(tmp_path: Path) -> Any:
    made = Process(tmp_path, WORK.format(file=tmp_path / "written"))
    yield made
    made.end()


def test_processor_time_memory_and_writes_of_a_process(process: Process, tmp_path: Path) -> None:
    target: Any = process
    measures = {name: ROUND_MEASURES[name]() for name in ROUND_MEASURES}
    supported = {name: each for name, each in measures.items() if each.supports(target)}
    assert set(measures) - set(supported) == {"pool"}
    probes = {name: each.begin(target) for name, each in supported.items()}
    process.go()
    outcome = Outcome(transactions=100, queries=100, seconds=1)
    for probe in probes.values():
        probe.sample()
    figures: dict[str, float] = {}
    for name, probe in probes.items():
        got = probe.finish(outcome)
        assert set(got) <= set(ROUND_MEASURES[name]().figures)
        figures |= got
    assert 0.25 <= figures["cpu_seconds"] < 5
    assert figures["cpu_us_per_transaction"] == pytest.approx(figures["cpu_seconds"] * 1e4)
    assert figures["resident_peak_bytes"] >= 50 << 20
    if os.stat(tmp_path).st_dev >> 8:  # Only on a real disk: tmpfs has no counters.
        assert figures["device_written_bytes"] >= 8 << 20
        assert figures["disk_written_bytes"] >= 8 << 20
        assert 1 <= figures["disk_writes"] <= figures["disk_written_bytes"] / 512
        assert figures["disk_writes_per_transaction"] == figures["disk_writes"] / 100
        assert figures["disk_reads_per_transaction"] == figures["disk_reads"] / 100


def test_memory_that_processes_share_counts_once() -> None:
    """A parent with 40 MiB that its two children also map, and 10 MiB of each child's own."""
    work = (
        "import mmap, os, sys; m = mmap.mmap(-1, 40 << 20); m.write(b'x' * (40 << 20));\n"
        "for _ in range(2):\n"
        "  if os.fork() == 0:\n"
        "    own = b'y' * (10 << 20); m.seek(0); m.read(); os.write(1, b'%d\\n' % os.getpid())\n"
        "    sys.stdin.read(); os._exit(0)\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = [parent.pid, int(parent.stdout.readline()), int(parent.stdout.readline())]
    walked: list[str] = []
    fields = memory._fields

    def counted(pid: int, file: str) -> dict[str, int]:
        walked.append(file)
        return fields(pid, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_fields", counted)
        probe = memory.Memory().begin(SimpleNamespace(pids=pids))  # type: ignore[arg-type]
        for _ in range(3):
            assert 60 << 20 <= probe.sample()["resident_bytes"] < 140 << 20
        assert "smaps_rollup" not in walked
        at_end = probe.finish(Outcome(1, 1, 1.0))
        assert walked.count("smaps_rollup") == 3
    assert 60 << 20 <= at_end["resident_bytes"] < 100 << 20
    assert at_end["resident_peak_bytes"] >= at_end["resident_bytes"]
    parent.communicate()


def test_what_an_engine_puts_off_is_counted_until_it_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # (read, written) bytes at the start, after the round, at rest
    counts = [(0, 0), (100, 1000), (300, 5000)]
    monkeypatch.setattr(device, "process_io", lambda pid: counts[0])
    target = SimpleNamespace(pids=[1], data_dir=tmp_path)
    probe = device.Device().begin(target)  # type: ignore[arg-type]
    counts.pop(0)
    # Bytes per transaction count the transactions of the lead, too.
    outcome = Outcome(transactions=8, queries=8, seconds=1, lead=2)
    assert probe.finish(outcome)["device_written_bytes_per_transaction"] == 100
    settling = Settling()
    settling.round_over(probe.totals(), outcome.all_transactions)
    assert settling.owed == 0
    rest = device.Device().begin(target)  # type: ignore[arg-type]
    counts.pop(0)
    settling.rest_over(rest.totals())
    settled = settling.figures()
    assert {name for name in settled if "device_" in name} == {
        f"settled_{name}_per_transaction" for name in device.Device.settled if "device_" in name
    }
    assert settled["settled_device_written_bytes_per_transaction"] == 500
    assert settled["settled_device_read_bytes_per_transaction"] == 30
    assert Settling().figures() == {}


def test_what_is_owed_is_told_as_a_part_of_the_work() -> None:
    settling = Settling()
    for _ in range(4):
        settling.round_over({"cpu_us": 25.0}, 10)
    settling.rest_over({"cpu_us": 20.0})
    assert settling.owed == 0.2
    assert settling.figures() == {"settled_cpu_us_per_transaction": 3.0}


def test_switches_of_threads_that_end_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's counts of threads in four looks.

    Thread 2 ends and another thread reuses its id; thread 3 is new.
    """
    looks = iter(
        [
            {1: (100, 10), 2: (50, 0)},  # Switches before the first look do not count.
            {1: (110, 11), 2: (70, 0)},
            {1: (110, 11), 2: (5, 0), 3: (7, 2)},
            {1: (120, 13), 3: (7, 2)},
        ]
    )
    monkeypatch.setattr(context_switches, "thread_switches", lambda pids: next(looks).items())
    probe = context_switches.Switches().begin(SimpleNamespace(pids=[1]))  # type: ignore[arg-type]
    assert probe.sample() == {"switches": 10 + 1 + 20}
    assert probe.sample() == {"switches": 5 + 7 + 2}
    # Switches per transaction count the transactions of the lead, too.
    found = probe.finish(Outcome(transactions=8, queries=8, seconds=1, lead=2))
    voluntary, forced = 10 + 20 + 5 + 7 + 10, 1 + 2 + 2
    assert found == {
        "switches": float(voluntary + forced),
        "switches_per_transaction": (voluntary + forced) / 10,
        "forced_switches_per_transaction": forced / 10,
    }


def test_switches_of_all_threads_are_seen() -> None:
    """A thread of this process that sleeps a hundred times has as many switches."""
    probe = context_switches.Switches().begin(SimpleNamespace(pids=[os.getpid()]))  # type: ignore[arg-type]
    over = threading.Event()

    def wait() -> None:
        for _ in range(100):
            time.sleep(0.0005)
        over.set()
        done.wait(60)

    done = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    over.wait(60)
    found = probe.finish(Outcome(transactions=1, queries=1, seconds=1))
    done.set()
    thread.join()
    assert found["switches"] >= 100
    assert found["forced_switches_per_transaction"] <= found["switches"]


def test_a_compressing_ssd_keeps_noise_and_shrinks_text(tmp_path: Path) -> None:
    noise, text = os.urandom(1 << 20), b"the same words again and again. " * (1 << 15)
    (tmp_path / "noise").write_bytes(noise)
    only_noise = compressed_tree_bytes(tmp_path, 64 << 20)
    assert set(only_noise.values()) == {1 << 20}
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "text").write_bytes(text)
    both = compressed_tree_bytes(tmp_path, 64 << 20)
    small = {name: size - (1 << 20) for name, size in both.items()}
    assert (
        0 < small["ssd_16k_bytes"] < small["ssd_8k_bytes"] < small["ssd_4k_bytes"] < len(text) / 20
    )
    # Every second chunk is read, so the estimate is only roughly right.
    sampled = compressed_tree_bytes(tmp_path, 1 << 20)
    assert (1 << 20) * 0.9 < sampled["ssd_4k_bytes"] < (1 << 20) * 2.1
    assert compressed_tree_bytes(tmp_path / "sub" / "none", 1) == dict.fromkeys(both, 0)


def test_the_command_for_any_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "noise").write_bytes(os.urandom(1 << 20))
    (tmp_path / "sub" / "zeros [1]").write_bytes(bytes(1 << 20))
    (tmp_path / "link").symlink_to(tmp_path / "noise")
    tree, file, none = str(tmp_path), str(tmp_path / "sub" / "zeros [1]"), str(tmp_path / "none")
    assert cli.main(["ssd", tree, file, "--sample-mib", "0"]) == 0
    _, whole, one = capsys.readouterr().out.splitlines()
    assert whole.split()[1:6] == ["2", "2.00", "MiB", "2.00", "MiB"]
    # Half of the bytes are noise, which does not shrink, and half are zeros, which almost vanish.
    assert whole.count("MiB (50%)") == 3 and one.count("KiB (") == 3 and "1.00 MiB" in one
    assert cli.main(["ssd", none]) == 1
    assert f"{none}: No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["ssd", tree, "--sample-mib", "-1"])


def test_sizes_of_an_export() -> None:
    rows = [f"{number},some words,{number * 7}\n".encode() for number in range(20_000)]
    sizes = compressed_sizes(iter(rows))
    assert sizes["csv_bytes"] == sum(map(len, rows))
    assert sizes["csv_zstd_bytes"] < sizes["csv_lz4_bytes"] < sizes["csv_bytes"]
    assert sizes["csv_gzip_bytes"] < sizes["csv_lz4_bytes"]


def test_holes_take_no_space(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(64 << 20)
    (tmp_path / "full").write_bytes(b"x" * (1 << 20))
    assert 1 << 20 <= allocated_bytes(tmp_path) < 2 << 20
    assert allocated_bytes(tmp_path, "*.none") == 0


def test_figures_of_an_outcome() -> None:
    workload = make_workload("oltp_insert", Params())
    outcome = Outcome(100, 400, 2.0, 1, 2, Latency(1, 2, 3, 4, 5))
    values = {name: value for name, (value, _) in outcome_figures(workload, outcome).items()}
    assert (values["tps"], values["qps"], values["errors"], values["retries"]) == (50, 200, 1, 2)
    assert values["latency_p99_ms"] == 4
    assert "client_cpu_seconds" not in values
    told = outcome_figures(workload, Outcome(1, 1, 1.0, client_cpu_seconds=0.5))
    assert told["client_cpu_seconds"][0] == 0.5
    with pytest.raises(KeyError):
        outcome_figures(workload, Outcome(1, 1, 1.0, figures={"undeclared": 1}))


@pytest.mark.parametrize("name", ["operations", "tpch", "load_time", "recovery"])
def test_what_is_no_transaction_has_no_throughput(name: str) -> None:
    workload = make_workload(name, Params())
    values = outcome_figures(workload, Outcome(24, 400, 2.0))
    assert not {"tps", "qps"} & set(values)
    assert {"seconds", "queries"} <= set(values)


def test_costly_measures_are_marked() -> None:
    assert [name for name in STATE_MEASURES if STATE_MEASURES[name]().costly] == ["csv", "ssd"]
