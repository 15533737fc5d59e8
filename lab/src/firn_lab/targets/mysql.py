"""Common parts of servers of the MySQL protocol, private and foreign."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pymysql

from firn_lab.errors import TargetError
from firn_lab.targets.target import DATABASE, Address, RestState, Settings, Target

# A server that does not answer for this long counts as hung; loading a large file may take an hour.
ANSWER_SECONDS_MAX = 7200
# Variables to record in addition to the engine's own.
RECORDED = {
    "version",
    "version_comment",
    "version_compile_machine",
    "log_bin",
    "sync_binlog",
    "max_connections",
    "table_open_cache",
    "thread_handling",
    "transaction_isolation",
    "tx_isolation",
    "character_set_server",
    "collation_server",
    "performance_schema",
    "query_cache_type",
}
# For each engine: the variables whose sum is the engine's memory, and the variable that decides its
# durability.
ENGINES = {
    "innodb": (("innodb_buffer_pool_size",), "innodb_flush_log_at_trx_commit"),
    "firn": (("firn_memory_limit",), "firn_flush_log_at_trx_commit"),
    "rocksdb": (
        ("rocksdb_block_cache_size", "rocksdb_db_write_buffer_size"),
        "rocksdb_flush_log_at_trx_commit",
    ),
}


def buffered(engine: str, variables: Mapping[str, str]) -> bool | None:
    """Whether the engine's settings make reads of tables go through the page cache."""
    if engine == "innodb" and "innodb_data_file_buffering" in variables:  # MariaDB 11
        return variables["innodb_data_file_buffering"] == "ON"
    name = {
        "innodb": "innodb_flush_method",
        "firn": "firn_direct_reads",
        "rocksdb": "rocksdb_use_direct_reads",
    }.get(engine)
    value = variables.get(name or "")
    return None if value is None else not (value == "ON" or value.startswith("O_DIRECT"))


class MySqlTarget(Target):
    """A server of the MySQL protocol; `engine` is the lower-case name of the tables' engine."""

    engine: str = "innodb"
    dialect = "mysql"

    def connect(self, database: str = DATABASE, **options: Any) -> Any:
        address = self.address(database)
        where: dict[str, Any] = (
            # A local socket needs no encryption, and a TLS context costs 50 ms of processor time.
            {"unix_socket": str(address.socket), "ssl_disabled": True}
            if address.socket
            else {"host": address.host, "port": address.port}
        )
        return pymysql.connect(
            user=address.user,
            password=address.password,
            database=database or None,
            **{
                "charset": "utf8mb4",
                "autocommit": True,
                "local_infile": True,
                "connect_timeout": 30,
                "read_timeout": ANSWER_SECONDS_MAX,
                "write_timeout": ANSWER_SECONDS_MAX,
                **where,
                **options,
            },
        )

    def create_suffix(self) -> str:
        return f" ENGINE={self.engine.upper()}"

    def variables(self) -> dict[str, str]:
        """All global variables."""
        rows = self.query("SHOW GLOBAL VARIABLES", database="")
        return {name.lower(): value for name, value in rows}

    def settings(self) -> Settings:
        variables = self.variables()
        memory, durable = ENGINES.get(self.engine, ((), ""))
        sizes = [int(variables[name]) for name in memory if name in variables]
        synced = variables.get(durable)
        if synced is not None and variables.get("log_bin") == "ON":
            synced = "1" if synced == variables.get("sync_binlog") == "1" else "0"
        isolation = variables.get("transaction_isolation", variables.get("tx_isolation"))
        recorded = {
            name: value
            for name, value in variables.items()
            if name in RECORDED or name.startswith(f"{self.engine}_")
        }
        return Settings(
            version=variables.get("version", "unknown"),
            memory_bytes=sum(sizes) if sizes else None,
            durable=None if synced is None else synced == "1",
            buffered=buffered(self.engine, variables),
            isolation=isolation.lower().replace("-", " ") if isolation else None,
            values=recorded,
        )

    def tables(self, database: str = DATABASE) -> list[str]:
        """Names of the base tables."""
        rows = self.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s "
            "AND table_type = 'BASE TABLE' ORDER BY table_name",
            (database,),
            "",
        )
        return [row[0] for row in rows]

    def analyze(self, database: str = DATABASE) -> None:
        self._each_table("ANALYZE TABLE", self.tables(database), database)

    def _each_table(self, verb: str, tables: Iterable[str], database: str) -> None:
        for table in tables:
            rows = self.query(f"{verb} `{table}`", database=database)
            for row in rows:
                if str(row[2]).lower() == "error":
                    raise TargetError(f"{verb} {table}: {row[3]}")

    def table_bytes(self, database: str = DATABASE) -> dict[str, int]:
        """Bytes by table as information_schema estimates them.

        Private servers override this with exact sizes.
        """
        rows = self.query(
            "SELECT table_name, COALESCE(data_length, 0) + COALESCE(index_length, 0) "
            "FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE'",
            (database,),
            "",
        )
        return {name: int(size) for name, size in rows}


class ForeignTarget(MySqlTarget):
    """A server that runs already.

    The lab uses only SQL, and changes only the database `lab`, which it creates and drops.
    """

    def __init__(self, name: str, spec: str, address: Address, engine: str) -> None:
        self.name = name
        self.spec = spec
        self._address = address
        self.engine = engine

    def address(self, database: str = DATABASE) -> Address:
        where = self._address
        return Address(
            "mysql", where.user, database, where.password, where.socket, where.host, where.port
        )

    def start(self) -> None:
        """Only checks that the server answers."""
        try:
            self.connect("").close()
        except pymysql.MySQLError as error:
            raise TargetError(f"{self.name} does not answer: {error}") from error

    def stop(self) -> None:
        """Does nothing: the lab does not own the server."""

    def destroy(self) -> None:
        with contextlib.suppress(Exception):
            self.query(f"DROP DATABASE IF EXISTS {DATABASE}", database="")

    def require_alive(self) -> None:
        self.start()

    def rest(self, seconds_max: float = 240.0) -> RestState:
        """Pauses briefly, because the pending work of a foreign server is not visible."""
        pause = min(5.0, seconds_max)
        time.sleep(pause)
        return RestState(pause)
