"""HANDLER … READ moves from where it is, as on InnoDB.

This includes a key that no row has, and moves past either end.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pymysql
import pytest
from server import Server

ENGINES = ("InnoDB", "FIRN")
MOVES = 400


def _answer(session: pymysql.Connection[Any], sql: str) -> Any:
    try:
        with session.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()
    except pymysql.err.MySQLError as error:
        return error.args[0]


@pytest.mark.parametrize("index", ["`PRIMARY`", "a", "u"])
def test_moves_after_a_missing_key_agree_with_innodb(server: Server, index: str, seed: int) -> None:
    rng = Random(f"{seed} {index}")
    sessions = []
    for engine in ENGINES:
        server.query(f"CREATE OR REPLACE DATABASE moves_{engine[:2]}")
        session = server.connect(f"moves_{engine[:2]}")
        for sql in (
            f"CREATE TABLE t (id INT PRIMARY KEY, a INT, u INT UNIQUE, KEY (a)) ENGINE={engine}",
            "INSERT INTO t SELECT 10 * seq, 10 * (seq DIV 2), 10 * seq FROM mysql.seq_1_to_20",
            "INSERT INTO t VALUES (300, NULL, NULL), (310, NULL, NULL), (320, 300, 300)",
            "HANDLER t OPEN",
        ):
            assert not isinstance(_answer(session, sql), int), sql
        sessions.append(session)
    history = []
    missed_then_moved = 0
    missed = False
    for _ in range(MOVES):
        seeks = not history or rng.random() < 0.4
        if seeks:
            key = rng.choice([rng.randrange(-5, 230), 10 * rng.randrange(0, 22)])
            key = "NULL" if index != "`PRIMARY`" and rng.random() < 0.1 else key
            how = rng.choice([f"= ({key})", f">= ({key})", f"> ({key})", f"= ({key})", "FIRST"])
        else:
            how = rng.choice(["NEXT", "PREV"])
            missed_then_moved += missed
        sql = f"HANDLER t READ {index} {how}"
        history.append(sql)
        expected, found = (_answer(session, sql) for session in sessions)
        assert found == expected, history[-4:]
        missed = not found
    assert missed_then_moved > 10


@pytest.mark.parametrize("index", ["`PRIMARY`", "a", "u"])
def test_moves_after_an_empty_table_has_got_rows_agree_with_innodb(
    server: Server, index: str
) -> None:
    """The position after FIRST of an empty table is its end, and its beginning after LAST."""
    rows = "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)"
    answers = []
    for engine in ENGINES:
        name = f"moves_{engine[:2]}"
        server.query(f"CREATE OR REPLACE DATABASE {name}")
        session = server.connect(name)
        created = "CREATE TABLE t (id INT PRIMARY KEY, a INT, u INT UNIQUE, KEY (a))"
        assert not isinstance(_answer(session, f"{created} ENGINE={engine}"), int)
        assert not isinstance(_answer(session, "HANDLER t OPEN"), int)
        told = []
        for begin in ("FIRST", "LAST"):
            for moves in ("NEXT NEXT PREV PREV", "PREV PREV NEXT NEXT", "PREV NEXT", "NEXT PREV"):
                _answer(session, "DELETE FROM t")
                told.append(_answer(session, f"HANDLER t READ {index} {begin}"))
                assert not isinstance(_answer(session, rows), int)
                for move in moves.split():
                    told.append(_answer(session, f"HANDLER t READ {index} {move}"))
        answers.append(told)
        session.close()
    assert answers[1] == answers[0]
    assert ((1, 1, 1),) in answers[0]
