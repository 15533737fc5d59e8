"""The workloads users, scan, lookup and TPC-H, small and on InnoDB."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pymysql
import pytest
from conftest import Heard, made, run_round

from firn_lab.clock import SystemClock
from firn_lab.errors import CheckFailed
from firn_lab.targets import Target
from firn_lab.workloads import Params, Workload, make_workload
from firn_lab.workloads.scan import PRIME, key, number_of
from firn_lab.workloads.tpch import data
from firn_lab.workloads.tpch.workload import TpcH, plain, queries, same
from firn_lab.workloads.users import accounts, country, email


def measure(workload: Workload, target: Target) -> None:
    workload.measure(target, SystemClock(), Heard(), 0)


def test_accounts_are_the_same_for_a_seed() -> None:
    rows = list(accounts(1, range(1, 2001)))
    assert rows == list(accounts(1, range(1, 2001)))
    assert rows != list(accounts(2, range(1, 2001)))
    assert len({row[2] for row in rows}) == 2000
    assert all(row[2] == email(row[0]) and row[9] == country(row[0]) for row in rows)
    assert len({row[9] for row in rows}) == 240


def test_users(innodb: Target) -> None:
    workload = made(innodb, "users", rows=2000)
    outcome = run_round(workload, innodb)
    assert {part.name for part in outcome.parts} == {"by_key", "by_email", "covered", "first_20"}
    # The access "covered" is a covering scan, which reads the index alone.
    plan = innodb.query("EXPLAIN SELECT state_id, city FROM users WHERE country_id = 3 LIMIT 20")
    assert "Using index" in plan[0][-1]
    innodb.query("DELETE FROM users WHERE id = 7")
    assert any("1999 rows, not 2000" in line for line in workload.check(innodb))
    innodb.query("UPDATE users SET email = CONCAT('x', email)")
    with pytest.raises(CheckFailed, match=r"by_key|by_email"):
        measure(workload, innodb)


def test_users_by_one_access_share_the_table() -> None:
    every = make_workload("users", Params())
    one = make_workload("users", Params(options={"access": "by_email"}))
    assert every.dataset == one.dataset
    assert every.label != one.label


@pytest.mark.parametrize("rows", [1, 10, 999, 1000])
def test_k_is_there_once_and_leads_back(rows: int) -> None:
    keys = [key(number, rows) for number in range(1, rows + 1)]
    assert sorted(keys) == list(range(rows))
    assert [number_of(k, rows) for k in keys] == list(range(1, rows + 1))
    assert rows % PRIME


def test_scan_and_lookup_share_a_table(innodb: Target) -> None:
    scan = made(innodb, "scan", rows=3000)
    lookup = made(innodb, "lookup", rows=3000, range=50)
    assert scan.dataset == lookup.dataset
    outcomes = [run_round(each, innodb) for each in (scan, lookup)]
    assert [part.name for outcome in outcomes for part in outcome.parts] == ["scan", "lookup"]
    innodb.query("UPDATE scanned SET v = v + 1")
    for each in (scan, lookup):
        with pytest.raises(CheckFailed, match="not"):
            measure(each, innodb)


@pytest.fixture(scope="module")
def tpch(innodb: Target) -> TpcH:
    workload = made(innodb, "tpch", sf=0.01)
    assert isinstance(workload, TpcH)
    return workload


def lineitems(path: Path) -> list[list[str]]:
    return [line.split("|") for line in (path / "lineitem.tbl").read_text().splitlines()]


def test_all_queries_of_tpch(tpch: TpcH, innodb: Target) -> None:
    assert set(queries(1)) == set(range(1, 23))
    assert "0.0001000000" in queries(1)[11] and "0.0010000000" in queries(0.1)[11]
    outcome = run_round(tpch, innodb)
    assert [part.name for part in outcome.parts] == [f"q{number:02d}" for number in range(1, 23)]
    # The second round compares with the first, so a changed row must be found.
    innodb.query("UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey = 1")
    with pytest.raises(CheckFailed, match="q01 is answered otherwise than by innodb"):
        measure(tpch, innodb)
    innodb.query("UPDATE lineitem SET l_quantity = l_quantity - 1 WHERE l_orderkey = 1")
    run_round(tpch, innodb)


def test_queries_1_and_6_are_answered_as_by_hand(
    tpch: TpcH, innodb: Target, tmp_path: Path
) -> None:
    with data.files(0.01, tmp_path) as path:
        lines = lineitems(path)
        counts = {
            name: len((path / f"{name}.tbl").read_text().splitlines()) for name in data.TABLES
        }
    for name, count in counts.items():
        assert innodb.query(f"SELECT COUNT(*) FROM {name}") == [(count,)]
    assert counts["customer"] == 1500
    expected = sum(
        Decimal(line[5]) * Decimal(line[6])
        for line in lines
        if "1994-01-01" <= line[10] < "1995-01-01"
        and Decimal("0.05") <= Decimal(line[6]) <= Decimal("0.07")
        and Decimal(line[4]) < 24
    )
    asked = queries(0.01)
    assert innodb.query(asked[6]) == [(expected,)]
    last = date(1998, 12, 1).toordinal() - 90
    held = Counter(
        (line[8], line[9]) for line in lines if date.fromisoformat(line[10]).toordinal() <= last
    )
    found = {tuple(row[:2]): row[-1] for row in innodb.query(asked[1])}
    assert found == held
    assert len(held) == 4


def test_a_query_that_takes_too_long_is_given_up(tpch: TpcH, innodb: Target) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tpch, "limit", 0.0001)
        outcome = tpch.measure(innodb, SystemClock(), Heard(), 0)
    assert outcome.errors > 10
    assert outcome.transactions + outcome.errors == 22
    # The workload accepts only a timeout as an error of a query.
    innodb.query("RENAME TABLE region TO hidden")
    with pytest.raises(pymysql.err.ProgrammingError, match="region"):
        measure(tpch, innodb)
    innodb.query("RENAME TABLE hidden TO region")


def test_a_server_that_hangs_is_not_waited_for(
    innodb: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firn_lab.targets.mysql.ANSWER_SECONDS_MAX", 1)
    with pytest.raises(pymysql.err.OperationalError, match="timed out"):
        innodb.query("SELECT SLEEP(600)")


def test_answers_are_compared_as_values() -> None:
    first = plain([(1, "a  ", Decimal("0.333333"))])
    assert same(first, plain([(1.0, "a", Decimal("0.33333333333"))]))
    assert not same(first, plain([(1, "b", Decimal("0.333333"))]))
    assert not same(first, plain([(1, "a", Decimal("0.334"))]))
    assert not same(first, [])
    assert plain([(2,), (1,)]) == plain([(1,), (2,)])
