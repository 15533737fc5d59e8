"""Fixtures: a server shared by the session, a fresh database for a test, the run's seed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from server import ENGINE, Server, ServerError, remove_scratch


@pytest.fixture(scope="session", autouse=True)
def scratch() -> Iterator[None]:
    """Removes the data directories at the end of the test run."""
    yield
    remove_scratch()


@pytest.fixture(scope="session")
def seed() -> int:
    """FIRN_TEST_SEED, or a fresh one; printed so that a failure can be repeated."""
    value = int(os.environ.get("FIRN_TEST_SEED") or random.SystemRandom().randrange(1, 1_000_000))
    print(f"FIRN_TEST_SEED={value}")
    return value


def _serve(options: list[str], load_engine: bool = True) -> Server:
    problem = ""
    try:
        server = Server(options, load_engine)
        server.start()
        return server
    except ServerError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)


class SharedServer:
    """The server that all tests of a pytest session share.

    If a test crashes it, the next test restarts it.
    """

    def __init__(self) -> None:
        self.server: Server | None = None

    def get(self) -> Server:
        """The running server, which is started if necessary."""
        if self.server is not None and not self.server.running():
            self.server.process = None
            self.server.start()
        if self.server is None:
            self.server = _serve([f"--default-storage-engine={ENGINE}"])
        return self.server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[SharedServer]:
    """Holds the server that all tests share."""
    holder = SharedServer()
    yield holder
    if holder.server is not None:
        holder.server.destroy()


@pytest.fixture
def server(shared_server: SharedServer) -> Server:
    """The server that all tests share, for tests that change nothing global."""
    return shared_server.get()


@pytest.fixture
def own_server() -> Iterator[Any]:
    """A factory of servers that a test owns: it may restart, kill or configure them."""
    servers: list[Server] = []

    def make(*options: str, load_engine: bool = True) -> Server:
        settings = [f"--default-storage-engine={ENGINE}"] if load_engine else []
        servers.append(_serve([*settings, *options], load_engine))
        return servers[-1]

    yield make
    for server in servers:
        server.destroy()


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A fresh database on the shared server; dropped after the test."""
    name = f"db{random.SystemRandom().randrange(10**9)}"
    server.query(f"CREATE DATABASE {name}")
    yield name
    if server.running():
        server.query(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def connection(server: Server, database: str) -> Iterator[pymysql.Connection[Any]]:
    """A session in the fresh database."""
    session = server.connect(database)
    yield session
    session.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds the end of the servers' error logs to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed:
        return
    holder = item.funcargs.get("shared_server") if hasattr(item, "funcargs") else None
    if isinstance(holder, SharedServer) and holder.server is not None:
        report.sections.append(("end of the server's error log", holder.server.log_tail(20)))
