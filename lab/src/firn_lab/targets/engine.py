"""A storage engine in a private stock MariaDB: `engine:NAME[@LABEL[=PLUGIN]]`.

Every engine gets the same memory for its cache and the same durability; components that it does not
use are kept small. NAME: firn, innodb, innodb-compressed (PAGE_COMPRESSED), innodb-compressed-row
(ROW_FORMAT=COMPRESSED), rocksdb. LABEL distinguishes targets of one engine, and PLUGIN is the file
of a build: `engine:firn@before=/tmp/ha_firn.so engine:firn@after` compares two builds. Otherwise
the plugin comes from FIRN_LAB_PLUGINS (directories separated by colons), from build/plugin of the
working directory or a directory above it, or from the server's own plugins.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from firn_lab import processes
from firn_lab.disks import disk_option
from firn_lab.errors import TargetError, UsageError
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.targets.private import PrivateTarget, allocated_bytes
from firn_lab.targets.target import DATABASE, TARGETS, Address, Budget, RestState, Target

MIB = 1 << 20
# Size of InnoDB's buffer pool if another engine holds the tables.
SMALL_POOL = 32 * MIB
# Size of InnoDB's log if another engine holds the tables.
SMALL_LOG = 16 * MIB
# Minimum size of InnoDB's log if InnoDB holds the tables: the server's default.
LOG_MIN = 96 * MIB
# Settings that make InnoDB flush its dirty pages fast; by default it flushes slowly. They must be
# restored in reverse order, because innodb_io_capacity may not exceed innodb_io_capacity_max.
RUSH = {
    "innodb_max_dirty_pages_pct": "0",
    "innodb_io_capacity_max": "20000",
    "innodb_io_capacity": "20000",
}


def innodb(budget: Budget) -> list[str]:
    # InnoDB's log is as large as its buffer pool, as is usual, so that a small log does not
    # throttle writers.
    log = max(LOG_MIN, min(2048 * MIB, budget.memory_bytes))
    return [
        f"--innodb-buffer-pool-size={budget.memory_bytes}",
        f"--innodb-log-file-size={log}",
        f"--innodb-flush-method={'O_DIRECT' if budget.direct_io else 'fsync'}",
        f"--innodb-flush-log-at-trx-commit={1 if budget.durable else 2}",
    ]


def other(options: list[str]) -> list[str]:
    small = [f"--innodb-buffer-pool-size={SMALL_POOL}", f"--innodb-log-file-size={SMALL_LOG}"]
    return small + options


def firn(budget: Budget) -> list[str]:
    return other(
        [
            f"--firn-memory-limit={budget.memory_bytes}",
            f"--firn-flush-log-at-trx-commit={1 if budget.durable else 2}",
            f"--firn-direct-reads={'ON' if budget.direct_io else 'OFF'}",
        ]
    )


def rocksdb(budget: Budget) -> list[str]:
    """MyRocks' options, tuned as usual: LZ4 in the upper levels, ZSTD in the last one, filters.

    The memtables and the block cache share the memory of the budget.
    """
    direct = "ON" if budget.direct_io else "OFF"
    memtables = max(8 * MIB, min(256 * MIB, budget.memory_bytes // 8))
    return other(
        [
            f"--rocksdb-block-cache-size={budget.memory_bytes - memtables}",
            f"--rocksdb-db-write-buffer-size={memtables}",
            f"--rocksdb-flush-log-at-trx-commit={1 if budget.durable else 2}",
            f"--rocksdb-use-direct-reads={direct}",
            f"--rocksdb-use-direct-io-for-flush-and-compaction={direct}",
            "--rocksdb-default-cf-options=compression=kLZ4Compression;"
            "bottommost_compression=kZSTD;block_based_table_factory={block_size=16384;"
            "filter_policy=bloomfilter:10:false;cache_index_and_filter_blocks=1}",
        ]
    )


@dataclass(frozen=True)
class Variant:
    """The engine, options and table options of an `engine:NAME`."""

    engine: str
    options: Callable[[Budget], list[str]]
    table_options: str = ""
    library: str = ""


VARIANTS = {
    "innodb": Variant("innodb", innodb),
    "innodb-compressed": Variant("innodb", innodb, " PAGE_COMPRESSED=1"),
    "innodb-compressed-row": Variant("innodb", innodb, " ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8"),
    "firn": Variant("firn", firn, library="ha_firn"),
    "rocksdb": Variant("rocksdb", rocksdb, library="ha_rocksdb"),
}


class EngineTarget(PrivateTarget, MySqlTarget):
    """A private MariaDB server for one engine."""

    def __init__(
        self,
        name: str,
        variant: Variant,
        budget: Budget,
        scratch: Path,
        plugin: Path | None = None,
    ) -> None:
        spec = f"engine:{name}" if plugin is None else f"engine:{name}={plugin}"
        super().__init__(name, spec, scratch)
        self.engine = variant.engine
        self._variant = variant
        self._plugin = plugin
        self._budget = budget
        self._template = scratch / "mariadb-template"
        self._disk = ""
        self.emulates_disk = variant.engine == "firn"

    @property
    def has_slow_reads(self) -> bool:
        """Whether the tables are on an emulated disk, so that the place of a read matters."""
        return self._disk != ""

    @property
    def pids(self) -> list[int]:
        """The server alone.

        It has no children, and to look for them means to read a file for each of its threads.
        """
        return [] if self.pid is None else [self.pid]

    def address(self, database: str = DATABASE) -> Address:
        return Address("mysql", "root", database, socket=self.socket_dir / "s")

    def create_suffix(self) -> str:
        return super().create_suffix() + self._variant.table_options

    def lacks(self) -> str:
        try:
            server_program()
            if self._variant.library:
                self._find_plugin()
        except TargetError as error:
            return str(error)
        return ""

    def _create(self) -> None:
        if not self._template.exists():
            install(self._template)
        shutil.copytree(self._template, self.data_dir)

    def _command(self) -> list[str]:
        plugins = self.directory / "plugins"
        self._link_plugins(plugins)
        variant = self._variant
        return [
            *_limited(self._budget.descriptors),
            server_program(),
            "--no-defaults",
            *_as_user(),
            f"--datadir={self.data_dir}",
            f"--socket={self.socket_dir / 's'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--tmpdir={self.directory}",
            f"--plugin-dir={plugins}",
            "--skip-networking",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--local-infile=1",
            f"--max-connections={self._budget.connections}",
            # Keep the threads of ended connections: their context switches are read after the last
            # connection has ended.
            f"--thread-cache-size={self._budget.connections}",
            *(["--thread-handling=pool-of-threads"] if self._budget.thread_pool else []),
            "--max-prepared-stmt-count=1000000",
            "--table-open-cache=4000",
            "--performance-schema=OFF",
            "--query-cache-type=0",
            "--max-allowed-packet=256M",
            "--ignore-db-dirs=#firn",
            *([f"--plugin-load-add={variant.library}"] if variant.library else []),
            *variant.options(self._budget),
            *([f"--firn-debug-disk={disk_option(self._disk)}"] if self._disk else []),
        ]

    def _process_options(self) -> dict[str, object]:
        # A plugin from an unpacked package needs the libraries that lie beside it in the same
        # package.
        library = self._variant.library
        above = list(self._find_plugin().parents) if library else []
        if len(above) < 3 or not (beside := above[2] / "x86_64-linux-gnu").is_dir():
            return {}
        return {"env": {**os.environ, "LD_LIBRARY_PATH": str(beside)}}

    def _link_plugins(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        if self._variant.library:
            # Link the plugin under its library name, by which the server loads it. A build's file
            # may have any name.
            (directory / f"{self._variant.library}.so").symlink_to(self._find_plugin())

    def plugins(self) -> Mapping[str, str]:
        return {str(self._find_plugin()): self.engine} if self._variant.library else {}

    def _find_plugin(self) -> Path:
        if self._plugin is None:
            return find_plugin(self._variant.library)
        if not self._plugin.is_file():
            raise TargetError(f"{self._plugin} is not there")
        return self._plugin.resolve()

    def start(self) -> None:
        super().start()
        engine = self.engine.upper()
        rows = self.query(
            "SELECT support FROM information_schema.engines WHERE UPPER(engine) = %s", (engine,), ""
        )
        if not rows or rows[0][0] not in ("YES", "DEFAULT"):
            tail = self.log_tail()
            self.kill()
            raise TargetError(f"{self.name}: the server runs without engine {engine}\n{tail}")

    def use_disk(self, speed: str) -> None:
        if speed == self._disk:
            return
        if not self.emulates_disk:
            super().use_disk(speed)
        running = self._process is not None
        self.stop()
        self._disk = speed
        if running:
            self.start()

    def destroy(self) -> None:
        super().destroy()
        self._disk = ""

    def rest(self, seconds_max: float = 240.0) -> RestState:
        """Makes InnoDB and MyRocks flush, and waits for rest.

        FIRN reaches its resting state by itself.
        """
        if self.engine == "rocksdb":
            self.query("SET GLOBAL rocksdb_force_flush_memtable_now = 1", database="")
        usual = self.variables() if self.engine == "innodb" else {}
        try:
            if usual:
                self._set(RUSH)
            return self._await_quiet(seconds_max)
        finally:
            if usual and self._process is not None:
                with contextlib.suppress(Exception):
                    self._set({name: usual[name] for name in reversed(RUSH)})

    def _set(self, variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            self.query(f"SET GLOBAL {name} = {value}", database="")

    def owes(self) -> str | None:
        match self.engine:
            case "innodb":
                what = "pages to be flushed"
                rows = self.query(
                    "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'", None, ""
                )
                owed = int(rows[0][1])
            case "rocksdb":
                what = "flushes and compactions pending"
                rows = self.query(
                    "SELECT COALESCE(SUM(value), 0) FROM information_schema.rocksdb_cfstats WHERE "
                    "stat_type IN ('NUM_IMMUTABLE_MEM_TABLE', 'MEM_TABLE_FLUSH_PENDING', "
                    "'COMPACTION_PENDING')",
                    database="",
                )
                owed = int(rows[0][0])
            case _:
                return None
        return what if owed else ""

    def table_bytes(self, database: str = DATABASE) -> dict[str, int]:
        if self.engine == "innodb":
            folder = self.data_dir / database
            return {
                table: allocated_bytes(folder, f"{table}.ibd") for table in self.tables(database)
            }
        statement = {
            "firn": "SELECT table_name, SUM(stored_bytes) FROM information_schema.firn_tables "
            "WHERE table_schema = %s GROUP BY table_name",
            "rocksdb": "SELECT d.table_name, SUM(f.data_size) "
            "FROM information_schema.rocksdb_ddl d "
            "JOIN information_schema.rocksdb_index_file_map f ON f.index_number = d.index_number "
            "AND f.column_family = d.column_family "
            "WHERE d.table_schema = %s GROUP BY d.table_name",
        }[self.engine]
        sizes = {name: int(size) for name, size in self.query(statement, (database,), "")}
        if self.engine == "rocksdb" and sizes:
            # MyRocks reports these sizes before compression. Scale the sizes so that their sum is
            # the size of the files.
            ratio = (self.data_bytes(database) or 0) / max(1, sum(sizes.values()))
            sizes = {name: round(size * ratio) for name, size in sizes.items()}
        return sizes

    def data_bytes(self, database: str = DATABASE) -> int | None:
        if self.engine == "firn":
            # SST and blob files have names of ten digits; WAL and manifest have other names.
            return allocated_bytes(self.data_dir / "#firn", "?" * 10 + ".*")
        if self.engine == "rocksdb":
            return allocated_bytes(self.data_dir / "#rocksdb", "*.sst")
        return allocated_bytes(self.data_dir / database, "*.ibd")


@TARGETS.register("engine")
def make_engine(argument: str, budget: Budget, scratch: Path) -> Target:
    """engine:NAME[@LABEL[=PLUGIN]], private: firn, innodb, innodb-compressed[-row], rocksdb."""
    name, equals, file = argument.partition("=")
    kind, at, label = name.partition("@")
    if kind not in VARIANTS:
        raise UsageError(f"engine:{kind} is not known; known: {', '.join(VARIANTS)}")
    if (at or equals) and not re.fullmatch(r"[\w.+-]+", label):
        raise UsageError(
            f"engine:{argument}: write engine:{kind}@LABEL or engine:{kind}@LABEL=FILE"
        )
    if equals and not VARIANTS[kind].library:
        raise UsageError(f"engine:{argument}: {kind} is no plugin")
    return EngineTarget(name, VARIANTS[kind], budget, scratch, Path(file) if equals else None)


def server_program() -> str:
    """The path of the installed mariadbd."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise TargetError("mariadbd is not there: apt-get install mariadb-server-core")
    return found


