"""A target: one server with one way to store tables, started, measured and stopped by the runner.

A specification such as `engine:firn`, `postgresql:75` or `dsn:mysql://user@host/db` consists of a
registered kind and an argument, which the kind parses:

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
    """The resources that every target of a run gets. The memory is that of the engine's cache."""

    memory_bytes: int = 512 << 20
    # Whether the log is synced at every commit; if not, the target uses its engine's setting for
    # one sync a second.
    durable: bool = True
    # Whether the server bypasses the page cache, so that its memory is limited to the budget.
    direct_io: bool = True
    # Whether MariaDB serves connections with its thread pool instead of a thread for each.
    thread_pool: bool = False
    # Connections that a private MariaDB accepts. Each takes a descriptor from its table cache where
    # these are scarce.
    connections: int = 400
    # Limit on the open files of a private MariaDB; None leaves the limit of the lab's own process.
    descriptors: int | None = None
    # Whether each round has a server that was started for it. The memory that a server gets at its
    # start can decide more than its code; with many starts that becomes a part of the interval.
    new_servers: bool = False


@dataclass(frozen=True)
class Address:
    """The address at which clients reach the server: a socket, or host and port."""

    dialect: Dialect
    user: str
    database: str
    password: str = ""
    socket: Path | None = None
    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class Settings:
    """Settings that a running server reports; None means unknown.

    The rules of fairness compare all of them but the version and `values`, which is for the record.
    `buffered`: reads of tables go through the page cache. `isolation`: the default level of a
    session, in the words of the standard.
    """

    version: str
    memory_bytes: int | None
    durable: bool | None
    buffered: bool | None = None
    isolation: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RestState:
    """The outcome of waiting for rest. `owes` names the work that was unfinished at the timeout."""

    seconds: float
    owes: str = ""


class Target(ABC):
    """One server. `name` is unique within a run and heads its column in reports.

    Life cycle: start → (connect …, freeze/thaw, restart) → stop → destroy. `stop` and `destroy` may
    be called at any time, also repeatedly. Only private servers have a `pid` and a `data_dir`; for
    others they are None.
    """

    name: str
    spec: str
    dialect: Dialect
    # Directory for large files of workloads; set by `make_target`.
    scratch: Path
    # Whether `use_disk` can slow down the disk of the tables.
    emulates_disk: bool = False

    def lacks(self) -> str:
        """Missing software, and how to install or build it; "" if nothing is missing."""
        return ""

    @abstractmethod
    def start(self) -> None:
        """Starts the server, creates its data at the first start, and waits until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Shuts the server down cleanly; the data stays."""

    def destroy(self) -> None:
        """Ends every process and removes the data. Never raises."""

    def kill(self) -> None:
        """Sends SIGKILL, for tests of recovery. Only for private servers (`pid` is not None)."""
        raise NotImplementedError(f"{self.name} is not ours to kill")

    def use_disk(self, speed: str) -> None:
        """Has the tables on a disk of this speed from now on, with a restart if it was another.

        "" is the real disk. Only for targets with `emulates_disk`.
        """
        if speed:
            raise NotImplementedError(f"{self.name} has no emulated disk")

    def fill_outer_caches(self) -> None:
        """Brings caches outside of the server to the state that they have after long work."""

    def freeze(self) -> None:
        """Stops the processes with SIGSTOP while another target is measured; caches stay warm."""

    def thaw(self) -> None:
        """Resumes the frozen processes."""

    def require_alive(self) -> None:
        """Raises TargetDied if the server has ended."""

    @property
    def pid(self) -> int | None:
        """The server's process id; None for a foreign server."""
        return None

    @property
    def pids(self) -> list[int]:
        """Process ids of the server and all its children."""
        return [] if self.pid is None else [self.pid]

    @property
    def data_dir(self) -> Path | None:
        """The directory of all its files; None for a foreign server."""
        return None

    @property
    def error_log(self) -> Path | None:
        """The server's log; None for a foreign server."""
        return None

    @abstractmethod
    def address(self, database: str = DATABASE) -> Address:
        """The address for client programs such as sysbench."""

    @abstractmethod
    def connect(self, database: str = DATABASE, **options: Any) -> Any:
        """A new DB-API connection (PyMySQL or psycopg) with autocommit. Parameters are `%s`."""

    @abstractmethod
    def settings(self) -> Settings:
        """Reads the settings from the running server."""

    def plugins(self) -> Mapping[str, str]:
        """Engines by path of the plugin file; empty for a foreign server."""
        return {}

    def create_suffix(self) -> str:
        """Text after the closing parenthesis of CREATE TABLE, such as ` ENGINE=FIRN`."""
        return ""

    def create_database(self, database: str = DATABASE) -> None:
        """Drops the database if it exists, and creates it."""
        with self.connect("") as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            cursor.execute(f"CREATE DATABASE {database}")

    def query(self, statement: str, arguments: Any = None, database: str = DATABASE) -> list[Any]:
        """All rows of one statement, run in its own session."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall()) if cursor.description else []

    def analyze(self, database: str = DATABASE) -> None:
        """Collects optimizer statistics of every table after a load."""

    def rest(self, seconds_max: float = 240.0) -> RestState:
        """Makes the engine finish its deferred work, and waits until the server is idle."""
        return RestState(0.0)

    def table_bytes(self, database: str = DATABASE) -> dict[str, int]:
        """Bytes on disk by table, as the engine reports them; empty if it does not."""
        return {}

    def data_bytes(self, database: str = DATABASE) -> int | None:
        """Bytes on disk of all tables with their indexes, without the log. None: unknown."""
        sizes = self.table_bytes(database)
        return sum(sizes.values()) if sizes else None


TargetFactory = Callable[[str, Budget, Path], Target]
TARGETS: Registry[TargetFactory] = Registry("target", "firn_lab.targets")


def make_target(spec: str, budget: Budget, scratch: Path) -> Target:
    """Creates the target of a specification `kind[:argument]`; its files go below `scratch`."""
    kind, _, argument = spec.partition(":")
    target = TARGETS[kind](argument, budget, scratch)
    target.scratch = scratch
    return target
