"""The suites: how each is called, unchanged, on the server at a socket."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

HERE = Path(__file__).resolve().parent

# SQLAlchemy's tests need these databases.
SQLALCHEMY_SETUP = (
    "CREATE DATABASE test CHARACTER SET utf8mb4",
    "CREATE DATABASE test_schema CHARACTER SET utf8mb4",
    "CREATE DATABASE test_schema_2 CHARACTER SET utf8mb4",
)

# Some of SQLAlchemy's tests name InnoDB or MyISAM. Their tables are made in the engine under test all the same.
INIT_COMMAND = "SET enforce_storage_engine={engine}"


@dataclass(frozen=True)
class Suite:
    """One framework's tests. `command` takes the engine, the socket and the tests that were asked for."""

    name: str
    directory: str
    command: Callable[[str, Path, list[str]], list[str]]
    setup: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def named(path: Path) -> list[str]:
    """The lines of a list, without comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _django(_engine: str, _socket: Path, tests: list[str]) -> list[str]:
    return [sys.executable, "tests/runtests.py", "--settings=django_settings", "--noinput", "--parallel=1", *tests]


def _pytest(engine: str, socket: Path, tests: list[str]) -> list[str]:
    parameters = {"unix_socket": str(socket), "charset": "utf8mb4", "init_command": INIT_COMMAND.format(engine=engine)}
    address = f"mariadb+mysqldb://root@localhost/test?{urlencode(parameters)}"
    options = ["-p", "pytest_recorder", "-q", "-o", "addopts=", "-p", "no:warnings", "-p", "no:logging"]
    return [sys.executable, "-m", "pytest", *options, "--tb=short", "--dburi", address, *tests]


def _sqlalchemy(engine: str, socket: Path, tests: list[str]) -> list[str]:
    return _pytest(engine, socket, tests or ["test/dialect/test_suite.py"])


# Apart from the dialect suite, which would find the tables of a test that fails in its setup.
def _sqlalchemy_mysql(engine: str, socket: Path, tests: list[str]) -> list[str]:
    return _pytest(engine, socket, tests or ["test/dialect/mysql"])


def _alembic(engine: str, socket: Path, tests: list[str]) -> list[str]:
    return _pytest(engine, socket, tests or ["tests", "--backend-only"])


# Without NO_ENGINE_SUBSTITUTION the server replaces an engine that a test names instead of refusing it.
_SUBSTITUTE = ("--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO",)

SUITES = {
    "django": Suite("django", "django-*", _django),
    "sqlalchemy": Suite("sqlalchemy", "sqlalchemy-*", _sqlalchemy, SQLALCHEMY_SETUP, _SUBSTITUTE),
    "sqlalchemy-mysql": Suite("sqlalchemy-mysql", "sqlalchemy-*", _sqlalchemy_mysql, SQLALCHEMY_SETUP, _SUBSTITUTE),
    "alembic": Suite("alembic", "alembic-*", _alembic, SQLALCHEMY_SETUP, _SUBSTITUTE),
}
