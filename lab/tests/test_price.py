"""Prices, costs and the break-even."""

from __future__ import annotations

from pathlib import Path

import fake_stores
import pytest

from firn_lab import cli
from firn_lab.clock import SystemClock
from firn_lab.intervals import single
from firn_lab.price import BreakEven, Cost, Prices, break_even, cost, ios
from firn_lab.report.costs import costs, space_ratio, transaction_ios
from firn_lab.report.report_data import Result, collect
from firn_lab.store import Reader, Writer

HERE = Prices("here", hour=3.6, gb_month=0.1, million_ios=0.2, io_kib=16)


def test_cost_of_work_and_space() -> None:
    # At 1000/s a million transactions take 1000 s, and the machine costs 0.001 a second. A
    # transaction has two I/Os.
    found = cost(HERE, tps=1000, ios_each=2, space_ratio=0.25)
    assert found.per_million == pytest.approx(1.0 + 0.4)
    assert found.per_tb_month == pytest.approx(25)
    assert cost(HERE, 1000, None, None) == Cost(None, None), "I/O is charged for"
    free = Prices("free I/O", hour=3.6)
    assert cost(free, 1000, None, 1.0) == Cost(pytest.approx(1.0), 0.0)
    assert cost(HERE, 0, 1, 1).per_million is None


def test_small_requests_count_as_one_and_large_ones_as_several() -> None:
    assert ios(HERE, requests=3, size=3 * 4096) == 3
    assert ios(HERE, requests=3, size=3 * 65536) == 12


def test_what_was_put_off_is_priced_too() -> None:
    figures = {
        "disk_read_bytes_per_transaction": single(0),
        "disk_reads_per_transaction": single(0),
        "disk_written_bytes_per_transaction": single(4096),
        "disk_writes_per_transaction": single(1),
    }
    result = Result(None, None, (), figures)  # type: ignore[arg-type]
    assert transaction_ios(result, HERE) == 1
    figures |= {
        "settled_disk_read_bytes_per_transaction": single(16384),
        "settled_disk_reads_per_transaction": single(2),
        "settled_disk_written_bytes_per_transaction": single(20480),
        "settled_disk_writes_per_transaction": single(5),
    }
    assert transaction_ios(result, HERE) == 7


def test_break_even_is_where_costs_are_equal() -> None:
    slow_small, fast_large = Cost(2.0, 20.0), Cost(1.0, 80.0)
    found = break_even(slow_small, fast_large)
    assert found is not None and found.verdict == "above" and found.gb_per_tps is not None

    def month(each: Cost, gb: float) -> float:
        assert each.per_million is not None and each.per_tb_month is not None
        return each.per_million / 1e6 * 730 * 3600 + gb * each.per_tb_month / 1000

    at = found.gb_per_tps
    assert month(slow_small, at) == pytest.approx(month(fast_large, at))
    assert month(slow_small, at * 1.1) < month(fast_large, at * 1.1)
    other = break_even(fast_large, slow_small)
    assert other == BreakEven("below", pytest.approx(at))
    assert break_even(Cost(1, 20), Cost(1, 80)) == BreakEven("always")
    assert break_even(Cost(2, 80), Cost(1, 80)) == BreakEven("never")
    assert break_even(Cost(1, 80), Cost(1, 80)) == BreakEven("equal")
    assert break_even(Cost(None, 80), Cost(1, 80)) is None


@pytest.mark.parametrize(
    ("gb", "text"),
    [(12.3, "12 GB"), (0.9999, "1 GB"), (0.0086, "8.6 MB"), (7.8e-5, "78 kB"), (1234.0, "1.2 TB"),
     (2e-9, "2 bytes"), (4.56e6, "4,600 TB"), (0.5, "500 MB")],
)  # fmt: skip
def test_a_break_even_can_be_read(gb: float, text: str) -> None:
    words = BreakEven("above", gb).words("firn", "innodb")
    assert f"above {text} of data for each transaction a second" in words


