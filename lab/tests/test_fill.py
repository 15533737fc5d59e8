"""Filling tables: literals, INSERTs of bounded length, and loads that fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial

import pytest
from conftest import Heard

from firn_lab.errors import LabError, UsageError
from firn_lab.targets import Target
from firn_lab.workloads import Params, make_workload
from firn_lab.workloads import fill as filling
from firn_lab.workloads.fill import Row, Share, fill, literal, shares, statements

VALUES = (
    1, -2.5, Decimal("3.10"), None, "it's a \\ line\n%s \x00", b"\x00'\\\xff", b"",
    date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5),
)  # fmt: skip


def test_shares_hold_each_row_once() -> None:
    parts = shares("t", 25, lambda numbers: [(number,) for number in numbers], 10)
    assert [[row[0] for row in part.rows()] for part in parts] == [
        [*range(1, 11)], [*range(11, 21)], [*range(21, 26)],
    ]  # fmt: skip


def test_statements_are_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "STATEMENT_CHARACTERS_MAX", 20)
    made = list(statements("V ", [(number, "abcd") for number in range(5)]))
    assert made == ["V (0,'abcd'),(1,'abcd')", "V (2,'abcd'),(3,'abcd')", "V (4,'abcd')"]
    assert list(statements("V ", [])) == []
    with pytest.raises(TypeError, match="list"):
        literal([])


def test_what_is_loaded_is_what_was_given(innodb: Target) -> None:
    innodb.create_database()
    innodb.query(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b DOUBLE, c DECIMAL(5,2), d INT, e VARCHAR(50),"
        " f VARBINARY(50), g VARBINARY(50), h DATE, i DATETIME) ENGINE=InnoDB"
    )

    def rows(numbers: range) -> Iterator[Row]:
        return ((number, *VALUES) for number in numbers)

    heard = Heard()
    fill(innodb, shares("t", 10, rows, 3), heard)
    assert heard.done == 1
    assert innodb.query("SELECT * FROM t ORDER BY id") == [(n, *VALUES) for n in range(1, 11)]


def test_a_load_that_fails_says_so(innodb: Target) -> None:
    innodb.create_database()
    innodb.query("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB")
    twice = [Share("t", partial(list, [(1,), (1,)]))]
    with pytest.raises(LabError, match="Duplicate entry"):
        fill(innodb, twice, Heard())

    def killed() -> Iterator[Row]:
        os._exit(3)
        yield (1,)

    with pytest.raises(LabError, match="was killed"):
        fill(innodb, [Share("t", killed)], Heard())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("users", {"access": "none"}),
        ("users", {"rows": "many"}),
        ("blobs", {"random": "2"}),
        ("blobs", {"access": "delete"}),
        ("insert", {"batch": "0"}),
        ("load_time", {"way": "by_hand"}),
        ("load_time", {"order": "none"}),
        ("operations", {"rows": "7919"}),
        ("recovery", {"log_mb": "-1"}),
        ("tpch", {"sf": "0"}),
    ],
)
def test_senseless_options_are_refused(name: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=name):
        make_workload(name, Params(options=options))
