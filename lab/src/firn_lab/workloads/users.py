"""A table of user accounts: reads by primary key, by secondary index, by covering scan, and of the
first 20 rows of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed, UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import (
    SqlSession,
    by_index,
    create_table,
    scaled_option,
    text,
)
from firn_lab.workloads.workload import WORKLOADS, Params

COUNTRIES = 240
STATES = 50
SHARE_ROWS = 20_000

COLUMNS = (
    "id INT NOT NULL, name VARCHAR(64) NOT NULL, email VARCHAR(64) NOT NULL, "
    "password VARCHAR(64) NOT NULL, dob DATE, address VARCHAR(128) NOT NULL, "
    "city VARCHAR(64) NOT NULL, state_id INT NOT NULL, zip VARCHAR(8) NOT NULL, "
    "country_id INT NOT NULL, PRIMARY KEY (id)"
)
INDEXES = ("UNIQUE users_email (email)", "users_country (country_id, state_id, city)")

_WHOLE = (
    "SELECT id, name, email, password, dob, address, city, state_id, zip, country_id FROM users"
)
# For each kind of access: the statement, and the argument that it takes (an id, an email or a
# country).
ACCESSES = {
    "by_key": (f"{_WHOLE} WHERE id = %s", "id"),
    "by_email": (f"{_WHOLE} WHERE email = %s", "email"),
    "covered": ("SELECT state_id, city FROM users WHERE country_id = %s LIMIT 20", "country"),
    "first_20": (f"{_WHOLE} WHERE country_id = %s LIMIT 20", "country"),
}


def email(number: int) -> str:
    """An email address; neighbouring ids get distant addresses."""
    return f"{number * 2654435761 % 2**32:08x}.{number}@example.org"


def country(number: int) -> int:
    return number * 7919 % COUNTRIES


def accounts(seed: int, numbers: range) -> Iterator[Row]:
    random = Random(f"users {seed} {numbers.start}")
    for number in numbers:
        born = date(1940, 1, 1) + timedelta(days=random.randrange(25_000))
        yield (
            number,
            text(random, random.randint(8, 24)),
            email(number),
            random.randbytes(20).hex(),
            born,
            f"{random.randint(1, 999)} {text(random, random.randint(8, 30))} street",
            f"city {random.randrange(2000)}",
            random.randrange(STATES),
            f"{random.randrange(100_000):05d}",
            country(number),
        )


class UsersSession(SqlSession):
    """Each transaction is one statement; a wrong row ends the round."""

    def __init__(self, connection: Any, rows: int, kinds: tuple[str, ...]) -> None:
        super().__init__(connection)
        self._rows = rows
        self._kinds = kinds

    def choose(self, random: Random) -> Callable[[], Done]:
        kind = random.choice(self._kinds)
        statement, by = ACCESSES[kind]
        number = random.randint(1, self._rows)
        argument = {"id": number, "email": email(number), "country": country(number)}[by]

        def transaction() -> Done:
            found = self.rows(statement, (argument,))
            if by == "country":
                if not found or len(found) > 20:
                    raise CheckFailed(f"{kind} {argument}: {len(found)} rows")
            elif [row[0] for row in found] != [number]:
                raise CheckFailed(f"{kind} {argument}: {found}")
            return Done(kind, 1)

        return transaction


@WORKLOADS.register("users")
class Users(SessionWorkload):
    summary = "a web user-account table: by key, by email, covered, first 20 of a country"
    options = {"rows": "1000000", "access": "all"}
    writes = False
    warm_reads = {"users": "SUM(LENGTH(address))"}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows")
        access = self.option("access")
        if access not in ("all", *ACCESSES):
            raise UsageError(f"{name}: access is all, {', '.join(ACCESSES)}, not {access!r}")
        self.kinds = tuple(ACCESSES) if access == "all" else (access,)

    @property
    def about_bytes(self) -> float:
        return self.rows * 350.0

    @property
    def dataset(self) -> str:
        return f"users rows={self.rows} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        create_table(target, "users", COLUMNS, *INDEXES)

    def shares(self) -> list[Share]:
        return shares("users", self.rows, partial(accounts, self.params.seed), SHARE_ROWS)

    def session(self, target: Target) -> Callable[[int], UsersSession]:
        return lambda number: UsersSession(target.connect(), self.rows, self.kinds)

    def check(self, target: Target) -> list[str]:
        """Checks that the primary key and both indexes hold every row."""
        wrong = []
        for index, condition in (
            ("PRIMARY", "id > 0"),
            ("users_email", "email > ''"),
            ("users_country", "country_id >= 0"),
        ):
            hint = by_index(target, index)
            count = target.query(f"SELECT COUNT(*) FROM users{hint} WHERE {condition}")[0][0]
            if count != self.rows:
                wrong.append(f"{index}: {count} rows, not {self.rows}")
        return wrong
