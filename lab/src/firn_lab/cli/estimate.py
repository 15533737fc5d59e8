"""Predicts the disk space of FIRN for the InnoDB tables of a server. It only reads.

firn-lab estimate --dsn mysql://user:password@host:3306/shop --chart shop.png --gb-month 0.08
firn-lab estimate --dsn 'mysql://root@/?socket=/run/mysqld/mysqld.sock' --table orders
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pymysql
from pymysql import converters
from rich.console import Console
from rich.table import Table

from firn_lab.cli.common import add_prices, prices_of, wide_console
from firn_lab.cli.numbers import above, at_least, new_file
from firn_lab.errors import LabError, TargetError, UsageError
from firn_lab.estimate.blockers import of_server
from firn_lab.estimate.read_budget import Limits
from firn_lab.estimate.run import TableEstimate, estimate, total
from firn_lab.estimate.schema import Query
from firn_lab.price import Prices
from firn_lab.report.units import bytes_text
from firn_lab.targets.target import Budget, make_target

NAME = "estimate"
HELP = "what FIRN would take on disk for the tables of a server"
GB = 1e9


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dsn", required=True, help="mysql://user:password@host:port/database")
    parser.add_argument("--table", nargs="+", default=[], help="these only")
    parser.add_argument(
        "--sample-mib", type=above(0.0), default=4, help="rows read for each index (%(default)s)"
    )
    parser.add_argument(
        "--scan-mib", type=at_least(0.0), default=256, metavar="MIB",
        help="a table up to this size is read whole by the server (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--total-mib", type=above(0.0), default=Limits.total_bytes >> 20, metavar="MIB",
        help="of all tables together (%(default)s): beyond it fewer are read whole, then ranges "
        "become smaller, then the smallest tables are left out",
    )  # fmt: skip
    parser.add_argument(
        "--count", action="store_true", help="count rows of larger tables, which reads an index"
    )
    parser.add_argument(
        "--seconds", type=above(0.0), default=60, help="of each statement (%(default)s)"
    )
    parser.add_argument("--seed", type=at_least(0), default=Limits.seed)
    parser.add_argument(
        "--chart", type=new_file(".png", ".svg"), metavar="FILE", help=".png or .svg"
    )
    parser.add_argument("--json", action="store_true", help="numbers for programs")
    add_prices(parser, space_alone=True)


def main(chosen: argparse.Namespace) -> int:
    prices = prices_of(chosen)
    if prices and not any(offer.gb_month for offer in prices):
        raise UsageError("space alone is priced here: no offer has a gb_month")
    limits = Limits(
        int(chosen.sample_mib * 2**20),
        int(chosen.scan_mib * 2**20),
        int(chosen.total_mib * 2**20),
        chosen.seed,
        chosen.count,
    )
    dsn, database = split_dsn(chosen.dsn)
    connection = connect(dsn, chosen.seconds)
    found: list[TableEstimate] = []
    try:
        settings = of_server(query_of(connection))
        with Console(stderr=True).status("reading") as status:
            for each in estimate(query_of(connection), database, chosen.table, limits):
                found.append(each)
                status.update(f"{each.name} done")
    finally:
        connection.close()
    if chosen.chart:
        # Imported here because the import takes half a second, which other commands should not pay.
        from firn_lab.estimate.chart import draw

        draw(found, chosen.chart)
    if chosen.json:
        print(json.dumps([asdict(each) for each in (*found, total(found))], indent=1))
    else:
        show(found, prices)
        for setting in settings:
            wide_console().print(f"the server's {setting} is nothing that FIRN works with")
    return 1 if any(each.problem and not each.blockers for each in found) else 0


def split_dsn(text: str) -> tuple[str, str | None]:
    """Splits the dsn into the dsn without database, and the database if one is named."""
    head, question, options = text.removeprefix("dsn:").partition("?")
    scheme, separator, rest = head.partition("://")
    place, _, database = rest.partition("/")
    if not separator or "@" in database:
        raise UsageError(
            "--dsn takes mysql://user:password@host:port/database (/ in a password as %2F)"
        )
    return f"{scheme}://{place}{question}{options}", database or None


def connect(dsn: str, seconds: float) -> Any:
    """A read-only session whose statements time out after `seconds`."""
    plain = {kind: each for kind, each in converters.conversions.items() if not _is_number(kind)}
    try:
        connection = make_target(f"dsn:{dsn}", Budget(), Path()).connect("", conv=plain)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
            # The variable that limits the time of a statement is called max_statement_time in
            # MariaDB, in seconds, and max_execution_time in MySQL, in milliseconds. Set the one
            # that exists.
            for variable, value in (
                ("max_statement_time", seconds),
                ("max_execution_time", int(seconds * 1000)),
            ):
                cursor.execute("SHOW VARIABLES LIKE %s", (variable,))
                if cursor.fetchall():
                    cursor.execute(f"SET SESSION {variable} = {value}")
            cursor.execute("SET SESSION time_zone = '+00:00'")
    except pymysql.MySQLError as error:
        raise TargetError(f"the server does not answer: {error}") from error
    return connection


def _is_number(kind: Any) -> bool:
    """Whether a key of PyMySQL's converter table belongs to a decoder.

    Decoders are found by the server's type number, encoders by the Python type.
    """
    return isinstance(kind, int)


def query_of(connection: Any) -> Query:
    """A function that runs a statement and turns server errors into LabError."""

    def query(statement: str, values: Sequence[Any]) -> Sequence[Any]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, tuple(values))
                rows: Sequence[Any] = cursor.fetchall()
                return rows
        except pymysql.MySQLError as error:
            raise LabError(f"the server says: {error.args[-1]}") from error

    return query


def show(found: Sequence[TableEstimate], prices: Sequence[Prices]) -> None:
    stored = [each for each in prices if each.gb_month]
    table = Table("table", "rows", "InnoDB now", "FIRN", "± at most", "saved", "read", box=None)
    for offer in stored:
        table.add_column(f"saved a month, {offer.name}")
    whole = total(found)
    for each in [*found, whole]:
        if each.problem:
            table.add_row(each.name, "", bytes_text(each.innodb_bytes), each.problem)
            continue
        part = each.saved_bytes / each.innodb_bytes if each.innodb_bytes else 0.0
        saved = f"{bytes_text(each.saved_bytes)} ({part:.0%})"
        how = "" if each.read_whole or each is whole else " in ranges"
        money = [
            f"{each.saved_bytes / GB * offer.gb_month:,.4g} {offer.currency}" for offer in stored
        ]
        money = ["?"] * len(stored) if each.stale else money
        table.add_row(
            each.name,
            f"{each.rows:,.0f}",
            f"{bytes_text(each.innodb_bytes)}{' ?' if each.stale else ''}",
            bytes_text(each.firn.bytes),
            bytes_text(each.firn.error),
            "?" if each.stale else saved,
            f"{bytes_text(each.read_bytes)}{how}",
            *money,
        )
    console = wide_console()
    console.print(table)
    for each in found:
        if each.stale:
            console.print(
                f"{each.name}: InnoDB's statistics are out of date, and it is not in the total: "
                "ANALYZE TABLE, or a user with the PROCESS privilege, who sees what files take"
            )
        if each.blockers:
            console.print(f"{each.name}: FIRN refuses it with: {'; '.join(each.blockers)}")
