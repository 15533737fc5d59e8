"""A private MariaDB server for tests: own data directory, own socket, no network.

A `Server` owns one directory. `start` and `stop` may be called many times on it, so that a test
can kill the process and look at what recovery makes of the files. The engine under test comes from
FIRN_TEST_ENGINE (default FIRN); with another engine the same tests judge that engine, which is how
the tests themselves are validated.

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
import subprocess
import tempfile
import time
from pathlib import Path
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

# Session variable that bounds a row-lock wait, by engine.
LOCK_WAIT_TIMEOUTS = {
    "FIRN": "firn_lock_wait_timeout",
    "INNODB": "innodb_lock_wait_timeout",
    "ROCKSDB": "rocksdb_lock_wait_timeout",
}


class ServerError(Exception):
    """The server did not start, stop or answer; the message carries the tail of its error log."""


def require_engine(engine: str = ENGINE) -> None:
    """Raises ServerError when FIRN is to be tested and its plugin has not been built."""
    if engine.upper() == "FIRN" and not PLUGIN.is_file():
        raise ServerError(
            f"{PLUGIN} does not exist: build the plugin with 'make', or name another engine "
            "in FIRN_TEST_ENGINE to check the tests themselves"
        )


@functools.cache
def scratch_root() -> Path:
    """Where this run keeps its data directories (a short path: those of sockets are limited)."""
    base = os.environ.get("FIRN_TEST_TMP")
    return Path(tempfile.mkdtemp(prefix="firn-", dir=base))


@functools.cache
def _template() -> Path:
    """A freshly installed data directory, made once and copied for each server."""
    directory = scratch_root() / "template"
    command = [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={directory}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        # The host's name need not resolve.
        "--skip-name-resolve",
        "--force",
        f"--user={_user()}",
        "--innodb-log-file-size=16M",
    ]
    # A server that starts removes the temporary tables of every other in its TMPDIR.
    environment = {**os.environ, "TMPDIR": str(scratch_root())}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise ServerError(f"mariadb-install-db failed: {done.stdout}{done.stderr}")
    return directory


@functools.cache
def _plugin_directory() -> Path:
    """The distribution's plugins and ours side by side, as links."""
    directory = scratch_root() / "plugins"
    directory.mkdir()
    # mariadb-server-core alone brings no plugins.
    for entry in SYSTEM_PLUGINS.iterdir() if SYSTEM_PLUGINS.is_dir() else ():
        (directory / entry.name).symlink_to(entry)
    if PLUGIN.is_file():
        (directory / "ha_firn.so").unlink(missing_ok=True)
        (directory / "ha_firn.so").symlink_to(PLUGIN.resolve())
    return directory


def _user() -> str:
    return "root" if os.geteuid() == 0 else os.environ.get("USER", "mysql")


# Library of an engine that the server does not have built in.
LIBRARIES = {"FIRN": "ha_firn", "ROCKSDB": "ha_rocksdb"}


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
        self.process: subprocess.Popen[bytes] | None = None
        self.directory.mkdir()
        shutil.copytree(_template(), self.data)

    def _engine_options(self) -> list[str]:
        library = LIBRARIES.get(self.engine.upper())
        return [f"--plugin-load-add={library}"] if library and self.load_engine else []

    def launch(self, extra_options: list[str] | None = None) -> None:
        """Starts the process and does not wait for it."""
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
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

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
        """Clean shutdown. Raises ServerError when the process does not end by itself or crashes."""
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
        """SIGKILL: what was not given to the kernel is lost, what was is not."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, extra_options: list[str] | None = None) -> None:
        """Clean shutdown and start."""
        self.stop()
        self.start(extra_options)

    def crash_and_recover(self) -> None:
        """SIGKILL and start."""
        self.kill()
        self.start()

    def running(self) -> bool:
        """Whether the process is alive (false after a crash nobody asked for)."""
        return self.process is not None and self.process.poll() is None

    def destroy(self) -> None:
        """Kills the server and removes its files, unless FIRN_TEST_KEEP is set."""
        self.kill()
        if not os.environ.get("FIRN_TEST_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A new session as root. Autocommit stays the server's default: on."""
        settings: dict[str, Any] = {
            "unix_socket": str(self.socket),
            # A TLS context costs 50 ms of processor time, used or not.
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
        """Runs one statement in a session of its own and returns all rows.

        Its default database is `mysql`: tables like seq_1_to_10 are found only within one.
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
