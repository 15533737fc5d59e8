"""Information that the engine shows: status, information_schema, counters, the error log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

ROWS = 4000


def _fill(server: Server, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), "
        f"n INT, KEY n (n), KEY v (v)) ENGINE={ENGINE}"
    )
    server.query(
        f"INSERT INTO {database}.t (v, n) SELECT CONCAT(MD5(seq), REPEAT('x', 100)), seq % 50 "
        f"FROM seq_1_to_{ROWS}"
    )


def _counters(server: Server) -> dict[str, int]:
    rows = server.query("SHOW GLOBAL STATUS LIKE 'firn%%'")
    return {name.lower(): int(value) for name, value in rows if value.lstrip("-").isdigit()}


@pytest.fixture
def firn() -> None:
    """Skips tests of promises that only FIRN makes."""
    if not IS_FIRN:
        pytest.skip("about FIRN itself")


def test_show_table_status(server: Server, database: str) -> None:
    _fill(server, database)
    server.query(f"OPTIMIZE TABLE {database}.t")
    row = server.query(
        "SELECT engine, table_rows, data_length, index_length, auto_increment, create_time, "
        "avg_row_length FROM information_schema.tables WHERE table_schema = %s",
        (database,),
    )[0]
    assert row[0].upper() == ENGINE.upper()
    assert ROWS / 2 <= row[1] <= ROWS * 2
    # The data length is that after compression, and these rows compress well.
    assert ROWS * 5 <= row[2] <= ROWS * 2000
    assert row[3] > 0
    assert row[4] > ROWS
    assert row[5] is not None
    assert 10 <= row[6] <= 2000


def test_update_time_follows_changes(server: Server, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(f"INSERT INTO {database}.t VALUES (1)")
    update_time = server.query(
        "SELECT update_time FROM information_schema.tables WHERE table_schema = %s", (database,)
    )[0][0]
    assert update_time is not None


def test_rows_per_key_are_known_without_analyze(server: Server, database: str) -> None:
    """The statistics come from the files themselves, after a load and after a restart."""
    values = "SELECT seq, seq % 50, seq % 2000, CONCAT('Name', seq % 300) FROM seq_1_to_20000"
    for table, engine in (("t", ENGINE), ("innodb", "InnoDB")):
        server.query(
            f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(20), "
            f"KEY ab (a, b), KEY c (c)) ENGINE={engine}"
        )
        server.query(f"INSERT INTO {database}.{table} {values}")
    server.query(f"ANALYZE TABLE {database}.innodb")
    distinct = {("PRIMARY", 1): 20000, ("ab", 1): 50, ("ab", 2): 2000, ("c", 1): 300}
    for restart in (False, True):
        if restart:
            server.restart()
        found = server.query(
            "SELECT index_name, seq_in_index, cardinality FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = 't'",
            (database,),
        )
        assert len(found) == len(distinct)
        for index, part, cardinality in found:
            truth = distinct[index, part]
            assert truth * 0.7 <= cardinality <= truth * 1.3, (restart, index, part, cardinality)
        for condition in ("a = 7 AND b = 7", "c = 'Name3'", "a = 7 AND c = 'Name3'", "id < 5"):
            plans = [
                server.query(f"EXPLAIN SELECT * FROM {database}.{table} WHERE {condition}")[0]
                for table in ("t", "innodb")
            ]
            # Compare access type and index; InnoDB may filter by a second index, which is cut off.
            ways = [(plan[3].split("|")[0], plan[5].split("|")[0]) for plan in plans]
            assert ways[0] == ways[1], plans


def test_an_optimizer_estimate_is_near_the_truth(server: Server, database: str) -> None:
    _fill(server, database)
    server.query(f"ANALYZE TABLE {database}.t")
    plan = server.query(f"EXPLAIN SELECT * FROM {database}.t FORCE INDEX (n) WHERE n < 5")[0]
    estimate, truth = int(plan[8]), ROWS // 10
    assert truth / 4 <= estimate <= truth * 4
    cardinality = dict(
        server.query(
            "SELECT index_name, cardinality FROM information_schema.statistics "
            "WHERE table_schema = %s",
            (database,),
        )
    )
    assert ROWS / 2 <= cardinality["PRIMARY"] <= ROWS * 2
    assert 10 <= cardinality["n"] <= 250


@pytest.mark.usefixtures("firn")
def test_show_engine_status(server: Server) -> None:
    rows = server.query("SHOW ENGINE FIRN STATUS")
    assert rows
    text = "\n".join(str(column) for row in rows for column in row)
    assert len(text) > 100
    for word in ("memtable", "level", "transaction", "cache"):
        assert word in text.lower(), f"no {word} in\n{text}"


@pytest.mark.usefixtures("firn")
def test_firn_tables_shows_every_index(server: Server, database: str) -> None:
    _fill(server, database)
    server.query(f"OPTIMIZE TABLE {database}.t")
    rows = server.query(
        "SELECT table_name, index_name, `rows`, raw_bytes, stored_bytes "
        "FROM information_schema.firn_tables WHERE table_schema = %s",
        (database,),
    )
    assert {(row[0], row[1].upper()) for row in rows} == {
        ("t", "PRIMARY"),
        ("t", "N"),
        ("t", "V"),
    }
    for _, index, count, raw, stored in rows:
        assert ROWS / 2 <= count <= ROWS * 2, index
        assert stored > 0, index
        assert raw > 0, index
    primary = next(row for row in rows if row[1].upper() == "PRIMARY")
    # 100 of about 140 bytes are the same letter, so stored bytes must be well below raw bytes.
    assert primary[4] < primary[3] * 0.7
    server.query(f"DROP TABLE {database}.t")
    left = server.query(
        "SELECT COUNT(*) FROM information_schema.firn_tables WHERE table_schema = %s", (database,)
    )
    assert left[0][0] == 0


@pytest.mark.usefixtures("firn")
def test_firn_levels(server: Server, database: str) -> None:
    _fill(server, database)
    server.query(f"OPTIMIZE TABLE {database}.t")
    rows = server.query("SELECT * FROM information_schema.firn_levels")
    assert len(rows) >= 1
    stored = server.query("SELECT SUM(stored_bytes) FROM information_schema.firn_levels")
    assert stored[0][0] > 0


@pytest.mark.usefixtures("firn")
def test_status_counters_count(own_server: Callable[..., Server]) -> None:
    server = own_server("--firn-memtable-size=1048576")
    server.query("CREATE DATABASE d")
    before = _counters(server)
    for word in ("written", "read", "cache", "flushed", "compacted"):
        assert any(word in name for name in before), f"no counter of what is {word}: {before}"
    _fill(server, "d")
    for _ in range(4):
        server.query("INSERT INTO d.t (v, n) SELECT LEFT(CONCAT(v, v), 200), n FROM d.t LIMIT 8000")
    server.query("OPTIMIZE TABLE d.t")
    server.query("SELECT SUM(LENGTH(v)) FROM d.t USE INDEX ()")
    after = _counters(server)
    for name in ("firn_bytes_written", "firn_flushed_bytes", "firn_commits"):
        assert after[name] > before[name], name
    assert after["firn_block_cache_hits"] + after["firn_block_cache_misses"] > 0
    assert all(value >= 0 for value in after.values()), after


@pytest.mark.usefixtures("firn")
def test_the_error_log_tells_what_recovery_did(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    already = len(server.log())
    server.crash_and_recover()
    said = server.log()[already:]
    assert re.search(r"firn.*recover", said, re.IGNORECASE), said
    assert not re.search(r"firn.*(error|corrupt|panic)", said, re.IGNORECASE), said
    assert server.query("SELECT COUNT(*) FROM d.t")[0][0] == ROWS


@pytest.mark.usefixtures("firn")
def test_the_error_log_tells_of_start_and_stop(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    session = server.connect("d")
    with session.cursor() as cursor:
        for statement in ("XA START 'x'", "DELETE FROM t LIMIT 1", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
    session.close()
    already = len(server.log())
    server.restart()
    said = server.log()[already:]
    stopping = re.search(r"FIRN: stopping: the next start recovers (\d+) bytes", said)
    assert stopping is not None, said
    assert int(stopping[1]) > 0
    assert "1 prepared transactions stay prepared" in said
    assert re.search(r"FIRN: stopped in \d+ ms", said), said
    assert re.search(r"FIRN: started in \d+ ms: 1 tables, \d+ files", said), said
    assert said.index("stopping") < said.index("stopped in") < said.index("started in")
    server.query("XA ROLLBACK 'x'")
    assert server.query("SELECT COUNT(*) FROM d.t") == ((ROWS,),)


@pytest.mark.usefixtures("firn")
def test_install_soname_on_a_running_server(own_server: Callable[..., Server]) -> None:
    server = own_server(load_engine=False)
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.old (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    server.query("INSERT INTO d.old VALUES (1, 1), (2, 2)")
    session = server.connect()
    with session.cursor() as cursor:
        cursor.execute("INSTALL SONAME 'ha_firn'")
        cursor.execute("SHOW WARNINGS")
        # The server reads only at its start which directories are no databases, so installing the
        # engine at runtime gives a note.
        notes = [text for level, _, text in cursor.fetchall() if level == "Note"]
    session.close()
    assert len(notes) == 1
    assert "#firn is shown as a database until the next start" in notes[0]
    server.query("ALTER TABLE d.old ENGINE=FIRN")
    server.query("INSERT INTO d.old VALUES (3, 3)")
    _fill(server, "d")
    server.crash_and_recover()
    assert not [row for row in server.query("SHOW DATABASES") if "firn" in row[0]]
    assert server.query("SELECT @@ignore_db_dirs") == (("#firn",),)
    assert server.query("SELECT SUM(v), COUNT(*) FROM d.old") == ((6, 3),)
    assert server.query("SELECT COUNT(*) FROM d.t") == ((ROWS,),)
    plugins = server.query(
        "SELECT plugin_name, plugin_status FROM information_schema.plugins "
        "WHERE plugin_library LIKE 'ha_firn%%'"
    )
    assert {row[1] for row in plugins} == {"ACTIVE"}
    assert {"FIRN", "FIRN_TABLES", "FIRN_LEVELS"} <= {row[0].upper() for row in plugins}
    session = server.connect()
    with session.cursor() as cursor:
        cursor.execute("UNINSTALL SONAME 'ha_firn'")
        cursor.execute("INSTALL SONAME 'ha_firn'")
        cursor.execute("SHOW WARNINGS")
        assert not [row for row in cursor.fetchall() if row[0] == "Note"]
    session.close()
    # When the server ends, it frees its list of ignored directories, to which the engine has added
    # its own.
    server.stop()
    assert "signal" not in server.log()


@pytest.mark.usefixtures("firn")
def test_variables_have_their_promised_names(server: Server) -> None:
    names = {row[0] for row in server.query("SHOW GLOBAL VARIABLES LIKE 'firn%%'")}
    assert {
        "firn_block_cache_size",
        "firn_flush_log_at_trx_commit",
        "firn_lock_wait_timeout",
        "firn_memory_limit",
        "firn_memtable_size",
        "firn_txn_memory_limit",
    } <= names
    assert len(names) <= 40


def _table_rows(server: Server, table: str) -> int:
    """The row count of SHOW TABLE STATUS; FIRN's own view must agree for each index."""
    rows = server.query(
        "SELECT table_rows FROM information_schema.tables WHERE table_schema = 'd' "
        "AND table_name = %s",
        (table,),
    )[0][0]
    own = server.query(
        "SELECT `rows` FROM information_schema.firn_tables WHERE table_schema = 'd' "
        "AND table_name = %s",
        (table,),
    )
    assert set(own) == {(rows,)}, (rows, own)
    return int(rows)


