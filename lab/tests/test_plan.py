"""Cases and plans of the command line; rules of fairness."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firn_lab.cli import parser
from firn_lab.cli.run import make_plan, promise
from firn_lab.errors import LabError, UsageError
from firn_lab.intervals import BLOCKS_MIN
from firn_lab.plan import PLANS, Plan, parse_case
from firn_lab.plan.fairness import breaches, busy_breaches, peak_breaches
from firn_lab.processes import processor_seconds, tree
from firn_lab.runner.load_by_others import LoadByOthers
from firn_lab.runner.machine import busy_cores
from firn_lab.runner.prepared_plan import case_seconds, prepare_plan, round_seconds
from firn_lab.targets import Settings, make_target
from firn_lab.targets.dsn import redacted
from firn_lab.targets.mysql import buffered
from firn_lab.targets.target import Budget
from firn_lab.workloads import WORKLOADS, Params, make_workload

# The real function, kept here because a fixture replaces it for every test.
CORES = LoadByOthers.cores


def plan_of(text: str) -> Plan:
    return make_plan(parser().parse_args(["run", *text.split()]))


def test_a_case_takes_parameters_and_options() -> None:
    case = parse_case("oltp_read_write:threads=16,zipf=0.9", Params(seconds=7))
    assert case.workload == "oltp_read_write"
    assert case.params == Params(threads=16, seconds=7, options={"zipf": "0.9"})
    with pytest.raises(UsageError, match="key=value"):
        parse_case("oltp_read_write:threads", Params())
    with pytest.raises(UsageError, match="takes a number"):
        parse_case("oltp_read_write:threads=many", Params())


def test_a_case_of_the_command_line_goes_before_its_options() -> None:
    plan = plan_of(
        "oltp_insert:threads=3 oltp_delete --threads 5 --blocks 4 --within 1 --minutes 3 "
        "--memory 64"
    )
    assert [case.params.threads for case in plan.cases] == [3, 5]
    assert (plan.blocks, plan.within, plan.minutes) == (4, 0.01, 3)
    assert plan.budget == Budget(memory_bytes=64 << 20)


def test_a_workload_may_be_named_twice() -> None:
    plan = plan_of("oltp_insert:threads=3 oltp_insert:seconds=7 --threads 5 --seconds 9")
    assert [(case.params.threads, case.params.seconds) for case in plan.cases] == [(3, 9), (5, 7)]


def test_threads_are_swept() -> None:
    plan = plan_of("oltp_insert oltp_delete:threads=3 --threads 2 4 --seconds 9")
    assert [(case.workload, case.params.threads) for case in plan.cases] == [
        ("oltp_insert", 2), ("oltp_insert", 4), ("oltp_delete", 3),
    ]  # fmt: skip
    assert {case.params.seconds for case in plan.cases} == {9}
    quick = plan_of("quick --threads 2 4")
    assert len(quick.cases) == 2 * len(plan_of("quick").cases)


def test_a_value_may_hold_a_colon() -> None:
    (case,) = plan_of("oltp_insert:threads=3,tables=a:b --threads 5").cases
    assert (case.params.threads, case.params.options) == (3, {"tables": "a:b"})


def test_options_override_a_plan() -> None:
    plan = plan_of("quick --seconds 1 --targets engine:innodb --not-durable")
    assert {case.params.seconds for case in plan.cases} == {1}
    assert {case.params.threads for case in plan.cases} == {8}
    assert plan.targets == ("engine:innodb",)
    assert not plan.budget.durable


@pytest.mark.parametrize(
    "text", ["quick --blocks 0", "oltp_insert --threads 0", "quick --memory 1"]
)
def test_senseless_numbers_are_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        plan_of(text)


def test_every_case_of_the_plans_can_be_made_and_is_there_once() -> None:
    for name in ("quick", "full", "pool"):
        plan = PLANS[name]
        labels = [make_workload(case.workload, case.params).label for case in plan.cases]
        assert len(labels) == len(set(labels)) > 4
    # A cold start says little without a slow disk, which the plan `pool` has.
    left_out = {"tiny", "restart"}
    assert {case.workload for case in PLANS["full"].cases} == set(WORKLOADS) - left_out
    threads = {c.params.threads for c in PLANS["full"].cases if c.workload == "oltp_read_write"}
    assert threads == {2, 4, 8, 16, 24, 32, 48, 64, 96, 128}
    for kind in ("cache", "zipf"):
        values = {float(c.params.options.get(kind) or -1) for c in PLANS["full"].cases}
        assert values >= ({0.5, 1, 3, 10} if kind == "cache" else {0, 0.8, 1.2})


def test_quick_has_blocks_enough_in_its_fifteen_minutes(tmp_path: Path) -> None:
    """Loads, warm-up and rests take two and a half of the fifteen minutes."""
    plan = PLANS["quick"]
    assert (plan.minutes, plan.within, len(plan.targets)) == (15, 0.025, 3)
    blocks = [3 * round_seconds(each) for each in prepare_plan(plan, tmp_path).workloads]
    assert BLOCKS_MIN * sum(blocks) <= 12.5 * 60


def test_full_takes_slices(tmp_path: Path) -> None:
    plan = PLANS["full"]
    parts = prepare_plan(plan, tmp_path)
    assert len(parts.targets) == 7
    for each in parts.workloads:
        # A case has time for enough blocks, and ends long before a slice of the run (two hours)
        # does.
        if each.timed:
            blocks = case_seconds(plan, each, 7) / (7 * round_seconds(each))
            assert blocks >= BLOCKS_MIN
        assert case_seconds(plan, each, 7) < 600
    assert promise(plan, parts) == (
        "84 cases on 7 targets, to ±2.5%: 9.8 hours of blocks at most, loads and rests come on "
        "top; up to 70.0 GiB of data"
    )


def test_unknown_names_and_options_are_told() -> None:
    with pytest.raises(UsageError, match=r"no workload 'nothing'.*oltp_read_write"):
        make_workload("nothing", Params())
    with pytest.raises(UsageError, match=r"no option 'colour'.*zipf"):
        make_workload("oltp_insert", Params(options={"colour": "red"}))
    with pytest.raises(UsageError, match="out of range"):
        make_workload("oltp_insert", Params(options={"zipf": "9"}))


@pytest.mark.parametrize("spec", ["engine:nothing", "postgresql:5", "dsn:http://x", "moon:1"])
def test_unknown_targets_are_told(spec: str, tmp_path: Path) -> None:
    with pytest.raises(LabError):
        make_target(spec, Budget(), tmp_path)


def test_a_password_stays_out_of_the_record(tmp_path: Path) -> None:
    target = make_target("dsn:mysql://me:secret@host:4000?engine=firn", Budget(), tmp_path)
    assert "secret" not in target.spec + target.name
    where = target.address()
    assert (where.host, where.port, where.user, where.password) == ("host", 4000, "me", "secret")
    assert target.create_suffix() == " ENGINE=FIRN"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dsn:mysql://me:secret@host:40?engine=firn", "dsn:mysql://me:…@host:40?engine=firn"),
        ("--targets=dsn:mysql://me:secret@host", "--targets=dsn:mysql://me:…@host"),
        ("dsn:mysql://me:se@cret@host?name=a@b", "dsn:mysql://me:…@host?name=a@b"),
        ("dsn:mysql://:secret@host", "dsn:mysql://:…@host"),
        ("dsn:mysql://me@host:40", "dsn:mysql://me@host:40"),
        ("dsn:mysql://me@host:40?name=a:b@c", "dsn:mysql://me@host:40?name=a:b@c"),
        ("oltp_insert:threads=3", "oltp_insert:threads=3"),
        # Texts that are no valid dsn, so that it is uncertain where the password ends.
        ("dsn:mysql://me:secret@host?foo=1", "dsn:mysql://me:…@host?foo=1"),
        ("dsn:mysql://me:se/cret@host", "dsn:mysql://me:…@host"),
        ("dsn:mysql://me:x@se/cret@host", "dsn:mysql://me:…@host"),
        ("dsn:mysql://me:x@se?cret@host", "dsn:mysql://me:…@host"),
        ("dsn:mysql://me:x@se#cret@host", "dsn:mysql://me:…@host"),
        ("dsn:mysql://me:secret", "dsn:mysql://me:…"),
        ("dsn:mysql://me:secret@[::1", "dsn:mysql://me:…@[::1"),
    ],
)
def test_no_password_is_recorded(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "rest", ["h?foo=1", "h:abc", "[::1", "h/secret@i", "h?secret@i", "h#secret@i", "h:70000"]
)
def test_no_message_tells_a_password(rest: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="write dsn:mysql://") as told:
        make_target(f"dsn:mysql://me:secret@{rest}", Budget(), tmp_path)
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)


def test_data_is_sized_by_the_cache() -> None:
    sizes = {}
    for cache in ("0.5", "3"):
        params = Params(memory_bytes=240 << 20, options={"cache": cache, "tables": "10"})
        sizes[cache] = make_workload("oltp_insert", params).rows
    assert sizes == {"0.5": round((1 << 20) * 0.05), "3": round((1 << 20) * 0.3)}


def test_fair_is_fair_and_unfair_is_told() -> None:
    fair = Settings("10.11", 512 << 20, True, False, "repeatable read")
    assert breaches({"a": fair, "b": fair}) == breaches({"a": fair}) == []

    def rules(**other: object) -> list[str]:
        return [b.rule for b in breaches({"a": fair, "b": dataclasses.replace(fair, **other)})]

    def alike(**all_of_them: object) -> list[str]:
        same = dataclasses.replace(fair, **all_of_them)
        return [b.rule for b in breaches({"a": same, "b": same})]

    assert rules(memory_bytes=600 << 20) == ["memory"]
    assert rules(memory_bytes=513 << 20) == []
    assert rules(memory_bytes=None) == ["memory"]
    assert rules(durable=False) == ["durability"]
    assert rules(durable=None) == ["durability"]
    assert rules(buffered=True) == rules(buffered=None) == ["page-cache"]
    assert rules(isolation="read committed") == rules(isolation=None) == ["isolation"]
    # A setting that a server does not report may differ, so it counts as a breach.
    assert alike(durable=None) == ["durability"]
    assert alike(isolation=None) == ["isolation"]
    assert alike(buffered=None) == ["page-cache"]
    assert alike(buffered=True, durable=False, isolation="read committed") == []


def test_unequal_memory_at_the_peak_is_told() -> None:
    assert peak_breaches({"a": 100 << 20}) == []
    assert peak_breaches({"a": 100 << 20, "b": 124 << 20}) == []
    (breach,) = peak_breaches({"a": 100 << 20, "b": 126 << 20})
    assert breach.rule == "memory" and breach.message.endswith("a 100 MiB, b 126 MiB")


def test_a_busy_machine_is_told() -> None:
    assert busy_breaches(0.2, 2) == []
    (breach,) = busy_breaches(0.3, 2)
    assert breach.rule == "busy"
    assert breach.message == "the machine was at other work: 0.3 of 2 cores"


def test_what_the_lab_starts_is_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    other = 0.0

    def busy() -> float:
        return processor_seconds(tree(os.getpid())) + other

    monkeypatch.setattr("firn_lab.runner.machine.busy_seconds", busy)
    monkeypatch.setattr(LoadByOthers, "cores", CORES)
    watched = LoadByOthers()
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    # The child's time counts for the lab; what is left are rounding errors of clocks with ticks of
    # 10 ms.
    assert watched.cores() < 0.2
    other = 1000.0
    assert watched.cores() > 10


def test_work_of_the_processors_is_seen() -> None:
    """A process that computes keeps one core busy, or half of one on a busy machine."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        assert busy_cores(0.3) > 0.4
        process.kill()


