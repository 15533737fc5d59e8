"""A private MariaDB server for tests: its own data directory and socket, no network.

A `Server` owns one directory. `start` and `stop` may be called many times, so that a test can kill
the process and observe the recovery. FIRN_TEST_ENGINE names the engine under test (default FIRN).
With another engine the same tests judge that engine, which validates the tests themselves.

    server = Server(options=["--log-bin"])
    server.start()
    with server.connect() as connection: ...
    server.kill()          # SIGKILL
    server.start()         # recovery
    server.destroy()
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from random import SystemRandom
from typing import Any

import pymysql
import pymysql.cursors

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGIN = Path(os.environ.get("FIRN_TEST_PLUGIN", REPOSITORY / "build" / "plugin" / "ha_firn.so"))
ENGINE = os.environ.get("FIRN_TEST_ENGINE", "FIRN")
IS_FIRN = ENGINE.upper() == "FIRN"
SYSTEM_PLUGINS = Path("/usr/lib/mysql/plugin")

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 90.0

# The session variable that limits a row-lock wait, by engine.
LOCK_WAIT_TIMEOUTS = {
    "FIRN": "firn_lock_wait_timeout",
    "INNODB": "innodb_lock_wait_timeout",
    "ROCKSDB": "rocksdb_lock_wait_timeout",
}


# At a start after a kill, InnoDB's purge sometimes aborts the server (10.11.19: assertion
# `tail.trx_no <= last_trx_no`). This setting disables the purge and keeps the rest of recovery.
NO_PURGE = "--innodb-force-recovery=2"


class ServerError(Exception):
    """The server did not start, stop or answer; the message has the tail of its error log."""


def require_engine(engine: str = ENGINE) -> None:
    """Raises ServerError if FIRN is the engine to test and its plugin is not built."""
    if engine.upper() == "FIRN" and not PLUGIN.is_file():
        raise ServerError(
            f"{PLUGIN} does not exist: build the plugin with 'make', or name another engine "
            "in FIRN_TEST_ENGINE to check the tests themselves"
        )


@functools.cache
def scratch_root() -> Path:
    """The directory of this run's data; its path is short, because sockets limit the length."""
    base = os.environ.get("FIRN_TEST_TMP")
    return Path(tempfile.mkdtemp(prefix="firn-", dir=base))


@functools.cache
def _template() -> Path:
    """A freshly installed data directory, which is copied for each server."""
    directory = scratch_root() / "template"
    command = [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={directory}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        # Do without host names: the machine's own name may not resolve.
        "--skip-name-resolve",
        "--force",
        f"--user={_user()}",
        "--innodb-log-file-size=16M",
    ]
    # At its start a server removes temporary tables of all servers in TMPDIR; use a private one.
    environment = {**os.environ, "TMPDIR": str(scratch_root())}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise ServerError(f"mariadb-install-db failed: {done.stdout}{done.stderr}")
    return directory


@functools.cache
def _plugin_directory() -> Path:
    """A directory with links to the distribution's plugins and to ours."""
    directory = scratch_root() / "plugins"
    directory.mkdir()
    # The package mariadb-server-core has no plugins.
    for entry in SYSTEM_PLUGINS.iterdir() if SYSTEM_PLUGINS.is_dir() else ():
        (directory / entry.name).symlink_to(entry)
    if PLUGIN.is_file():
        (directory / "ha_firn.so").unlink(missing_ok=True)
        (directory / "ha_firn.so").symlink_to(PLUGIN.resolve())
    return directory


def _user() -> str:
    return "root" if os.geteuid() == 0 else os.environ.get("USER", "mysql")


