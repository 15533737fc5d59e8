"""The plan `pool`: disks, nodes, counters, cold starts, published ratios; a run if it can be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import fake_stores
import pytest
from conftest import SMALL, Laboratory

from firn_lab.cli import parser
from firn_lab.cli.run import make_plan
from firn_lab.clock import SystemClock
from firn_lab.disks import disk_option, parse_disk
from firn_lab.errors import TargetError, UsageError
from firn_lab.measures.pool import growth, read_figures
from firn_lab.plan import PLANS, Plan, parse_case
from firn_lab.plan.case import Case, replace_params
from firn_lab.report.markdown import markdown
from firn_lab.report.page import to_json
from firn_lab.report.pool import HEAD, pool_rows
from firn_lab.report.remarks import commands
from firn_lab.report.report_data import collect
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget, make_target
from firn_lab.targets.engine import find_plugin
from firn_lab.targets.pool import PoolTarget
from firn_lab.targets.walk import Index
from firn_lab.workloads import Params, make_workload
from firn_lab.workloads.restart import is_reached
from firn_lab.workloads.workload import FigureKind

VOLUME = "500us/3000iops/125MBps"
with_nodes = pytest.mark.skipif(
    shutil.which("memcached") is None, reason="memcached is not there: apt-get install memcached"
)


def has_plugin() -> bool:
    try:
        find_plugin("ha_firn")
    except TargetError:
        return False
    return True


def test_a_case_names_its_disk() -> None:
    case = parse_case(f"scan:disk={VOLUME},threads=2", Params())
    assert (case.params.disk, case.params.threads) == (VOLUME, 2)
    assert f"disk={VOLUME}" in make_workload("scan", case.params).label
    assert "disk" not in make_workload("scan", Params()).label
    assert disk_option(VOLUME) == "500us,3000iops,125MBps"
    assert parse_disk("500us,3000iops,125MBps") == VOLUME
    assert parse_disk("120us") == disk_option("120us") == "120us"
    for text in ("", "120", "3000iops", "120us/125MBps/3000iops", "120us 3000iops"):
        with pytest.raises(ValueError, match="no speed"):
            parse_disk(text)
    with pytest.raises(UsageError, match="no speed"):
        parse_case("scan:disk=fast", Params())


def test_only_firn_has_slow_disks(tmp_path: Path) -> None:
    firn, innodb, pool = (
        make_target(spec, SMALL, tmp_path) for spec in ("engine:firn", "engine:innodb", "pool")
    )
    for name in ("oltp_point_select", "restart", "recovery", "scan"):
        slow = make_workload(name, Params(disk="120us"))
        assert slow.supports(firn) == slow.supports(pool) == ""
        assert "only FIRN" in slow.supports(innodb)
        assert make_workload(name, Params()).supports(innodb) == ""
    innodb.use_disk("")
    with pytest.raises(NotImplementedError):
        innodb.use_disk("120us")


def test_the_plan_pairs_each_case_on_each_disk() -> None:
    plan = PLANS["pool"]
    assert plan.targets == ("engine:firn", "pool")
    settings = {(c.params.disk, c.params.threads) for c in plan.cases if c.workload != "tpch"}
    assert settings == {("120us", 2), ("120us", 8), (VOLUME, 8)}
    assert len(plan.cases) == 3 * 9 + 2
    published = {
        (case.workload, case.params.options.get("access", "")): case.published
        for case in plan.cases
    }
    assert published == {
        ("oltp_point_select", ""): None,
        ("oltp_read_only", ""): 1.5,
        ("oltp_write_only", ""): 1.3,
        ("oltp_read_write", ""): 1.46,
        ("restart", ""): 0.75,
        ("scan", ""): 2.0,
        ("lookup", ""): 1.95,
        ("blobs", "select"): 1.9,
        ("blobs", "update"): 1.52,
        ("tpch", ""): None,
    }


def test_options_replace_what_cases_of_a_plan_differ_in() -> None:
    text = "run pool --disk 120us --threads 2 --memory 16 --seconds 0.3"
    plan = make_plan(parser().parse_args(text.split()))
    assert len(plan.cases) == 10
    assert {(c.params.disk, c.params.threads) for c in plan.cases} == {("120us", 2)}
    assert [c.published for c in plan.cases] == [
        *(c.published for c in PLANS["pool"].cases[:9]), None,
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        parser().parse_args(["run", "pool", "--disk", "fast"])


def test_data_is_sized_by_the_cache() -> None:
    def rows(name: str, **options: str) -> int:
        params = Params(memory_bytes=64 << 20, options=options)
        workload = make_workload(name, params)
        assert workload.about_bytes > 0
        return workload.rows  # type: ignore[attr-defined, no-any-return]

    assert rows("blobs", cache="5") == 5 * 128
    assert rows("blobs", cache="5", bytes="1048576") == 5 * 64
    assert rows("lookup", cache="2") == rows("scan", cache="2") == round((128 << 20) / 260)
    assert rows("scan", rows="77") == 77
    with pytest.raises(UsageError, match="cache is a number"):
        rows("scan", cache="none")
    params = Params(memory_bytes=440_000_000, options={"cache": "5"}, disk="120us")
    stream = make_workload("tpch", params)
    assert (stream.label, stream.dataset) == ("tpch sf=1 disk=120us", "tpch sf=1")


@pytest.mark.parametrize("argument", ["=x", "a b", "x=", "x/y=z"])
def test_a_pools_label_is_checked(argument: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="write pool"):
        make_target(f"pool:{argument}", SMALL, tmp_path)


def test_names_of_pools(tmp_path: Path) -> None:
    for spec, name in (
        ("pool", "firn-pool"),
        ("pool:new", "firn-pool@new"),
        ("pool:new=/tmp/x.so", "firn-pool@new"),
    ):
        target = make_target(spec, SMALL, tmp_path)
        assert (target.name, target.spec) == (name, spec)


@with_nodes
def test_nodes_live_until_they_are_destroyed(tmp_path: Path) -> None:
    target = make_target("pool", Budget(memory_bytes=32 << 20), tmp_path)
    assert isinstance(target, PoolTarget)
    target._start_nodes()
    pids = target.node_pids
    try:
        assert len(pids) == 2
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in pids]
        for line in lines:
            # Sixteen times the cache together.
            assert line[line.index(b"-m") + 1] == b"256"
            assert line[line.index(b"-n") + 1] == b"2048"
        assert len({line[line.index(b"-s") + 1] for line in lines}) == 2
    finally:
        target.destroy()
    assert target.node_pids == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_walk_reads_short_ranges() -> None:
    rows = Index("sbtest1", "PRIMARY", "id")
    assert rows.statement == (
        "SELECT id FROM sbtest1 FORCE INDEX (PRIMARY) WHERE id > %s ORDER BY id LIMIT 40"
    )
    entries = Index("sbtest1", "k_1", "k")
    assert entries.statement.endswith("FORCE INDEX (k_1) WHERE k > %s ORDER BY k LIMIT 400")
    values = Index("blobs", "PRIMARY", "id", ("data",))
    assert values.statement.startswith("SELECT id, CRC32(data) FROM blobs")
    assert values.statement.endswith("LIMIT 8")


def test_counters_begin_anew_with_a_server() -> None:
    assert growth({"a": 5, "b": 7}, {"a": 8, "b": 3, "c": 2}) == {"a": 3, "b": 3, "c": 2}


def test_figures_of_reads() -> None:
    counters = {"gets": 80, "hits": 60, "late": 2, "evictions": 0, "breaker_opened": 1}
    counted = {"file": 40, "pool": 60, **counters, "dropped_puts": 4}
    assert read_figures(counted, 20, 0.001) == {
        "file_reads_per_transaction": 2.0,
        "pool_reads_per_transaction": 3.0,
        "node_cpu_us_per_transaction": pytest.approx(50.0),
        "pool_share_percent": 60.0,
        "pool_hit_percent": 75.0,
        "pool_late": 2.0,
        "pool_evictions": 0.0,
        "pool_breaker_opened": 1.0,
        "pool_dropped_puts": 4.0,
    }
    assert read_figures({"file": 40, "pool": 0}, 20, 0.0) == {"file_reads_per_transaction": 2.0}
    nothing = read_figures(
        {"file": 0, "pool": 0, **dict.fromkeys(counters, 0), "dropped_puts": 0}, 0, 0
    )
    assert not {"pool_share_percent", "pool_hit_percent"} & set(nothing)


def test_two_windows_together_are_as_fast_as_before() -> None:
    assert not is_reached([], 90)
    assert not is_reached([100], 90)
    assert not is_reached([100, 79], 90)
    assert not is_reached([50, 100], 90)
    assert is_reached([10, 85, 95], 90)
    assert not is_reached([95, 95, 10], 90)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A run of a case on a slow disk, with published ratios."""
    path = tmp_path / "x.sqlite"
    speed = {"firn": 100.0, "firn-pool": 150.0}
    run = fake_stores.fill(path, speed, sizes=speed)
    with Reader(path) as reader:
        targets = {target.name: target.id for target in reader.targets(run)}
    writer = Writer(path, SystemClock())
    case = writer.case(run, "scan", "slow scan", "slow", "tps", Params(disk=VOLUME))
    plain, percent = FigureKind(""), FigureKind("%", "higher")
    for number in range(3):
        for name, speed in (("firn", 100.0), ("firn-pool", 150.0)):
            figures = {
                "tps": (speed, FigureKind("1/s", "higher")),
                "transactions": (speed, plain),
                "queries": (speed * 4, plain),
                "cpu_us_per_transaction": (400.0, FigureKind("µs")),
                "file_reads_per_transaction": (2.0, plain),
            }
            if name == "firn-pool":
                figures |= {
                    "pool_reads_per_transaction": (6.0, plain),
                    "pool_share_percent": (75.0, percent),
                    "pool_hit_percent": (96.0, percent),
                    "node_cpu_us_per_transaction": (80.0, FigureKind("µs")),
                    "pool_late": (2.0, plain),
                    "pool_evictions": (0.0, plain),
                    "pool_breaker_opened": (1.0, plain),
                }
            writer.round(run, case, targets[name], number, "2026-01-01", figures=figures)
    writer.event(run, "published", {"case": "slow scan", "ratio": 2.0, "by": "somebody"})
    writer.end(run, "ok")
    writer.close()
    return path