@pytest.mark.usefixtures("firn")
def test_table_rows_are_rows_and_not_versions(own_server: Callable[..., Server]) -> None:
    server = own_server("--log-bin=bin", "--server-id=1")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE={ENGINE}")
    server.query(f"CREATE TABLE d.more (id INT PRIMARY KEY, t INT, KEY t (t)) ENGINE={ENGINE}")
    server.query("INSERT INTO d.more SELECT seq, seq % 10 FROM seq_1_to_400")
    session = server.connect("d")

    def run(*statements: str) -> None:
        with session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    run("INSERT INTO t SELECT seq, seq FROM seq_1_to_10")
    for _ in range(300):
        run("UPDATE t SET v = v + 1 ORDER BY v DESC")
    assert _table_rows(server, "t") == 10
    # The optimizer must put the table of ten rows first.
    plan = server.query("EXPLAIN SELECT SUM(v) FROM d.more JOIN d.t ON more.t = t.id")
    assert [row[2] for row in plan] == ["t", "more"], plan

    for statements, rows in (
        (("BEGIN", "INSERT INTO t VALUES (11, 0), (12, 0)"), 10),
        (("SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO SAVEPOINT s", "COMMIT"), 12),
        (("BEGIN", "DELETE FROM t WHERE id > 5", "ROLLBACK"), 12),
        (("INSERT IGNORE INTO t VALUES (12, 5), (13, 5)",), 13),
        (("REPLACE INTO t VALUES (13, 6), (14, 6)",), 14),
        (("INSERT INTO t VALUES (14, 7), (15, 7) ON DUPLICATE KEY UPDATE v = 9",), 15),
        (("UPDATE t SET id = id + 100",), 15),
        (("DELETE FROM t WHERE id > 108",), 8),
        (("XA START 'x'", "INSERT INTO t VALUES (1, 1), (2, 2)", "XA END 'x'"), 8),
        (("XA PREPARE 'x'",), 8),
        (("XA COMMIT 'x'",), 10),
    ):
        run(*statements)
        assert _table_rows(server, "t") == rows, statements
    with pytest.raises(pymysql.err.MySQLError):
        run("INSERT INTO t VALUES (3, 1), (4, 1), (1, 1)")
    assert _table_rows(server, "t") == 10

    # A prepared transaction whose outcome comes from another session.
    run("XA START 'y'", "DELETE FROM t WHERE id < 3", "XA END 'y'", "XA PREPARE 'y'")
    session.close()
    assert _table_rows(server, "t") == 10
    # Until the server has noticed that the session is gone, another one cannot commit for it.
    while server.query("SELECT 1 FROM information_schema.PROCESSLIST WHERE DB = 'd'"):
        time.sleep(0.01)
    server.query("XA COMMIT 'y'")
    assert _table_rows(server, "t") == 8
    session = server.connect("d")
    run("XA START 'z'", "INSERT INTO t VALUES (1, 1), (2, 2)", "XA END 'z'", "XA PREPARE 'z'")
    # Recovery replays some thousand versions of these rows from the log.
    server.crash_and_recover()
    session = server.connect("d")
    assert _table_rows(server, "t") == 8
    server.query("XA COMMIT 'z'")
    assert _table_rows(server, "t") == 10

    for statement, table, rows in (
        (f"CREATE TABLE copied ENGINE={ENGINE} SELECT * FROM more", "copied", 400),
        ("ALTER TABLE more ADD c INT, ALGORITHM=COPY", "more", 400),
        ("ALTER TABLE more ADD KEY c (c), ALGORITHM=INPLACE", "more", 400),
        ("RENAME TABLE more TO other", "other", 400),
        ("TRUNCATE copied", "copied", 0),
        ("INSERT INTO copied SELECT id, t FROM other LIMIT 7", "copied", 7),
    ):
        run(statement)
        assert _table_rows(server, table) == rows, statement
    session.close()


