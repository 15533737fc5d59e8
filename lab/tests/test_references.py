"""The workloads references and temporary, small and on InnoDB."""

from __future__ import annotations

import pytest
from conftest import made, run_round

from firn_lab.errors import UsageError
from firn_lab.targets import Target
from firn_lab.workloads import Params, make_workload
from firn_lab.workloads.references import KEPT, References, ReferencesSession


@pytest.mark.parametrize("change", ["insert", "both", "cascade"])
def test_rounds_of_references(innodb: Target, change: str) -> None:
    workload = made(innodb, "references", rows=2000, parents=100, change=change)
    before = innodb.query("SELECT COUNT(*) FROM invoices")[0][0]
    outcome = run_round(workload, innodb)
    counts = {part.name: part.count for part in outcome.parts}
    assert counts["insert"] > 0
    if change == "insert":
        assert set(counts) == {"insert"}
        # A second round goes on with other numbers.
        run_round(workload, innodb)
        assert innodb.query("SELECT COUNT(*) FROM invoices")[0][0] > before + counts["insert"]
    elif counts["insert"] > 4 * KEPT:
        assert counts["delete"] > 0


def test_a_session_goes_on_with_its_rows(innodb: Target) -> None:
    made(innodb, "references", rows=100, parents=10, change="cascade")
    for expected in (1, 2):
        session = ReferencesSession(innodb.connect(), 3, "cascade", 10, 4)
        session._insert_parent([1, 2, 3, 4], ["a", "b", "c", "d"])
        assert len(session._own) == expected
        session.close()
    session = ReferencesSession(innodb.connect(), 3, "cascade", 10, 4)
    session._delete()
    session.close()
    assert innodb.query("SELECT COUNT(*) FROM invoices WHERE id > 100")[0][0] == 4


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM customers WHERE id = 3", "rows refer to customers that do not exist"),
        ("UPDATE invoices SET product = 999 WHERE id = 5", "rows refer to products"),
    ],
)
def test_references_finds_orphans(innodb: Target, damage: str, found: str) -> None:
    workload = made(innodb, "references", rows=500, parents=10)
    assert isinstance(workload, References)
    assert workload.check(innodb) == []
    with innodb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute(damage)
    (wrong,) = workload.check(innodb)
    assert found in wrong


def test_a_round_of_temporary_tables(innodb: Target) -> None:
    for keys in (0, 1):
        workload = made(innodb, "temporary", rows=50, keys=keys)
        assert run_round(workload, innodb).transactions > 0
    innodb.query("DELETE FROM source WHERE id = 7")
    assert workload.check(innodb) == ["49 rows, not 50"]


@pytest.mark.parametrize("options", [{"change": "nothing"}, {"children": "0"}])
def test_references_refuses_options(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="references: "):
        make_workload("references", Params(options=options))
