"""Debian's PostgreSQL in a private cluster: `postgresql[:FILLFACTOR]`, by default 100.

PostgreSQL reads through the page cache by design, so memory beyond `shared_buffers` serves it as
well; the rules of fairness report that. PostgreSQL refuses to run as root: if the lab is root, the
server runs as the user `postgres`.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import shutil
from pathlib import Path
from typing import Any

import psycopg

from firn_lab import processes
from firn_lab.errors import TargetError, UsageError
from firn_lab.targets.private import PrivateTarget
from firn_lab.targets.target import DATABASE, TARGETS, Address, Budget, RestState, Settings, Target

MIB = 1 << 20
PORT = 5432
USER = "postgres"
RECORDED = {
    "shared_buffers", "wal_level", "max_wal_size", "synchronous_commit", "fsync",
    "full_page_writes", "effective_cache_size", "autovacuum", "checkpoint_timeout",
    "default_transaction_isolation", "max_connections", "work_mem", "wal_compression",
}  # fmt: skip


class PostgreSqlTarget(PrivateTarget):
    """A private PostgreSQL server; tables go to the schema `public`."""

    dialect = "postgresql"

    def __init__(self, fill_factor: int, budget: Budget, scratch: Path) -> None:
        argument = "" if fill_factor == 100 else f":{fill_factor}"
        super().__init__(f"postgresql{argument}", f"postgresql{argument}", scratch)
        self.fill_factor = fill_factor
        self._budget = budget

    @functools.cached_property
    def _programs(self) -> Path:
        return programs()

    def lacks(self) -> str:
        try:
            self._programs  # noqa: B018
        except TargetError as error:
            return str(error)
        return "it has no thread pool" if self._budget.thread_pool else ""

    def create_suffix(self) -> str:
        return "" if self.fill_factor == 100 else f" WITH (fillfactor={self.fill_factor})"

    def address(self, database: str = DATABASE) -> Address:
        return Address("postgresql", USER, database, socket=self.socket_dir, port=PORT)

    def connect(self, database: str = DATABASE, **options: Any) -> Any:
        return psycopg.connect(
            host=str(self.socket_dir),
            port=PORT,
            user=USER,
            dbname=database or "postgres",
            **{"autocommit": True, **options},
        )

    def create_database(self, database: str = DATABASE) -> None:
        with self.connect("") as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {database}")

    def query(self, statement: str, arguments: Any = None, database: str = DATABASE) -> list[Any]:
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall()) if cursor.description else []

    def _create(self) -> None:
        options = self._process_options()
        if options:
            self._own(self.directory)
        command = [
            str(self._programs / "initdb"),
            f"--pgdata={self.data_dir}",
            f"--username={USER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        code, said = processes.run(command, cwd="/", **options)
        if code != 0:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            raise TargetError(f"initdb failed: {said[-4000:]}")

    def _command(self) -> list[str]:
        memory = self._budget.memory_bytes
        settings = {
            "listen_addresses": "",
            "port": PORT,
            "unix_socket_directories": self.socket_dir,
            "shared_buffers": f"{memory // MIB}MB",
            "effective_cache_size": f"{memory // MIB}MB",
            # The log is large enough not to throttle writers, as InnoDB's is.
            "max_wal_size": f"{max(96, min(2048, memory // MIB))}MB",
            "checkpoint_timeout": "30min",
            "checkpoint_completion_target": 0.9,
            "max_connections": 400,
            "synchronous_commit": "on" if self._budget.durable else "off",
            "huge_pages": "off",
            "jit": "off",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.data_dir), *options]

    def _process_options(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        try:
            user = pwd.getpwnam(USER)
        except KeyError:
            raise TargetError(
                "PostgreSQL does not run as root, and there is no user postgres"
            ) from None
        group = grp.getgrgid(user.pw_gid)
        return {"user": user.pw_uid, "group": group.gr_gid, "extra_groups": []}

    def _own(self, directory: Path) -> None:
        """Gives the directory to the server's user; checks that the user may enter all parents."""
        shutil.chown(directory, USER)
        for parent in directory.parents:
            if not parent.stat().st_mode & 0o001:
                raise TargetError(
                    f"PostgreSQL runs as user {USER}, which may not enter {parent}: "
                    "name another place with --dir"
                )

    def settings(self) -> Settings:
        rows = self.query("SELECT name, current_setting(name) FROM pg_settings", database="")
        values = {name: value for name, value in rows if name in RECORDED}
        values["fillfactor"] = str(self.fill_factor)
        memory = self.query("SELECT pg_size_bytes(current_setting('shared_buffers'))", None, "")
        durable = values["synchronous_commit"] == "on" and values["fsync"] == "on"
        version = self.query("SHOW server_version", database="")[0][0]
        isolation = values["default_transaction_isolation"]
        return Settings(
            f"PostgreSQL {version}", int(memory[0][0]), durable, True, isolation, values
        )

    def analyze(self, database: str = DATABASE) -> None:
        self.query("VACUUM (ANALYZE)", database=database)

    def rest(self, seconds_max: float = 240.0) -> RestState:
        self.query("CHECKPOINT", database="")
        return self._await_quiet(seconds_max)

    def table_bytes(self, database: str = DATABASE) -> dict[str, int]:
        rows = self.query(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname",
            database=database,
        )
        return {name: int(size) for name, size in rows}


def programs() -> Path:
    """The program directory of the newest server that Debian installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4])
    )
    if not found:
        raise TargetError("PostgreSQL is not there: apt-get install postgresql")
    return found[-1].parent


@TARGETS.register("postgresql")
def postgresql(argument: str, budget: Budget, scratch: Path) -> Target:
    """postgresql[:FILLFACTOR]: Debian's PostgreSQL in a private cluster."""
    try:
        fill_factor = int(argument or 100)
    except ValueError:
        fill_factor = 0
    if not 10 <= fill_factor <= 100:
        raise UsageError(f"postgresql:{argument}: the fill factor is a number from 10 to 100")
    return PostgreSqlTarget(fill_factor, budget, scratch)