def test_a_report_has_reads_and_what_is_published(store: Path) -> None:
    with Reader(store) as reader:
        report = collect(reader)
        text, page, told = markdown(report), to_json(report), commands(report)
        assert pool_rows(report) == [
            ["slow scan", "firn", "2.00", "–", "–", "–", "100", *["–"] * 4],
            ["slow scan", "firn-pool", "2.00", "6.00", "75.0 %", "96.0 %", "100", "20.0", "6",
             "0", "3"],
        ]  # fmt: skip
    assert f"| {' | '.join(HEAD)} |" in text
    lines = [line for line in text.splitlines() if "| firn-pool | tps |" in line]
    assert [line.rsplit(" | ", 1)[1] for line in lines] == ["– |"] * 3 + ["×2.00 |"]
    assert "Published: somebody, on other machines." in text
    assert page["publishedBy"] == "somebody"
    assert [each["published"] for each in page["conclusions"]] == [None] * 4 + [2.0]
    assert f"disk={VOLUME}" in told["slow scan"]
    assert "disk=" not in told["rw threads=8 rows=5"]


def test_a_report_of_other_runs_has_neither(tmp_path: Path) -> None:
    fake_stores.fill(tmp_path / "x.sqlite")
    with Reader(tmp_path / "x.sqlite") as reader:
        text = markdown(collect(reader))
    assert "published" not in text.lower()
    assert "## Reads" not in text


