"""The engine gives the same rows, counts, warnings and errors as InnoDB for random statements.

A run plays 72 programs, or as many as FIRN_TEST_SECONDS has time for; FIRN_TEST_SEED repeats one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from differential.pair import Mismatch, Pair
from differential.program import Failure, Program
from differential.shrink import shrink
from server import Server, ServerError
from test_old_collations import OLD_COLLATIONS

SECONDS = float(os.environ.get("FIRN_TEST_SECONDS", "0"))
PROGRAMS = 72
SHRINK_SECONDS_MAX = float(os.environ.get("FIRN_TEST_SHRINK_SECONDS", "60"))
RESTART_EVERY = 12

# Options of the server. Commits are not synced, because other tests cover kills and power cuts. A
# small memtable makes the server flush within one run of the test.
OPTIONS = [
    "--innodb-flush-log-at-trx-commit=0",
    "--loose-firn-flush-log-at-trx-commit=0",
    "--loose-firn-memtable-size=1048576",
    "--innodb-stats-persistent=0",
]


def _collations(server: Server) -> list[str]:
    """All but those in which a sort and an index give different orders, on any engine."""
    rows = server.query(
        "SELECT full_collation_name FROM information_schema.collation_character_set_applicability "
        "WHERE full_collation_name NOT LIKE 'binary%%' ORDER BY 1"
    )
    return [row[0] for row in rows if row[0] not in OLD_COLLATIONS]


def test_random_statements_agree_with_innodb(
    own_server: Callable[..., Server], seed: int, tmp_path: Path
) -> None:
    server = own_server(*OPTIONS)
    collations = _collations(server)
    deadline = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < deadline if SECONDS else number < PROGRAMS:
        pair = Pair(server)
        program = Program(pair, seed + number, tmp_path, collations)
        problem = _run(pair, program)
        pair.close()
        if problem:
            pytest.fail(problem, pytrace=False)
        number += 1
        if number % RESTART_EVERY == 0:
            _same_after_restart(server, pair, program)
    print(f"{number} programs")


def _run(pair: Pair, program: Program) -> str:
    """Runs a random program. Returns the mismatch with everything needed to repeat it, or ''."""
    try:
        program.run()
    except Failure as failure:
        return str(shrink(pair, failure, SHRINK_SECONDS_MAX))
    # The server is gone, so the log of statements cannot be shrunk.
    except (pymysql.err.Error, ServerError) as error:
        last = "\n".join(f"  {sql};" for sql, _ in program.log)
        tail = pair.server.log_tail()
        return f"FIRN_TEST_SEED={program.seed}: {error!r} after\n{last}\nerror log:\n{tail}"
    return ""


def _same_after_restart(server: Server, pair: Pair, program: Program) -> None:
    """Checks that a clean restart changes nothing, and that the tables take statements."""
    server.restart()
    pair.open_sessions(program.settings, program.one_session)
    problem = ""
    try:
        program.verify()
        program.steps(20)
        program.verify()
    except Mismatch as mismatch:
        problem = str(mismatch)
    pair.close()
    if problem:
        pytest.fail(f"FIRN_TEST_SEED={program.seed}, after a restart: {problem}", pytrace=False)


class Saboteur(Pair):
    """A pair whose tested side has a small error, from the 40th statement on."""

    def __init__(self, server: Server, wrong: Callable[[Any], str]) -> None:
        super().__init__(server, ("InnoDB", "InnoDB"), "sabotaged_")
        self.wrong = wrong
        self.statements = 0

    def text(self, sql: str, which: int) -> str:
        """The statement, changed for the tested side."""
        text = super().text(sql, which)
        if which == 1:
            self.statements += 1
            if self.statements > 40:
                return self.wrong(text)
        return text


def _lose_a_row(text: str) -> str:
    is_read = text.startswith("SELECT *") and " LIMIT" not in text and " FOR UP" not in text
    return text + " LIMIT 1" if is_read and " LOCK IN" not in text else text


def _reverse(text: str) -> str:
    return text.replace(" ORDER BY ", " ORDER BY 1 DESC, ") if text.startswith("SELECT") else text


def _skip_a_delete(text: str) -> str:
    return text.replace("DELETE FROM", "SELECT 1 FROM") if text.startswith("DELETE FR") else text


def _accept_duplicates(text: str) -> str:
    return text.replace("INSERT INTO", "INSERT IGNORE INTO")


@pytest.mark.parametrize("wrong", [_lose_a_row, _reverse, _skip_a_delete, _accept_duplicates])
def test_a_wrong_engine_is_found_out(
    server: Server, wrong: Callable[[str], str], tmp_path: Path
) -> None:
    for number in range(5):
        pair = Saboteur(server, wrong)
        program = Program(pair, number, tmp_path)
        try:
            program.run()
        except Failure as failure:
            pair.statements = 40
            shrunk = shrink(pair, failure, 2)
            assert 1 <= len(shrunk.log) <= len(failure.log)
            return
        finally:
            pair.close()
    pytest.fail("five programs did not notice")