@pytest.mark.usefixtures("firn")
def test_values_out_of_line_count(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    for table in ("large", "small"):
        server.query(
            f"CREATE TABLE d.{table} (id INT PRIMARY KEY, v INT, b MEDIUMBLOB) ENGINE={ENGINE}"
        )

    def sizes(table: str) -> tuple[int, int]:
        (length,) = server.query(
            "SELECT data_length, avg_row_length FROM information_schema.tables "
            "WHERE table_schema = 'd' AND table_name = %s",
            (table,),
        )
        ((stored, blobs),) = server.query(
            "SELECT stored_bytes, blob_bytes FROM information_schema.firn_tables "
            "WHERE table_schema = 'd' AND table_name = %s",
            (table,),
        )
        assert length[0] >= blobs
        assert stored >= 0
        return int(length[0]), int(length[1])

    value = ", ".join(["RANDOM_BYTES(1000)"] * 20)
    server.query(f"INSERT INTO d.large SELECT seq, 0, CONCAT({value}) FROM seq_1_to_60")
    server.query("INSERT INTO d.small SELECT seq, 0, 'x' FROM seq_1_to_60")
    whole = 60 * 20000
    for step in ("memtable", "updates", "file", "restart"):
        if step == "updates":
            # The updates do not change the large values, so they write only references to them
            # again.
            for _ in range(5):
                server.query("UPDATE d.large SET v = v + 1")
        elif step == "file":
            server.query("OPTIMIZE TABLE d.large")
        elif step == "restart":
            server.restart()
        length, row = sizes("large")
        assert whole <= length <= 1.3 * whole, step
        assert 20000 <= row <= 26000, step
        assert sizes("small")[0] <= whole / 4, step
    server.query("DELETE FROM d.large WHERE id > 30")
    assert 0.5 * whole <= sizes("large")[0] <= 0.7 * whole


@pytest.mark.usefixtures("firn")
def test_a_small_memory_limit_is_raised_and_never_none(own_server: Callable[..., Server]) -> None:
    least = 8 << 20
    server = own_server("--firn-memory-limit=1")
    assert server.query("SELECT @@firn_memory_limit") == ((least,),)
    assert f"'firn-memory-limit': unsigned value 1 adjusted to {least}" in server.log()
    session = server.connect()
    with session.cursor() as cursor:
        for asked, got in (
            ("1", least),
            ("0", 0),
            ("-1", least),
            (str(least - 1), least),
            (str(least + 1), least),
            ("DEFAULT", 0),
            (str(64 << 20), 64 << 20),
        ):
            cursor.execute("SET sql_mode = ''")
            # The server clears the warnings of earlier statements only when a statement reads a
            # table.
            cursor.execute("SELECT 1 FROM mysql.db")
            cursor.execute(f"SET GLOBAL firn_memory_limit = {asked}")
            warnings = cursor.execute("SHOW WARNINGS") and cursor.fetchall()
            cursor.execute("SELECT @@firn_memory_limit")
            assert cursor.fetchone() == (got,), asked
            if asked == "DEFAULT" or int(asked) == got:
                assert not warnings, asked
            else:
                text = f"Truncated incorrect firn_memory_limit value: '{asked}'"
                assert [warning[1:] for warning in warnings] == [(1292, text)]
        cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES'")
        with pytest.raises(pymysql.err.MySQLError) as caught:
            cursor.execute("SET GLOBAL firn_memory_limit = 1")
        assert caught.value.args[0] == 1231
        cursor.execute("SELECT @@firn_memory_limit")
        assert cursor.fetchone() == (64 << 20,)
    status = server.query("SHOW ENGINE FIRN STATUS")[0][2]
    assert f"limit {64 << 20}" in status
    session.close()


@pytest.mark.usefixtures("firn")
def test_views_of_the_engine_need_the_process_privilege(server: Server, database: str) -> None:
    """The views require the PROCESS privilege, as InnoDB's do."""
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query("CREATE USER reader@localhost")
    server.query(f"GRANT SELECT ON {database}.* TO reader@localhost")
    views = ("innodb_sys_tables", "firn_tables", "firn_levels")

    def seen(view: str) -> tuple[int, str] | int:
        session = server.connect(user="reader")
        try:
            with session.cursor() as cursor:
                cursor.execute(f"SELECT * FROM information_schema.{view}")
                return len(cursor.fetchall())
        except pymysql.err.MySQLError as error:
            return int(error.args[0]), str(error.args[1])
        finally:
            session.close()

    try:
        denied = [seen(view) for view in views]
        assert isinstance(denied[0], tuple)
        assert denied[0][0] == 1227
        assert denied == denied[:1] * len(views)
        server.query("GRANT PROCESS ON *.* TO reader@localhost")
        for view in views:
            rows = seen(view)
            assert isinstance(rows, int), (view, rows)
            assert rows > 0, view
    finally:
        server.query("DROP USER reader@localhost")


@pytest.mark.usefixtures("firn")
def test_partitions_are_shown_without_a_word_in_the_log(server: Server, database: str) -> None:
    for name in ("p", "über tisch"):
        server.query(
            f"CREATE TABLE {database}.`{name}` (id INT PRIMARY KEY) ENGINE={ENGINE} "
            "PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "
            "(PARTITION `älter` VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN MAXVALUE)"
        )
    already = len(server.log())
    rows = server.query(
        "SELECT table_name FROM information_schema.firn_tables WHERE table_schema = %s ORDER BY 1",
        (database,),
    )
    assert sorted(row[0] for row in rows) == sorted(
        f"{name}#P#{part}#SP#{part}sp{number}"
        for name in ("p", "über tisch")
        for part in ("älter", "p1")
        for number in (0, 1)
    )
    # Other sessions of the shared server may end meanwhile, and background work may be noted.
    others = re.compile(r"\[Note\]|Aborted connection")
    lines = server.log()[already:].splitlines()
    assert [line for line in lines if not others.search(line)] == []


def test_data_directory_shows_no_engine_files_as_databases(server: Server) -> None:
    names: set[Any] = {row[0] for row in server.query("SHOW DATABASES")}
    assert not [name for name in names if "firn" in name.lower()], names


@pytest.mark.usefixtures("firn")
@pytest.mark.parametrize("ending", ["/", ""])
def test_a_data_directory_of_another_name_is_no_database(
    own_server: Callable[..., Server], ending: str
) -> None:
    server = own_server(f"--firn-data-dir=./trees{ending}", "--ignore-db-dirs=trees")
    assert (server.data / "trees").is_dir()
    server.query("CREATE DATABASE d")
    names = {row[0] for row in server.query("SHOW DATABASES")}
    assert "d" in names
    assert "trees" not in names
    server.stop()
    server.options = [f"--firn-data-dir={server.data / 'trees'}{ending}"]
    server.start()
    assert "trees" not in {row[0] for row in server.query("SHOW DATABASES")}
