"""What the engine shows of itself: status, information_schema, counters, the error log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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
    """For promises that only FIRN makes."""
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
    # Compressed, and these rows compress well.
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
    """From what the files themselves keep: after a load, and after a restart."""
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
            # How it is read, and by which index; InnoDB may filter by a second one.
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
    # 100 of some 140 bytes are the same letter: stored must be well below raw.
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
def test_install_soname_on_a_running_server(own_server: Callable[..., Server]) -> None:
    server = own_server(load_engine=False)
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.old (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    server.query("INSERT INTO d.old VALUES (1, 1), (2, 2)")
    server.query("INSTALL SONAME 'ha_firn'")
    server.query("ALTER TABLE d.old ENGINE=FIRN")
    server.query("INSERT INTO d.old VALUES (3, 3)")
    _fill(server, "d")
    server.crash_and_recover()
    assert server.query("SELECT SUM(v), COUNT(*) FROM d.old") == ((6, 3),)
    assert server.query("SELECT COUNT(*) FROM d.t") == ((ROWS,),)
    plugins = server.query(
        "SELECT plugin_name, plugin_status FROM information_schema.plugins "
        "WHERE plugin_library LIKE 'ha_firn%%'"
    )
    assert {row[1] for row in plugins} == {"ACTIVE"}
    assert {"FIRN", "FIRN_TABLES", "FIRN_LEVELS"} <= {row[0].upper() for row in plugins}


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


def test_data_directory_shows_no_engine_files_as_databases(server: Server) -> None:
    names: set[Any] = {row[0] for row in server.query("SHOW DATABASES")}
    assert not [name for name in names if "firn" in name.lower()], names
