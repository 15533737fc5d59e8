"""A target: one server with one way to store tables, started, measured and stopped by the runner.

A specification such as `engine:firn`, `postgresql:75` or `dsn:mysql://user@host/db` names a kind,
which is registered, and an argument, which the kind reads:

    @TARGETS.register("engine")
    def engine(argument: str, budget: Budget, scratch: Path) -> Target: ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from firn_lab.registry import Registry

Dialect = Literal["mysql", "postgresql"]

# Every workload keeps its tables in this database.
DATABASE = "lab"


@dataclass(frozen=True)
class Budget:
    """Resources that every target of a run gets alike. Memory is that of the engine's cache."""

    memory_bytes: int = 512 << 20
    # One sync for every commit; otherwise the engine's setting of one a second.
    durable: bool = True
    # Read and write past the page cache, so that memory is what was given.
    direct_io: bool = True


@dataclass(frozen=True)
class Address:
    """Where clients reach the server: a socket, or host and port."""

    dialect: Dialect
    user: str
    database: str
    password: str = ""
    socket: Path | None = None
    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class Settings:
    """Settings that a running server reports. None: unknown (a server of somebody else).

    The rules of fairness compare all but the version; `values` is for the record. `buffered`: reads
    of tables go through the page cache. `isolation`: that of a session that asks for none, in the
    words of the standard.
    """

    version: str
    memory_bytes: int | None
    durable: bool | None
    buffered: bool | None = None
    isolation: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RestState:
    """How a server came to rest. `owes`: what it still did when time was up, in a few words."""

    seconds: float
    owes: str = ""


class Target(ABC):
    """One server. `name` is unique within a run and heads its column in reports.

    Life: start → (connect …, freeze/thaw, restart) → stop → destroy. `stop` and `destroy` may be
    called at any time, also twice. Private servers have `pid` and `data_dir`; others None.
    """

    name: str
    spec: str
    dialect: Dialect
    # Where workloads may put large files of their own (`make_target` sets it).
    scratch: Path

    def lacks(self) -> str:
        """Software that must be installed or built for it, and how; "" when nothing is missing."""
        return ""

    @abstractmethod
    def start(self) -> None:
        """Starts the server on its data (made at the first start) and waits until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Clean shutdown; the data stays."""

    def destroy(self) -> None:
        """Ends every process and removes the data. Never raises."""

    def kill(self) -> None:
        """SIGKILL, for tests of recovery. Only private servers (`pid` is not None)."""
        raise NotImplementedError(f"{self.name} is not ours to kill")

    def freeze(self) -> None:
        """Stops the processes where they stand, caches warm, while another target is measured."""

    def thaw(self) -> None:
        """Lets them go on."""

    def require_alive(self) -> None:
        """Raises TargetDied when the server has ended."""

    @property
    def pid(self) -> int | None:
        """The server's process, when it is ours."""
        return None

    @property
    def pids(self) -> list[int]:
        """The server's processes with all their children."""
        return [] if self.pid is None else [self.pid]

    @property
    def data_dir(self) -> Path | None:
        """Where all its files are, when it is ours."""
        return None

    @property
    def error_log(self) -> Path | None:
        """The server's log, when it is ours."""
        return None

    @abstractmethod
    def address(self, database: str = DATABASE) -> Address:
        """For programs such as sysbench."""

    @abstractmethod
    def connect(self, database: str = DATABASE, **options: Any) -> Any:
        """A new DB-API connection (PyMySQL or psycopg), autocommit on. Parameters: `%s`."""

    @abstractmethod
    def settings(self) -> Settings:
        """Asks the running server."""

    def plugins(self) -> Mapping[str, str]:
        """Files that hold an engine, by name, when it is ours."""
        return {}

    def create_suffix(self) -> str:
        """Text after the parenthesis of CREATE TABLE, such as ` ENGINE=FIRN`."""
        return ""

    def create_database(self, database: str = DATABASE) -> None:
        """Drops the database, if it is there, and makes it anew."""
        with self.connect("") as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            cursor.execute(f"CREATE DATABASE {database}")

    def query(self, statement: str, arguments: Any = None, database: str = DATABASE) -> list[Any]:
        """All rows of one statement, in a session of its own."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall()) if cursor.description else []

    def analyze(self, database: str = DATABASE) -> None:
        """Statistics for the optimizer, of every table, after a load."""

    def rest(self, seconds_max: float = 240.0) -> RestState:
        """Has the engine write what it owes and waits until it has, and is quiet."""
        return RestState(0.0)

    def table_bytes(self, database: str = DATABASE) -> dict[str, int]:
        """Bytes on disk by table, as the engine tells; empty when it does not."""
        return {}

    def data_bytes(self, database: str = DATABASE) -> int | None:
        """Bytes on disk of the tables with their indexes, without the log. None: unknown."""
        sizes = self.table_bytes(database)
        return sum(sizes.values()) if sizes else None


TargetFactory = Callable[[str, Budget, Path], Target]
TARGETS: Registry[TargetFactory] = Registry("target", "firn_lab.targets")


def make_target(spec: str, budget: Budget, scratch: Path) -> Target:
    """The target of a specification `kind[:argument]`; its files go below `scratch`."""
    kind, _, argument = spec.partition(":")
    target = TARGETS[kind](argument, budget, scratch)
    target.scratch = scratch
    return target
