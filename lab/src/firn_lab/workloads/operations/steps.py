"""The operations in order; each works on the result of the previous one.

A step runs its statements and returns found and expected results; the workload stops the clock
before it compares them. `numbers` has 10 rows per group, which go to 26 regions in turn, so every
answer is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from firn_lab.workloads.sql_session import SqlSession

REGIONS = 26
GROUP_ROWS = 10
# Rows per transaction when rows are inserted one by one.
BATCH = 1000
MANY_KEYS = 16
TABLES = ("numbers", "wide")


@dataclass(frozen=True)
class Step:
    """One operation. `work` returns the found and the expected result, or None if there is nothing
    to compare."""

    name: str
    work: Callable[[], tuple[Any, Any] | None]


def region(number: int) -> str:
    return chr(ord("A") + number % REGIONS)


def in_region(rows: int, at: int) -> int:
    """How many of the numbers 0 to rows - 1 are in the region with the number `at`."""
    return len(range(at, rows, REGIONS))


class Steps:
    """Generates all steps for tables of `rows` rows."""

    def __init__(self, session: SqlSession, rows: int, suffix: str) -> None:
        self._session = session
        self._rows = rows
        self._suffix = suffix
        self._groups = -(-rows // GROUP_ROWS)

    def all(self) -> Iterator[Step]:
        rows = self._rows
        yield Step("create", self._create)
        yield Step("insert", lambda: self._insert("numbers", self._number))
        yield Step("count", lambda: self._repeat(10, "SELECT COUNT(*) FROM numbers", rows))
        yield Step("count_distinct", lambda: self._value(
            "SELECT COUNT(DISTINCT reversed) FROM numbers", rows))  # fmt: skip
        yield Step("count_distinct_key_prefix", lambda: self._value(
            "SELECT COUNT(DISTINCT region) FROM numbers", min(rows, REGIONS)))  # fmt: skip
        yield Step("group_on_key", lambda: self._result(
            "SELECT region, COUNT(DISTINCT id) FROM numbers GROUP BY region ORDER BY region",
            [(region(at), in_region(rows, at)) for at in range(min(rows, REGIONS))]))  # fmt: skip
        yield Step("group_on_key_parts", lambda: self._value(
            "SELECT SUM(held) FROM (SELECT region, grp, COUNT(DISTINCT id) AS held FROM numbers "
            "GROUP BY region, grp) AS g", rows))  # fmt: skip
        yield Step("group", lambda: self._value(
            "SELECT COUNT(*) FROM (SELECT grp, COUNT(DISTINCT id), COUNT(DISTINCT reversed) "
            "FROM numbers GROUP BY grp) AS g", self._groups))  # fmt: skip
        yield Step("select_key", self._select_key)
        yield Step("select_key_prefix", self._select_key_prefix)
        yield Step("outer_join_on_key", lambda: self._value(
            "SELECT COUNT(b.id) FROM numbers AS a LEFT OUTER JOIN numbers AS b "
            "ON b.region = a.region AND b.id = a.reversed", self._mirrored()))  # fmt: skip
        yield Step("outer_join", lambda: self._value(
            "SELECT COUNT(*) FROM numbers AS a LEFT OUTER JOIN numbers AS b "
            "ON b.region = a.region AND b.id = a.grp WHERE b.id IS NULL",
            self._alone()))  # fmt: skip
        yield Step("update_of_key", lambda: self._changed(
            f"UPDATE numbers SET reversed = reversed + {rows}", rows))  # fmt: skip
        yield Step("update_of_primary_key", lambda: self._changed(
            f"UPDATE numbers SET id = id + {rows}", rows))  # fmt: skip
        yield Step("alter_table_add", lambda: self._alter(
            "ADD COLUMN added INT NOT NULL DEFAULT 7", "SUM(added)", 7 * rows))  # fmt: skip
        yield Step("alter_table_add_index", lambda: self._alter(
            "ADD INDEX numbers_added (added, id)", "COUNT(*)", rows))  # fmt: skip
        yield Step("alter_table_change", lambda: self._alter(
            "MODIFY COLUMN added BIGINT NOT NULL DEFAULT 7", "SUM(added)", 7 * rows))  # fmt: skip
        yield Step("alter_table_drop_index", lambda: self._alter(
            "DROP INDEX numbers_added", "COUNT(*)", rows))  # fmt: skip
        yield Step("alter_table_drop", lambda: self._alter(
            "DROP COLUMN added", "COUNT(*)", rows))  # fmt: skip
        yield Step("insert_many_keys", lambda: self._insert("wide", self._wide))
        yield Step("update_of_key_many_keys", lambda: self._changed(
            "UPDATE wide SET i1 = i1 + 1, i2 = i2 + 1", rows))  # fmt: skip
        yield Step("update_of_primary_key_many_keys", lambda: self._changed(
            f"UPDATE wide SET id = id + {rows}", rows))  # fmt: skip
        yield Step("delete_all_many_keys", lambda: self._changed("DELETE FROM wide", rows))
        yield Step("delete_all", lambda: self._changed("DELETE FROM numbers", rows))

    def _create(self) -> None:
        for name in TABLES:
            self._session.rows(f"DROP TABLE IF EXISTS {name}")
        self._session.rows(
            "CREATE TABLE numbers (region CHAR(1) NOT NULL, id INT NOT NULL, reversed INT "
            "NOT NULL, grp INT NOT NULL, name CHAR(30) NOT NULL, PRIMARY KEY (region, id), "
            f"UNIQUE (region, reversed), KEY (region, grp, id)){self._suffix}"
        )
        columns = ", ".join(f"i{at} INT NOT NULL" for at in range(1, MANY_KEYS + 1))
        keys = ", ".join(f"KEY (i{at})" for at in range(1, MANY_KEYS + 1))
        self._session.rows(
            f"CREATE TABLE wide (id INT NOT NULL, {columns}, PRIMARY KEY (id), {keys})"
            f"{self._suffix}"
        )

    def _number(self, number: int) -> tuple[Any, ...]:
        """A row of `numbers`; consecutive rows are scattered over the key."""
        id_ = number * 7919 % self._rows
        return region(id_), id_, self._rows - 1 - id_, id_ // GROUP_ROWS, f"name {id_}"

    def _wide(self, number: int) -> tuple[Any, ...]:
        return number, *((number * (2 * at + 1) + at) % 10_007 for at in range(MANY_KEYS))

    def _insert(self, table: str, row: Callable[[int], tuple[Any, ...]]) -> tuple[Any, Any]:
        """Inserts one row per statement and BATCH rows per transaction."""
        session = self._session
        statement = f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row(0)))})"
        for number in range(self._rows):
            if number % BATCH == 0:
                session.rows("BEGIN")
            session.rows(statement, row(number))
            if number % BATCH == BATCH - 1:
                session.commit()
        session.commit()
        return self._value(f"SELECT COUNT(*) FROM {table}", self._rows)

    def _value(self, statement: str, expected: Any) -> tuple[Any, Any]:
        return self._session.rows(statement)[0][0], expected

    def _result(self, statement: str, expected: list[Any]) -> tuple[Any, Any]:
        return self._session.rows(statement), expected

    def _repeat(self, times: int, statement: str, expected: Any) -> tuple[Any, Any]:
        return [self._value(statement, expected)[0] for _ in range(times)], [expected] * times

    def _changed(self, statement: str, expected: int) -> tuple[Any, Any]:
        return self._session.changed(statement), expected

    def _alter(self, change: str, select: str, expected: int) -> tuple[Any, Any]:
        self._session.rows(f"ALTER TABLE numbers {change}")
        return self._value(f"SELECT {select} FROM numbers", expected)

    def _select_key(self) -> tuple[Any, Any]:
        wanted = range(0, self._rows, max(1, self._rows // 1000))
        statement = "SELECT grp FROM numbers WHERE region = %s AND id = %s"
        found = [self._session.rows(statement, (region(at), at)) for at in wanted]
        return found, [[(at // GROUP_ROWS,)] for at in wanted]

    def _select_key_prefix(self) -> tuple[Any, Any]:
        """Reads all rows of each region."""
        statement = "SELECT id, reversed, grp, name FROM numbers WHERE region = %s"
        found = [len(self._session.rows(statement, (region(at),))) for at in range(REGIONS)]
        return found, [in_region(self._rows, at) for at in range(REGIONS)]

    def _mirrored(self) -> int:
        """Number of rows whose mirror image is in the same region.

        The mirror image of a row has its id counted from the last row.
        """
        last = self._rows - 1
        return sum(region(at) == region(last - at) for at in range(self._rows))

    def _alone(self) -> int:
        """Count of the rows whose group number, taken as an id, is in another region."""
        return sum(region(at) != region(at // GROUP_ROWS) for at in range(self._rows))
