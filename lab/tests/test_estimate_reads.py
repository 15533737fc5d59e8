"""The read budget of an estimate, which depends only on sizes."""

from __future__ import annotations

import pytest

from firn_lab.estimate.read_budget import (
    PAGE_BYTES,
    RUN_BYTES,
    RUNS_MIN,
    Limits,
    ReadBudget,
    allot,
    range_bytes,
    run_count,
    run_rows,
    whole_bytes,
)
from firn_lab.estimate.sample import Sampler
from firn_lab.estimate.schema import Column, Index, Table

MIB = 1 << 20
READS = ReadBudget(False, 4 * MIB, 0.0)


def column(kind: str) -> Column:
    return Column("c", kind, kind, False, 0, 0, 0, 0, "", "", False)


def table(
    name: str, mib: float, *, row: int = 200, key: str = "int", prefix: int | None = None,
    secondary: bool = False,
) -> Table:  # fmt: skip
    """A table; `key` is the type of the primary key's first column, "" for no key."""
    indexes = [Index("PRIMARY", ((column(key), None),), True)] if key else []
    if secondary or prefix:
        indexes.append(Index("k", ((column("varchar"), prefix),), False))
    data = int(mib * MIB)
    index = data // 4 if secondary or prefix else 0
    columns = (column(key or "int"),)
    return Table("lab", name, columns, tuple(indexes), data // row, data, index, ())


def within(tables: list[Table], limits: Limits) -> list[ReadBudget]:
    found = allot(tables, limits)
    assert sum(each.bytes for each in found) <= limits.total_bytes
    assert all(each.problem or each.bytes > 0 for each in found)
    return found


def test_a_few_tables_are_read_as_if_there_were_no_bound() -> None:
    tables = [table("large", 900, secondary=True), table("middle", 200), table("small", 3)]
    large, middle, small = within(tables, Limits())
    assert (large.whole, middle.whole, small.whole) == (False, True, True)
    assert large.sample_bytes == Limits.sample_bytes
    assert middle.bytes == 200 * MIB
    # 4 MiB for each of two indexes, and in addition the pages in which the runs end.
    assert 8 * MIB < large.bytes < 12 * MIB


def test_what_room_is_left_goes_to_the_smallest_tables() -> None:
    tables = [table(str(mib), mib) for mib in (250, 200, 150, 100, 50)]
    found = within(tables, Limits(total_bytes=320 * MIB))
    assert [each.whole for each in found] == [False, False, True, True, True]
    assert {each.sample_bytes for each in found} == {Limits.sample_bytes}


def test_many_tables_get_smaller_ranges() -> None:
    tables = [table(f"t{n}", 100, secondary=True) for n in range(1000)]
    found = within(tables, Limits())
    assert not any(each.problem for each in found)
    assert sum(each.whole for each in found) < 10, "what room is left is not wasted"
    (sample,) = {each.sample_bytes for each in found if not each.whole}
    assert RUNS_MIN * RUN_BYTES <= sample < Limits.sample_bytes
    assert sum(each.bytes for each in found) > Limits.total_bytes / 3, "not less than need be"


def test_the_smallest_are_left_out_at_last() -> None:
    tables = [table(f"t{n}", 50 - n / 100) for n in range(1000)]
    found = within(tables, Limits(total_bytes=100 * MIB))
    there = [not each.problem for each in found]
    assert there == sorted(there, reverse=True) and 100 < sum(there) < 300
    assert "--total-mib" in found[-1].problem


def test_tables_without_ranges_are_read_whole_or_not_at_all() -> None:
    tables = [table("float", 300, key="double"), table("heap", 300, key=""), table("h", 90, key="")]
    by_name = dict(zip(("float", "heap", "h"), within(tables, Limits()), strict=True))
    assert "begins with double" in by_name["float"].problem
    assert "without a primary key" in by_name["heap"].problem
    assert by_name["h"].whole
    ((none),) = within([tables[2]], Limits(total_bytes=80 * MIB))
    assert "--total-mib" in none.problem


def test_beginnings_of_values_cost_a_page_for_each_row() -> None:
    plain, looked_up = table("t", 900, secondary=True), table("t", 900, prefix=20)
    index = looked_up.indexes[1]
    rows = run_rows(looked_up, index) * run_count(looked_up, index, 4 * MIB)
    more = range_bytes(looked_up, 4 * MIB) - range_bytes(plain, 4 * MIB)
    assert more == pytest.approx(rows * PAGE_BYTES, rel=0.1)
    assert whole_bytes(looked_up) == whole_bytes(plain) + looked_up.data_bytes


def test_huge_rows_do_not_make_a_sample_huge() -> None:
    """The sample has eight runs of four rows of 1 MiB; runs of the usual size would be 85."""
    assert range_bytes(table("t", 9000, row=MIB), 4 * MIB) < 33 * MIB


def test_a_count_is_charged() -> None:
    one = table("t", 900, secondary=True)
    assert range_bytes(one, MIB, count=True) == range_bytes(one, MIB) + one.index_bytes


def test_keys_far_apart_are_not_counted_twice() -> None:
    """Keys are multiples of 40, in runs of four rows: four keys have three gaps."""
    sampler = Sampler(lambda statement, values: [(40, 20000)], table("t", 1), Limits(), READS)
    runs = [[(n, (str(start + n * 40),)) for n in range(4)] for start in range(40, 20000, 2000)]
    index = table("t", 1).primary
    assert index is not None
    rows, error = sampler._count(index, runs)
    assert rows == pytest.approx(500, rel=0.02)
    assert 0 < error < 1