# Libraries of engines that are not built into the server.
LIBRARIES = {"FIRN": "ha_firn", "ROCKSDB": "ha_rocksdb"}


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now.

    It lies below the usual ports of outgoing connections. So no such connection takes it before
    the server listens, or while the server is down.
    """
    while True:
        port = SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """One data directory and, while started, one server process on it.

    Invariant: `process` is not None exactly while a process started here has not been reaped.
    """

    _count = 0

    def __init__(
        self, options: list[str] | None = None, load_engine: bool = True, engine: str = ENGINE
    ) -> None:
        require_engine(engine)
        self.engine = engine
        Server._count += 1
        self.directory = scratch_root() / f"s{Server._count}"
        self.data = self.directory / "data"
        self.socket = self.directory / "s"
        self.error_log_path = self.directory / "error.log"
        self.options = list(options or [])
        self.load_engine = load_engine
        # Added to the environment of the server's process.
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.directory.mkdir()
        shutil.copytree(_template(), self.data)

    def _engine_options(self) -> list[str]:
        library = LIBRARIES.get(self.engine.upper())
        return [f"--plugin-load-add={library}"] if library and self.load_engine else []

    def launch(self, extra_options: list[str] | None = None) -> None:
        """Starts the process without waiting for it."""
        assert self.process is None, "the server is running"
        command = [
            "mariadbd",
            "--no-defaults",
            f"--user={_user()}",
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--pid-file={self.directory / 'pid'}",
            f"--log-error={self.error_log_path}",
            f"--plugin-dir={_plugin_directory()}",
            f"--tmpdir={self.directory}",
            "--skip-networking",
            "--skip-name-resolve",
            "--local-infile=1",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            *self._engine_options(),
            *self.options,
            *(extra_options or []),
        ]
        with self.error_log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment},
            )

    def start(self, extra_options: list[str] | None = None) -> None:
        """Starts the server and waits until it answers. Raises ServerError with the log's tail."""
        self.launch(extra_options)
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            if self.process.poll() is not None:
                code = self.process.returncode
                self.process = None
                raise ServerError(f"the server ended with {code} at start\n{self.log_tail()}")
            try:
                self.connect().close()
                break
            except pymysql.err.OperationalError:
                if time.monotonic() > deadline:
                    self.kill()
                    raise ServerError(f"the server does not answer\n{self.log_tail()}") from None
                time.sleep(0.02)
        if self.load_engine:
            self._require_loaded()

    def _require_loaded(self) -> None:
        rows = self.query(
            "SELECT support FROM information_schema.engines WHERE engine = %s", (self.engine,)
        )
        if not rows or rows[0][0] not in ("YES", "DEFAULT"):
            self.kill()
            raise ServerError(f"the server runs without engine {self.engine}\n{self.log_tail()}")

    def stop(self) -> None:
        """Shuts down cleanly. Raises ServerError if the process does not end or crashes."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server does not stop\n{self.log_tail()}") from None
        self.process = None
        if code != 0:
            raise ServerError(f"the server ended with {code} at shutdown\n{self.log_tail()}")

    def kill(self) -> None:
        """Sends SIGKILL: only data that was passed to the kernel survives."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, extra_options: list[str] | None = None) -> None:
        """Shuts down cleanly and starts."""
        self.stop()
        self.start(extra_options)

    def crash_and_recover(self) -> None:
        """Sends SIGKILL and starts."""
        self.kill()
        self.start()

    def running(self) -> bool:
        """Whether the process is alive; false after an unexpected crash."""
        return self.process is not None and self.process.poll() is None

    def destroy(self) -> None:
        """Kills the server and removes its files, unless FIRN_TEST_KEEP is set."""
        self.kill()
        if not os.environ.get("FIRN_TEST_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A new session as root, with the server's default autocommit: on."""
        settings: dict[str, Any] = {
            "unix_socket": str(self.socket),
            # Creating a TLS context costs 50 ms of processor time.
            "ssl_disabled": True,
            "user": "root",
            "database": database,
            "charset": "utf8mb4",
            "autocommit": None,
            "local_infile": True,
            "read_timeout": 180,
        }
        settings.update(options)
        return pymysql.connect(**settings)

    def query(self, statement: str, arguments: Any = None) -> tuple[tuple[Any, ...], ...]:
        """Runs one statement in its own session and returns all rows.

        The default database is `mysql`: tables such as seq_1_to_10 exist only with a database.
        """
        with contextlib.closing(self.connect("mysql")) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return tuple(cursor.fetchall())

    def log(self) -> str:
        """The whole error log."""
        if not self.error_log_path.exists():
            return ""
        return self.error_log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """The end of the error log, for messages."""
        return "\n".join(self.log().splitlines()[-lines:])


def remove_scratch() -> None:
    """Removes everything this run left on disk, unless FIRN_TEST_KEEP is set."""
    if scratch_root.cache_info().currsize and not os.environ.get("FIRN_TEST_KEEP"):
        shutil.rmtree(scratch_root(), ignore_errors=True)
