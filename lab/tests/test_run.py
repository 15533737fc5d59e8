"""Whole runs on real servers, with InnoDB only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest
from conftest import SMALL, Laboratory, servers_on

from firn_lab.cli.run_display import cell
from firn_lab.plan import Plan, parse_case
from firn_lab.report.report_data import collect
from firn_lab.runner.blocks import order
from firn_lab.store import Reader
from firn_lab.workloads import Params

# `bulk_insert` runs for two seconds, because sysbench does not report the second in which it ends.
CASES = (
    "oltp_point_select:tables=2",
    "oltp_read_write:tables=2,zipf=0.9",
    "bulk_insert:seconds=2,lead_seconds=0",
)
BASE = Params(threads=1, seconds=1, lead_seconds=2, warm_seconds=0, scale=0.005)
PLAN = Plan(
    "test",
    "",
    tuple(parse_case(text, BASE) for text in CASES),
    targets=("engine:innodb", "engine:innodb-compressed"),
    blocks=2,
    budget=SMALL,
    measures=("ssd", "csv"),
)


@pytest.fixture(scope="module")
def laboratory_of_module(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    lab = Laboratory(tmp_path_factory.mktemp("run"))
    assert lab.run(PLAN) == ("ok", "")
    assert servers_on(lab.directory) == []
    assert not lab.scratch.exists()
    return lab


@pytest.fixture
def store(laboratory_of_module: Laboratory) -> Iterator[Reader]:
    with laboratory_of_module.reader() as reader:
        yield reader


def test_rounds_of_a_block_stand_next_to_each_other(store: Reader) -> None:
    names = {target.id: target.name for target in store.targets(1)}
    labels = {case.id: case.label for case in store.cases(1)}
    seed = store.cases(1)[0].params["seed"]
    ran = [(labels[r.case], r.number, names[r.target]) for r in store.rounds(1)]
    assert ran == [
        (label, number, name)
        for label, number in product(labels.values(), range(2))
        for name in order(list(names.values()), seed, label, number)
    ]


def test_the_order_is_drawn_at_random() -> None:
    names = ["a", "b", "c"]
    drawn = [order(names, 1, "case", number) for number in range(600)]
    assert drawn == [order(names, 1, "case", number) for number in range(600)]
    assert order(names, 2, "case", 0) != order(names, 1, "case", 0) or drawn[:9] != [
        order(names, 2, "case", number) for number in range(9)
    ]
    counts = Counter(map(tuple, drawn))
    assert set(counts) == set(permutations(names))
    assert min(counts.values()) > 60, "a hundred each are expected"


def test_each_round_has_its_figures_and_series(store: Reader) -> None:
    seconds = {case.id: case.params["seconds"] for case in store.cases(1)}
    for round_ in store.rounds(1):
        assert round_.figures["client_cpu_seconds"] > 0
        assert round_.status == "ok"
        assert ({"tps", "qps", "latency_p99_ms", "cpu_seconds", "resident_peak_bytes",
                "device_written_bytes", "errors", "retries", "switches_per_transaction",
                "forced_switches_per_transaction", "other_cores"}
                <= set(round_.figures))  # fmt: skip
        # In `bulk_insert` every row counts as a transaction, so a transaction may have less than
        # one context switch.
        waits = 0.5 if seconds[round_.case] == 1 else 0.0
        assert round_.figures["switches_per_transaction"] > waits
        assert round_.figures["seconds"] > seconds[round_.case] - 0.1
        assert round_.figures["tps"] > 0
        assert round_.figures["resident_peak_bytes"] > 32 << 20
        series = store.series(round_.id)
        if seconds[round_.case] > 1:
            assert {"cpu_seconds", "resident_bytes", "switches", "tps", "qps"} <= set(series)
            assert [second for second, _ in series["cpu_seconds"]][:1] == [0]


def test_the_measured_seconds_exclude_the_lead(store: Reader) -> None:
    """A busy machine lengthens rounds, so the shortest round of each case decides."""
    params = {case.id: case.params for case in store.cases(1)}
    shortest: dict[int, float] = {}
    for round_ in store.rounds(1):
        known = shortest.get(round_.case, round_.figures["seconds"])
        shortest[round_.case] = min(known, round_.figures["seconds"])
    led = {case: each for case, each in params.items() if each["lead_seconds"] > 0}
    assert len(led) == 2
    for case, each in led.items():
        assert shortest[case] < each["seconds"] + each["lead_seconds"] - 0.1


def test_what_is_owed_after_the_last_round_is_counted(store: Reader) -> None:
    labels = {case.workload: case.label for case in store.cases(1)}
    settled: dict[str, set[str]] = {}
    for each in store.settled(1):
        assert (each.moment, each.value >= 0) == ("settled", True)
        settled.setdefault(each.dataset, set()).add(each.name)
    assert set(settled) == {labels["oltp_read_write"], labels["bulk_insert"]}, "the one reads only"
    for names in settled.values():
        assert {"settled_cpu_us_per_transaction", "settled_device_written_bytes_per_transaction",
                "settled_device_read_bytes_per_transaction"} <= names  # fmt: skip
    report = collect(store, 1)
    for each in report.results:
        figure = "settled_cpu_us_per_transaction"
        assert (figure in each.figures) == (each.case.label in settled)
        if figure in each.figures:
            assert each.settled("cpu_us_per_transaction") == figure


def test_space_is_taken_after_load_after_updates_and_at_rest(
    laboratory: Laboratory, real_rest: None
) -> None:
    """Files reach their final sizes when the last page is written."""
    case = parse_case("oltp_read_write:tables=2", BASE)
    assert laboratory.run(replace(PLAN, cases=(case,), blocks=1)) == ("ok", "")
    with laboratory.reader() as store:
        first, second = store.targets(1)
        state = {(s.target, s.moment, s.name): s.value for s in store.state(1)}
    for moment in ("load", "update", "rest"):
        innodb = state[first.id, moment, "data_bytes"]
        tables = [v for (target, when, name), v in state.items()
                  if (target, when) == (first.id, moment)
                  and name.startswith("table_bytes.")]  # fmt: skip
        assert len(tables) == 2
        assert sum(tables) == innodb > 2 * 500 * 200
        assert 0 < state[second.id, moment, "data_bytes"] < innodb
        assert state[first.id, moment, "ssd_4k_bytes"] > 0
    # Both targets export the same rows, hence the same bytes.
    exports = {state[t.id, "load", "csv_bytes"] for t in (first, second)}
    assert len(exports) == 1
    assert state[first.id, "load", "load_seconds"] > 0


def test_settings_and_breaches_are_recorded(store: Reader) -> None:
    for target in store.targets(1):
        assert target.memory_bytes == SMALL.memory_bytes
        assert target.durable is True
        assert target.settings["innodb_flush_log_at_trx_commit"] == "1"
    # Memory settings, durability and isolation are equal.
    warnings = [each for each in store.warnings(1) if each.rule not in ("client", "owed")]
    assert all(each.message.startswith("resident memory differs") for each in warnings)


def test_events_tell_the_run_from_start_to_end(
    store: Reader, laboratory_of_module: Laboratory
) -> None:
    events = store.events(1)
    assert [(e.kind, e.data) for e in events] == laboratory_of_module.events
    kinds = [event.kind for event in events]
    assert kinds[-1] == "ended"
    assert kinds.count("started") == 1
    assert kinds.count("round") == len(store.rounds(1)) == 12
    assert "second" in kinds
    steps = [event.data for event in events if event.kind == "step"]
    assert steps[-1]["done"] == steps[-1]["steps_total"]
    assert steps[-1]["seconds_left"] == 0
    assert [step["done"] for step in steps] == sorted({step["done"] for step in steps})


def test_the_summary_names_value_and_ratio(store: Reader) -> None:
    first, second = store.targets(1)
    case = store.cases(1)[0]
    report = collect(store, 1)
    one, other = (report.result(case, target) for target in (first, second))
    assert one is not None and one.headline is not None
    assert cell(report, one) == f"{one.headline.value:,.1f}"
    ratio = report.ratio(other, "tps")
    assert ratio is not None and ratio.count == 2
    assert cell(report, other).endswith(f" ×{ratio.value:.3f} ({ratio.low:.3f}…{ratio.high:.3f})")
    assert cell(report, None) == "–"
    told = [event.data for event in store.events(1) if event.kind == "case"]
    assert [(each["case"], each["blocks"], each["concluded"]) for each in told] == [
        (case.label, 2, False) for case in store.cases(1)
    ]


@pytest.mark.usefixtures("no_purge")
def test_workloads_of_our_own_are_recorded_with_their_figures(laboratory: Laboratory) -> None:
    """One of the two workloads kills and restarts the server while the measures watch it."""
    base = Params(threads=2, seconds=2, lead_seconds=0.2, warm_seconds=0)
    texts = ("tpcc:warehouses=1,scale=0.01", "recovery:rows=1000,log_mb=1")
    cases = tuple(parse_case(text, base) for text in texts)
    ended = laboratory.run(Plan("test", "", cases, ("engine:innodb",), blocks=2, budget=SMALL))
    assert ended == ("ok", ""), ended[1]
    with laboratory.reader() as store:
        headlines = [case.headline for case in store.cases(1)]
        assert headlines == ["new_orders_per_minute", "recovery_seconds"]
        for case in store.cases(1):
            rounds = [round_ for round_ in store.rounds(1) if round_.case == case.id]
            assert len(rounds) == 2
            for round_ in rounds:
                assert round_.status == "ok"
                assert round_.figures[case.headline] > 0
                # Only a workload that counts transactions has figures per transaction.
                counted = case.workload == "tpcc"
                assert ("tps" in round_.figures) == counted
                assert ("cpu_us_per_transaction" in round_.figures) == counted
                assert round_.figures["cpu_seconds"] > 0
                assert round_.figures["resident_peak_bytes"] > 0


def test_servers_that_do_not_fit_together_take_turns(laboratory: Laboratory, monkeypatch) -> None:  # noqa: ANN001
    import tiny_workload  # noqa: F401

    monkeypatch.setattr("firn_lab.runner.run.available_memory_bytes", lambda: 0)
    case = parse_case("tiny", Params(threads=1, seconds=0.2))
    plan = Plan("test", "", (case,), ("engine:innodb",), blocks=2, budget=SMALL)
    assert laboratory.run(plan)[0] == "ok"
    with laboratory.reader() as store:
        assert [r.status for r in store.rounds(1)] == ["ok", "ok"]
    assert Path(laboratory.store).is_file()
    warmed = [data for kind, data in laboratory.events if data.get("phase") == "warm"]
    assert len(warmed) == 2
