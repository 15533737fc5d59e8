"""A fixed list of statements on InnoDB and on the engine, with the same results for a client.

    same_as_innodb(server, '''
        CREATE TABLE t (id INT PRIMARY KEY)
        INSERT INTO t VALUES (1)
        SELECT * FROM t
    ''')

Each line is a statement; a backslash at its end continues it on the next line. Each engine's
session has a default database of its own. Rows are compared in order, changes by affected rows and
warnings, everything by error number. CHECK TABLE must report OK.
"""

from __future__ import annotations

from differential.pair import Mismatch, Outcome, Pair
from server import Server

READS = ("SELECT", "SHOW", "HANDLER", "EXECUTE", "CALL", "WITH", "VALUES")
DEFINITIONS = ("CREATE", "ALTER", "DROP", "ANALYZE", "OPTIMIZE", "RENAME", "USE", "TRUNCATE")


def _kind(statement: str) -> str:
    word = statement.split()[0].upper()
    if statement.upper().startswith("CHECK TABLE"):
        return "check"
    if word in READS:
        return "ordered"
    return "ddl" if word in DEFINITIONS else "change"


def lines(text: str) -> list[str]:
    """The statements of a script."""
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def same_as_innodb(
    server: Server, script: str, errors: dict[int, int] | None = None, prefix: str = "scenario_"
) -> list[Outcome]:
    """Runs the script on both. Raises AssertionError for a statement that differs.

    `errors` maps a statement, counted from 1, to its expected error. All other statements must
    succeed, so that a script that always fails cannot pass. Returns InnoDB's outcomes.
    """
    expected = errors or {}
    pair = Pair(server, prefix=prefix)
    outcomes: list[Outcome] = []
    try:
        pair.reset(["SET time_zone = '+00:00'"], one_session=False)
        pair.run("USE {db}", "ddl")
        for number, statement in enumerate(lines(script), 1):
            try:
                outcome = pair.run(statement, _kind(statement))
            except Mismatch as mismatch:
                raise AssertionError(f"statement {number}: {mismatch}") from None
            assert outcome.error == expected.get(
                number, 0
            ), f"statement {number}, {statement}: error {outcome.error} {outcome.message}"
            outcomes.append(outcome)
    finally:
        pair.close()
    return outcomes