def test_costs_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_stores.fill(tmp_path / "x.sqlite")
    with Reader(tmp_path / "x.sqlite") as store:
        rows = costs(collect(store, "last", [HERE]))
    firn = next(r for r in rows if (r["case"], r["target"]) == ("rw threads=8 rows=5", "firn"))
    assert firn["per_million"] == pytest.approx(
        0.001 / 1200 * 1e6 + (0.5 + 3) * 0.2
    ), "reads by their bytes, writes by their requests"
    assert firn["per_tb_month"] == pytest.approx(100 / 3)
    assert firn["break_even"] == "firn costs less than innodb at any size and load"
    evil = next(r for r in rows if r["case"].startswith("rw threads=8") and "evil" in r["target"])
    assert evil["break_even"].endswith("cannot be told apart")
    assert all(row["case"] != "list threads=1" for row in rows), "it counts no transactions"
    command = ["price", "--store", str(tmp_path / "x.sqlite")]
    assert cli.main([*command, "--hour", "3.6", "--gb-month", "0.1", "--currency", "EUR"]) == 0
    out = capsys.readouterr().out
    assert "33.33 EUR" in out and "0.8333 EUR" in out
    assert cli.main(command) == 1
    assert "--catalogue" in capsys.readouterr().err


def test_space_is_compared_at_the_same_moment(tmp_path: Path) -> None:
    """FIRN has no size at rest, so the sizes after the updates are compared for both targets."""
    path = tmp_path / "x.sqlite"
    run = fake_stores.fill(path, speed={"innodb": 100.0, "firn": 150.0}, end="")
    writer = Writer(path, SystemClock())
    for target, sizes in ((1, (80.0, 90.0, 40.0)), (2, (30.0, 30.0))):
        for moment, size in zip(("load", "update", "rest"), sizes, strict=False):
            writer.state(run, target, "other", moment, {"data_bytes": (size, fake_stores.BYTES)})
    writer.state(run, 2, "alone", "rest", {"data_bytes": (1.0, fake_stores.BYTES)})
    writer.state(run, 1, "alone", "load", {"data_bytes": (1.0, fake_stores.BYTES)})
    writer.close()
    with Reader(path) as store:
        report = collect(store)
        innodb, firn = report.targets
        assert space_ratio(report, "other", firn, innodb) == pytest.approx(30 / 90)
        assert space_ratio(report, "other", innodb, innodb) == 1
        assert space_ratio(report, "alone", firn, innodb) is None


@pytest.mark.parametrize(
    ("workload", "ratio"),
    [("oltp_update_index", 3.0), ("oltp_insert", 1.0), ("tpcc", 1.0), ("shop", 1.0),
     ("insert", 1.0), ("oltp_delete", 1.0), ("one of tomorrow", 1.0)],
)  # fmt: skip
def test_space_of_more_rows_is_no_space_of_the_engine(
    tmp_path: Path, workload: str, ratio: float
) -> None:
    """FIRN inserted three times as many rows, so the sizes after the load are compared."""
    path = tmp_path / "x.sqlite"
    run = fake_stores.fill(path, speed={"innodb": 100.0, "firn": 300.0}, end="")
    fake_stores.grow(path, run, workload, {"innodb": 200.0, "firn": 600.0})
    with Reader(path) as store:
        report = collect(store, prices=[HERE])
        innodb, firn = report.targets
        assert space_ratio(report, "more", firn, innodb) == pytest.approx(ratio)
        (row,) = (r for r in costs(report) if (r["case"], r["target"]) == (workload, "firn"))
    assert row["per_tb_month"] == pytest.approx(100 * ratio)


def test_what_a_price_rests_on_is_doubted(tmp_path: Path) -> None:
    """The break-even of two targets rests on a ratio that is not significant.

    That matters only if the machine has a price.
    """
    fake_stores.fill(tmp_path / "x.sqlite")
    for hour, doubted in ((1.0, True), (0.0, False)):
        prices = [Prices("here", hour=hour, gb_month=0.1, million_ios=0.2)]
        with Reader(tmp_path / "x.sqlite") as store:
            rows = costs(collect(store, 1, prices))
        words = {row["target"]: row["break_even"] for row in rows if "threads=8" in row["case"]}
        assert "told apart" not in words["firn"]
        assert words[fake_stores.EVIL].endswith("throughputs cannot be told apart") == doubted
