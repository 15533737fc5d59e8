"""Markdown, pictures and the commands of a report."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import fake_stores
import pytest

from firn_lab import cli
from firn_lab.clock import SystemClock
from firn_lab.intervals import Interval, mean, single
from firn_lab.report.conclusions import judge
from firn_lab.report.drawing import number
from firn_lab.report.markdown import markdown, table
from firn_lab.report.page import to_json
from firn_lab.report.png import performances, spaces, sweeps
from firn_lab.report.remarks import (
    bounds,
    breaches,
    commands,
    failures,
    lumps,
    open_questions,
)
from firn_lab.report.report_data import Report, collect
from firn_lab.report.units import bytes_text, figure_text, number_text
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget, Settings
from firn_lab.workloads import Params
from firn_lab.workloads.workload import FigureKind

# In the order of the report.
PICTURES = ("throughput.png", "latency.png", "device-written.png", "device-read.png",
            "threads-1.png", "latency-threads-1.png", "space.png")  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fake_stores.fill(tmp_path / "x.sqlite")
    return tmp_path / "x.sqlite"


def report_of(path: Path) -> tuple[Reader, Report]:
    reader = Reader(path)
    return reader, collect(reader)


def test_the_table_has_the_fields_columns(store: Path) -> None:
    reader, report = report_of(store)
    with reader:
        text = markdown(report)
    wanted = "threads | transactions | queries | time, s | transactions/s | average, ms | 95 %, ms"
    assert wanted in text
    assert (
        "| rw threads=8 rows=5 | firn | 8 | 12,000 | 240,000 | 10.0 | 1,200 (1,140…1,260) "
        "| 0.83 | 1.67 | 2.50 | 3.33 | 50.0 | 3.00 | 256 MiB | 15 | 30 | 15 |"
    ) in text
    # A drift that affects all targets alike cancels in the ratio.
    assert (
        "| rw threads=8 rows=5 | firn | tps | ×1.500 (1.500…1.500) | ±0.0% | concluded at ±2.5% "
        "| 15 | ×1.500 (1.500…1.500) | ×1.000 (1.000…1.000) | ×1.000 (1.000…1.000) |"
    ) in text
    assert "**Not concluded**" in text
    assert "**Not run**\n\n- list on postgresql: MySQL protocol only" in text
    # The case that PostgreSQL does not support is not listed as unfair, too.
    assert "unfair" not in text.partition("**Not run**")[2]
    assert "- memory: memory differs" in text
    assert "| rw data | at rest" not in text and "| rw data | rest | firn | 28.6 MiB |" in text
    assert "the server died" in text


def test_what_is_not_concluded_is_said(store: Path) -> None:
    reader, report = report_of(store)
    with reader:
        found = open_questions(report)
        failed = failures(report)
        assert lumps(report) == []
    *wide, short, evil = found
    assert len(wide) == 3
    for line in wide:
        assert f"{fake_stores.EVIL} ÷ innodb ×1.0" in line
        assert re.search(r", not concluded at ±2\.5%: ±\d\.\d% after 15 blocks$", line)
    assert "list threads=1: firn ÷ innodb" in short and short.endswith("no interval after 2 blocks")
    assert f"list threads=1: {fake_stores.EVIL} ÷" in evil and evil.endswith("±0.0% after 3 blocks")
    assert failed == ["list threads=1 on firn, round 2: failed: the server died"]


def test_stalls_in_a_few_blocks_are_told(store: Path) -> None:
    """In two of fifteen blocks one target almost stalls, which the ratio of a typical block
    hides."""
    writer = Writer(store, SystemClock())
    case = writer.case(1, "rw", "stalls", "more", "tps", Params())
    with Reader(store) as reader:
        first, second, _ = reader.targets(1)
    for target in (first, second):
        for block in range(15):
            tps = 10.0 if target is second and block in (4, 9) else 100.0
            fake_stores._round(writer, 1, case, target.id, block, tps)
    writer.close()
    reader, report = report_of(store)
    with reader:
        (line,) = lumps(report)
        (verdict,) = [each for each in judge(report, 0.98) if each.case == "stalls"]
    assert line.startswith("stalls: in a typical block firn ÷ innodb is ×1.000 (")
    assert verdict.ratio.value == 1.0 and verdict.whole.value == pytest.approx(0.88)
    assert verdict.verdict == "undecided", "all transactions are not as many"


def test_the_load_drivers_bound_is_one_line_of_its_own(store: Path) -> None:
    writer = Writer(store, SystemClock())
    for threads in (2, 8):
        for target in ("innodb", "firn"):
            place = f"rw threads={threads} rows=5 on {target}"
            writer.warning(1, "client", f"{place}: the load driver took much")
    writer.warning(1, "busy", "rw threads=8 rows=5 on firn: the machine was at other work")
    writer.close()
    reader, report = report_of(store)
    with reader:
        assert bounds(report) == [
            "client: rw threads=2 rows=5 on innodb, firn; rw threads=8 rows=5 on innodb, firn: "
            "the load driver took much"
        ]
        assert breaches(report) == [
            "memory: memory differs: <i>a lot</i>",
            "busy: rw threads=8 rows=5 on firn: the machine was at other work",
        ]
        text = markdown(report)
        page = to_json(report)
    assert "**Bounded by the load driver**\n\n- client: rw threads=2" in text
    assert page["bounds"] and not any("client" in line for line in page["breaches"])


def test_commands_repeat_the_cases(store: Path) -> None:
    reader, report = report_of(store)
    with reader:
        found = commands(report)
        assert [len(cases) for cases in sweeps(report).values()] == [3]
    assert found["the whole run"] == "firn-lab run 'a b'"
    words = shlex.split(found["rw threads=8 rows=5"])
    assert "--measure" not in words
    chosen = cli.parser().parse_args(words[1:])
    from firn_lab.cli.run import make_plan

    plan = make_plan(chosen)
    (case,) = plan.cases
    assert (case.params.threads, case.params.options, plan.blocks) == (8, {"rows": "5"}, 15)
    assert plan.budget.memory_bytes == 512 << 20 and plan.budget.durable


def test_commands_take_costly_measures_again(store: Path) -> None:
    writer = Writer(store, SystemClock())
    for name in ("ssd_4k_bytes", "csv_zstd_bytes.t"):
        writer.state(1, 1, "rw data", "rest", {name: (1.0, fake_stores.BYTES)})
    writer.close()
    reader, report = report_of(store)
    with reader:
        words = shlex.split(commands(report)["rw threads=8 rows=5"])
    from firn_lab.cli.run import make_plan

    assert sorted(make_plan(cli.parser().parse_args(words[1:])).measures) == ["csv", "ssd"]


def test_a_sweep_without_throughput_has_no_picture(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    run = writer.run("list", ["firn-lab"], "0", {}, Budget(), 1)
    target = writer.target(run, "firn", "engine:firn", Settings("10.11", 5, True))
    for threads in (1, 2):
        params = Params(threads=threads)
        case = writer.case(run, "tpch", f"tpch threads={threads}", "d", "seconds", params)
        figures = {"seconds": (3.0, FigureKind("s"))}
        writer.round(run, case, target, 0, "2026-01-01", figures=figures)
    writer.close()
    reader, report = report_of(tmp_path / "x.sqlite")
    with reader:
        assert sweeps(report) == {}
        assert report.results[0].headline is not None


def test_files_are_written(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["report", "--store", str(store), "--out", str(out), "--hour", "1"]) == 0
    made = sorted(path.name for path in out.iterdir())
    assert made == [
        "device-read.png", "device-written.png", "index.html", "latency-threads-1.png",
        "latency.png", "report.md", "space.png", "threads-1.png", "throughput.png",
    ]  # fmt: skip
    for path in out.glob("*.png"):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = (out / "report.md").read_text()
    assert "## Price" in text
    assert re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE) == list(PICTURES)
    assert len(capsys.readouterr().out.splitlines()) == len(made)


def test_the_raw_numbers_are_a_store(store: Path, tmp_path: Path) -> None:
    fake_stores.fill(store, jitter=0.1)
    out = tmp_path / "out"
    for run in (1, 2):
        command = ["report", "--store", str(store), "--out", str(out), "--raw", str(run)]
        assert cli.main(command) == 0
        with Reader(store) as all_, Reader(out / "raw.sqlite") as raw:
            assert [each.id for each in raw.runs()] == [run]
            assert to_json(collect(raw)) == to_json(collect(all_, run))
            assert any(round_["series"] for each in to_json(collect(raw))["results"]
                       for round_ in each["rounds"])  # fmt: skip
    assert sorted(path.name for path in out.glob("raw*")) == ["raw.sqlite"]


def test_the_raw_numbers_do_not_replace_their_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "real" / "raw.sqlite"
    store.parent.mkdir()
    fake_stores.fill(store)
    fake_stores.fill(store)
    (tmp_path / "link").symlink_to("real")
    for out in (store.parent, tmp_path / "link"):
        command = ["report", "1", "--store", str(store), "--out", str(out)]
        assert cli.main([*command, "--raw"]) != 0
        assert "would replace the store" in capsys.readouterr().err
    assert not (store.parent / "report.md").exists()
    with Reader(store) as reader:
        assert len(reader.runs()) == 2
    assert cli.main(command) == 0, "without --raw nothing is in the way"


def test_a_run_without_rounds_has_a_report(tmp_path: Path) -> None:
    fake_stores.fill(tmp_path / "x.sqlite", speed={"firn": 1.0}, end="")
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    writer.run("empty", ["firn-lab"], "0", {}, Budget(), 15)
    writer.close()
    out = tmp_path / "out"
    assert cli.main(["report", "--store", str(tmp_path / "x.sqlite"), "--out", str(out)]) == 0
    assert "empty" in (out / "report.md").read_text()


def test_sizes_of_more_rows_are_not_drawn_side_by_side(store: Path) -> None:
    fake_stores.grow(store, 1, "oltp_insert", fake_stores.SPEED)
    reader, report = report_of(store)
    with reader:
        assert [name for name in spaces(report) if name.startswith("more")] == ["more, after load"]
        assert "| more | rest (rows depend on throughput) | firn | 150 B |" in markdown(report)
        unlike = {
            (each["dataset"], each["moment"]) for each in to_json(report)["state"] if each["unlike"]
        }
    assert unlike == {("more", "rest")}


def test_what_was_put_off_counts(store: Path) -> None:
    """One of three rounds has a compaction.

    The mean of the rounds counts, not the median, and so does the work after the last round.
    """
    fake_stores.grow(store, 1, "oltp_update_index", fake_stores.SPEED, (41e3, 8e3, 8e3), 25e3)
    reader, report = report_of(store)
    with reader:
        groups = performances(report, "device_written_bytes_per_transaction")
        each = next(r for r in report.results if r.case.label == "oltp_update_index")
    assert groups["rw threads=8 rows=5"]["firn"].value.value == 24576
    bar = groups["oltp_update_index"]["firn"]
    assert bar.value == single(25e3), "with what was put off"
    assert bar.ratio == single(1.0), "there are no blocks of it"
    written = each.figures["device_written_bytes_per_transaction"]
    assert written.value == pytest.approx(19e3) and written.count == 3
    # The result is all bytes divided by all transactions.
    assert mean([10.0, 1.0], [1.0, 9.0]) == Interval(1.9, 1.9, 1.9, 2)
    assert mean([4.0, 6.0], [0.0, 0.0]) == Interval(5.0, 5.0, 5.0, 2)
    assert mean([], []) is None


def test_pictures_have_ratios_with_intervals(store: Path) -> None:
    reader, report = report_of(store)
    with reader:
        group = performances(report, "tps")["rw threads=8 rows=5"]
    assert group["innodb"].ratio is None
    assert group["firn"].ratio == Interval(1.5, 1.5, 1.5, 15)
    evil = group[fake_stores.EVIL].ratio
    assert evil is not None and evil.low < 1 < evil.high


def test_tables_are_shown_with_all_files(store: Path) -> None:
    """Rows that are only in the log make the files grow, but not the tables."""
    writer = Writer(store, SystemClock())
    for target, size in ((1, 125.0), (2, 222.0)):
        files = {"data_bytes": (size * 2**19, fake_stores.BYTES),
                 "files_bytes": (size * 2**20, fake_stores.BYTES)}  # fmt: skip
        writer.state(1, target, "logged", "load", files)
    writer.close()
    reader, report = report_of(store)
    with reader:
        group = spaces(report)["logged, after load"]
        text = markdown(report)
        assert [bar.note for bar in spaces(report)["rw data, at rest"].values()] == [""] * 3
    assert [bar.note for bar in group.values()] == [" (125)", " (222)"]
    assert "in no table yet" in text and "| logged | load | firn | 111 MiB | 222 MiB |" in text


def test_cells_do_not_break_the_table() -> None:
    assert table(["a", "b"], [["x|y", "1\n2"]]) == [
        "| a | b |", "| --- | --: |", "| x\\|y | 1 2 |", "",
    ]  # fmt: skip


def test_numbers_for_people() -> None:
    assert [number_text(n) for n in (0, 0.0123, 0.5, 12.34, 1234.5)] == [
        "0", "0.012", "0.50", "12.3", "1,234",
    ]  # fmt: skip
    assert [number(n) for n in (0.0, 3.6e-5, 0.0368, 12.34, 1234.5)] == [
        "0", "<0.001", "0.0368", "12.3", "1,234",
    ]  # fmt: skip
    assert bytes_text(1536) == "1.50 KiB"
    assert figure_text(3, "ms") == "3.00 ms"