def find_plugin(library: str) -> Path:
    """The path of an engine's shared object."""
    here = Path.cwd()
    places = [Path(p) for p in os.environ.get("FIRN_LAB_PLUGINS", "").split(":") if p]
    for base in (here, *here.parents):
        places += [base / "build" / "plugin", base / "build" / "rocksdb" / "usr/lib/mysql/plugin"]
    places += [_system_plugins()]
    for place in places:
        if (place / f"{library}.so").is_file():
            return (place / f"{library}.so").resolve()
    hint = "make" if library == "ha_firn" else "make lab-rocksdb"
    raise TargetError(
        f"{library}.so is nowhere: run `{hint}`, or name its directory in FIRN_LAB_PLUGINS"
    )


@functools.cache
def _system_plugins() -> Path:
    done = subprocess.run(
        [server_program(), "--no-defaults", "--verbose", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("plugin-dir "):
            return Path(line.split(None, 1)[1].strip())
    return Path("/usr/lib/mysql/plugin")


def _limited(descriptors: int | None) -> list[str]:
    """The beginning of a command line that limits the open files of the server.

    A server that runs as root raises its limit again, unless it lacks the capability to do so.
    """
    if descriptors is None:
        return []
    keep = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    return ["prlimit", f"--nofile={descriptors}:{descriptors}", *keep]


def _as_user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def install(directory: Path) -> None:
    """Creates a fresh data directory, which is then copied for each server."""
    scratch = directory.with_suffix(".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={scratch}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        "--force",
        *_as_user(),
        f"--innodb-log-file-size={SMALL_LOG}",
    ]
    try:
        # A starting server removes all servers' temporary tables in TMPDIR: use a private one.
        code, said = processes.run(command, env={**os.environ, "TMPDIR": str(scratch.parent)})
    except FileNotFoundError:
        raise TargetError(
            "mariadb-install-db is not there: apt-get install mariadb-server-core"
        ) from None
    if code != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        raise TargetError(f"mariadb-install-db failed: {said[-4000:]}")
    scratch.rename(directory)
