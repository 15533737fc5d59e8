"""The optimizer counts the rows that the session's own open transaction has written."""

from __future__ import annotations

from typing import Any

import pytest
from server import ENGINE, Server

ROWS = 4000
JOIN = "SELECT COUNT(*) FROM j a JOIN j b ON a.id = b.id + 1 WHERE b.a % 3 = 0"
RANGE = "SELECT COUNT(*) FROM j WHERE a BETWEEN 10 AND 12"
WIDE = "SELECT SUM(v) FROM j WHERE a >= 10"
QUERIES = (JOIN, RANGE, WIDE)


def _plan(cursor: Any, query: str) -> list[tuple[str, str, str, int]]:
    """Table, kind of access, key and rows of each step."""
    cursor.execute(f"EXPLAIN {query}")
    columns = [each[0] for each in cursor.description]
    steps = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    return [(s["table"], s["type"], s["key"] or "", int(s["rows"] or 0)) for s in steps]


def _fill(cursor: Any, engine: str, temporary: str) -> None:
    cursor.execute(
        f"CREATE {temporary} TABLE j (id INT PRIMARY KEY, a INT, v INT, KEY a (a)) ENGINE={engine}"
    )
    cursor.execute("BEGIN")
    cursor.execute(f"INSERT INTO j SELECT seq, seq % 1000, seq FROM seq_1_to_{ROWS}")


@pytest.mark.parametrize("temporary", ["", "TEMPORARY"])
def test_a_table_filled_in_the_transaction_has_its_plans(server: Server, temporary: str) -> None:
    """The way to each row is that of InnoDB, and of the session after its commit."""
    found: dict[str, Any] = {}
    for engine in (ENGINE, "InnoDB"):
        server.query(f"CREATE OR REPLACE DATABASE d_{engine}")
        with server.connect(f"d_{engine}") as connection, connection.cursor() as cursor:
            _fill(cursor, engine, temporary)
            inside = {query: _plan(cursor, query) for query in QUERIES}
            for query in QUERIES:
                cursor.execute(query)
                found.setdefault(query, []).append(cursor.fetchall())
            cursor.execute("SELECT COUNT(*) FROM j")
            assert cursor.fetchall() == ((ROWS,),)
            cursor.execute("COMMIT")
            found[engine] = inside
    for query in QUERIES:
        assert found[query][0] == found[query][1]
        ours, theirs = found[ENGINE][query], found["InnoDB"][query]
        assert [step[:3] for step in ours] == [step[:3] for step in theirs], query
        for our, their in zip(ours, theirs, strict=True):
            assert their[3] / 3 <= our[3] <= their[3] * 3, (query, our, their)