@pytest.mark.parametrize(
    ("engine", "variables", "expected"),
    [
        ("innodb", {"innodb_flush_method": "O_DIRECT"}, False),
        ("innodb", {"innodb_flush_method": "fsync"}, True),
        ("innodb", {"innodb_data_file_buffering": "OFF", "innodb_flush_method": ""}, False),
        ("firn", {"firn_direct_reads": "ON"}, False),
        ("rocksdb", {"rocksdb_use_direct_reads": "OFF"}, True),
        ("aria", {"innodb_flush_method": "O_DIRECT"}, None),
    ],
)
def test_use_of_the_page_cache_is_read_from_variables(
    engine: str, variables: dict[str, str], expected: bool | None
) -> None:
    assert buffered(engine, variables) is expected


def test_many_threads_with_the_thread_pool() -> None:
    plan = plan_of("threads --thread-pool")
    assert plan.budget == Budget(memory_bytes=1 << 30, thread_pool=True, connections=2100)
    assert {case.params.threads for case in plan.cases} == {64, 512, 2000}
    assert {case.params.options["tables"] for case in plan.cases} == {"1"}
    assert not plan_of("threads").budget.thread_pool
    target = make_target("postgresql", plan.budget, Path())
    assert target.lacks()


def test_a_server_with_the_thread_pool(tmp_path: Path) -> None:
    budget = Budget(32 << 20, thread_pool=True, connections=2100)
    target = make_target("engine:innodb", budget, tmp_path)
    try:
        target.start()
        values = target.settings().values
        assert values["thread_handling"] == "pool-of-threads"
        assert values["max_connections"] == "2100"
    finally:
        target.destroy()