@with_nodes
@pytest.mark.skipif(
    not has_plugin(), reason="FIRN's plugin is not built: make, or FIRN_LAB_PLUGINS"
)
def test_a_small_run(laboratory: Laboratory) -> None:
    """Points, a cold start and large values, on two disks, without and with nodes."""
    base = Params(threads=2, seconds=0.3, lead_seconds=0.1, warm_seconds=0.5, disk="120us")
    tables = {"tables": "2", "rows": "3000"}
    cases = (
        Case("oltp_point_select", replace_params(base, {}, tables), 1.5),
        Case("restart", replace_params(base, {}, {**tables, "percent": "20"}), 0.75),
        Case("oltp_point_select", replace_params(base, {"disk": VOLUME}, tables)),
        Case("blobs", replace_params(base, {}, {"rows": "40", "access": "select"})),
    )
    plan = Plan(
        "small", "", cases, ("engine:firn", "pool"), blocks=3,
        budget=Budget(memory_bytes=8 << 20), published_by="somebody",
    )  # fmt: skip
    assert laboratory.run(plan) == ("ok", "")
    pools = [kind for kind, _ in laboratory.events if kind == "published"]
    assert len(pools) == 2
    with laboratory.reader() as reader:
        report = collect(reader)
        assert set(report.published.values()) == {1.5, 0.75}
        rows = {(row[0], row[1]): row for row in pool_rows(report)}
        for case in report.cases:
            slow, pooled = (report.result(case, target) for target in report.targets)
            assert slow is not None and pooled is not None
            assert len(slow.good) == len(pooled.good) == 3
            if case.headline == "tps":
                assert (case.label, "firn") in rows
            assert "pool_hit_percent" not in slow.figures
            assert pooled.total("pool_evictions") == 0
        # Data that does not fit into the cache is read from the nodes.
        values = report.result(report.cases[-1], report.targets[1])
        assert values is not None
        assert values.figures["pool_reads_per_transaction"].value > 0
        assert values.figures["pool_hit_percent"].value > 50
        assert values.figures["node_cpu_us_per_transaction"].value > 0
    assert not _nodes_below(laboratory.scratch)


def _nodes_below(directory: Path) -> list[str]:
    """Command lines of nodes with a socket in the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if line.startswith("memcached") and str(directory) in line:
                found.append(line)
    return found
