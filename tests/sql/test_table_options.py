"""Options of tables are honoured, noted or refused; none is swallowed."""

from __future__ import annotations

import time
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server, free_port

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

IGNORED = 1618
ILLEGAL = 1478

# Options and the names in their notes.
NOTED = {
    "ROW_FORMAT=COMPRESSED": ["ROW_FORMAT"],
    "ROW_FORMAT=COMPACT KEY_BLOCK_SIZE=8": ["ROW_FORMAT", "KEY_BLOCK_SIZE"],
    "STATS_PERSISTENT=0": ["STATS_PERSISTENT"],
    "STATS_PERSISTENT=1 STATS_AUTO_RECALC=1 STATS_SAMPLE_PAGES=10": [
        "STATS_PERSISTENT",
        "STATS_AUTO_RECALC",
        "STATS_SAMPLE_PAGES",
    ],
    "PAGE_COMPRESSED=1": ["PAGE_COMPRESSED"],
    "PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=7": ["PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"],
    "ENCRYPTION_KEY_ID=4": ["ENCRYPTION_KEY_ID"],
    "CONNECTION='somewhere'": ["CONNECTION"],
    "CHECKSUM=1": ["CHECKSUM"],
    "PAGE_CHECKSUM=1": ["PAGE_CHECKSUM"],
    "DELAY_KEY_WRITE=1": ["DELAY_KEY_WRITE"],
    "MIN_ROWS=5 MAX_ROWS=100 AVG_ROW_LENGTH=9": ["MIN_ROWS", "MAX_ROWS", "AVG_ROW_LENGTH"],
    "PACK_KEYS=0": ["PACK_KEYS"],
    "PACK_KEYS=1": ["PACK_KEYS"],
    "INSERT_METHOD=LAST": ["INSERT_METHOD"],
    "UNION=(u)": ["UNION"],
}
# Neither needs a note: defaults, and options that have their effect.
SILENT = (
    "ROW_FORMAT=DEFAULT",
    "CHECKSUM=0",
    "PACK_KEYS=DEFAULT",
    "STATS_PERSISTENT=DEFAULT",
    "PAGE_COMPRESSED=0",
    "ENCRYPTED=NO",
    "ENCRYPTED=DEFAULT",
    "AUTO_INCREMENT=7 COMMENT='x' DEFAULT CHARSET=latin1",
)


def _rows(session: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _notes(session: pymysql.Connection[Any], sql: str) -> list[tuple[str, str]]:
    """Level and option of each note that the statement leaves."""
    _rows(session, sql)
    return [
        (level, text.split("<")[1].split(">")[0])
        for level, number, text in _rows(session, "SHOW WARNINGS")
        if number == IGNORED
    ]


def _error(session: pymysql.Connection[Any], sql: str) -> tuple[int, str]:
    try:
        _rows(session, sql)
    except pymysql.err.MySQLError as error:
        return error.args[0], error.args[1]
    return 0, ""


@pytest.mark.parametrize("options", NOTED)
def test_an_option_without_effect_is_noted(
    connection: pymysql.Connection[Any], options: str
) -> None:
    expected = [("Note", name) for name in NOTED[options]]
    columns = "(id INT PRIMARY KEY, v INT)"
    created = _notes(connection, f"CREATE TABLE t {columns} {options} ENGINE={ENGINE}")
    assert created == expected
    # The definition keeps the option, so a dump for another engine has it.
    for option in options.replace("UNION=(u)", "").split():
        if not option.startswith("INSERT_METHOD"):
            stored = option.split("=")[0]
            assert stored in _rows(connection, "SHOW CREATE TABLE t")[0][1].replace("`", "")
    # Changes of other things do not repeat the note.
    assert _notes(connection, "ALTER TABLE t ADD COLUMN w INT, ALGORITHM=COPY") in (
        [],
        [note for note in expected if note[1].startswith(("PAGE_COMP", "ENCRYPTION"))],
    )
    assert _notes(connection, "ALTER TABLE t ADD INDEX (v)") == []
    assert _notes(connection, "CREATE TABLE l LIKE t") == [
        note for note in expected if note[1] not in ("INSERT_METHOD", "UNION", "PAGE_CHECKSUM")
    ]
    _rows(connection, f"CREATE TABLE plain {columns} ENGINE={ENGINE}")
    # Nothing is copied for it, unless it is an option of each index as well.
    algorithm = "COPY" if "KEY_BLOCK_SIZE" in options else "INSTANT"
    assert _notes(connection, f"ALTER TABLE plain {options}, ALGORITHM={algorithm}") == expected
    assert _notes(connection, f"ALTER TABLE plain {options}, FORCE, ALGORITHM=COPY") == expected


@pytest.mark.parametrize("options", SILENT)
def test_an_option_at_its_default_is_not_noted(
    connection: pymysql.Connection[Any], options: str
) -> None:
    sql = f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) {options} ENGINE={ENGINE}"
    assert _notes(connection, sql) == []


def test_a_table_of_innodb_brings_its_options(connection: pymysql.Connection[Any]) -> None:
    _rows(
        connection,
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4 "
        "STATS_SAMPLE_PAGES=7",
    )
    assert _notes(connection, f"ALTER TABLE t ENGINE={ENGINE}") == [
        ("Note", "ROW_FORMAT"),
        ("Note", "KEY_BLOCK_SIZE"),
        ("Note", "STATS_SAMPLE_PAGES"),
    ]
    _rows(connection, "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=InnoDB PAGE_COMPRESSED=1")
    assert _notes(connection, f"ALTER TABLE u ENGINE={ENGINE}") == [("Note", "PAGE_COMPRESSED")]


def test_partitions_do_not_repeat_the_note(connection: pymysql.Connection[Any]) -> None:
    sql = (
        "CREATE TABLE t (id INT PRIMARY KEY) ROW_FORMAT=COMPRESSED STATS_PERSISTENT=0 "
        f"ENGINE={ENGINE} PARTITION BY HASH (id) PARTITIONS 20"
    )
    expected = [("Note", "ROW_FORMAT"), ("Note", "STATS_PERSISTENT")]
    assert _notes(connection, sql) == expected
    _rows(connection, "DROP TABLE t")
    assert _notes(connection, sql) == expected


ENCRYPTED = ("ENCRYPTED=YES", "ENCRYPTED=YES ENCRYPTION_KEY_ID=1", "`encrypted`='yes'")


@pytest.mark.parametrize("options", ENCRYPTED)
@pytest.mark.parametrize("sql_mode", ["", "STRICT_ALL_TABLES", "IGNORE_BAD_TABLE_OPTIONS"])
def test_encryption_is_refused(
    connection: pymysql.Connection[Any], options: str, sql_mode: str
) -> None:
    _rows(connection, f"SET sql_mode='{sql_mode}'")
    error = _error(connection, f"CREATE TABLE t (id INT PRIMARY KEY) {options} ENGINE={ENGINE}")
    assert error[0] == ILLEGAL
    assert "ENCRYPTED" in error[1]
    assert _rows(connection, "SHOW TABLES") == []
    _rows(connection, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    _rows(connection, "INSERT INTO t VALUES (1)")
    for algorithm in ("", ", ALGORITHM=COPY", ", ADD INDEX (id)"):
        assert _error(connection, f"ALTER TABLE t {options}{algorithm}")[0] == ILLEGAL
    # Never in place: the option would take effect without a word.
    assert _error(connection, f"ALTER TABLE t {options}, ALGORITHM=INSTANT")[0] != 0
    assert "encrypted" not in _rows(connection, "SHOW CREATE TABLE t")[0][1].lower()
    assert (
        _error(
            connection,
            f"CREATE TABLE p (id INT PRIMARY KEY) {options} ENGINE={ENGINE} "
            "PARTITION BY HASH (id) PARTITIONS 2",
        )[0]
        == ILLEGAL
    )
    assert _rows(connection, "SELECT * FROM t") == [(1,)]


def test_a_bad_value_of_an_attribute_is_an_error(connection: pymysql.Connection[Any]) -> None:
    sql = f"CREATE TABLE t (id INT PRIMARY KEY) ENCRYPTED=MAYBE ENGINE={ENGINE}"
    assert _error(connection, sql)[0] == 1912
    assert _error(connection, sql.replace("ENCRYPTED=MAYBE", "NO_SUCH_OPTION=1"))[0] == 1911


@pytest.mark.parametrize("option", ["DATA DIRECTORY", "INDEX DIRECTORY"])
def test_directories_are_refused_in_strict_mode(
    connection: pymysql.Connection[Any], option: str
) -> None:
    sql = f"CREATE TABLE t (id INT PRIMARY KEY) {option}='/tmp' ENGINE={ENGINE}"
    error = _error(connection, sql)
    assert error[0] == ILLEGAL
    assert option in error[1]
    partition = (
        f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={ENGINE} PARTITION BY RANGE (id) "
        f"(PARTITION a VALUES LESS THAN (9) {option}='/tmp')"
    )
    assert _error(connection, partition)[0] == ILLEGAL
    assert _rows(connection, "SHOW TABLES") == []
    _rows(connection, "SET sql_mode=''")
    assert _notes(connection, sql) == [("Warning", option)]
    assert _notes(connection, partition) == [("Warning", option)]
    _rows(connection, "INSERT INTO t VALUES (1)")


def test_an_innodb_dump_loads(connection: pymysql.Connection[Any]) -> None:
    """The dump of a table with all of InnoDB's options, with the engine exchanged."""
    _rows(
        connection,
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB ROW_FORMAT=DYNAMIC "
        "STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=9 `PAGE_COMPRESSED`=1 "
        "`PAGE_COMPRESSION_LEVEL`=3 CHECKSUM=1 DELAY_KEY_WRITE=1 MAX_ROWS=1000",
    )
    create = _rows(connection, "SHOW CREATE TABLE t")[0][1].replace("InnoDB", ENGINE)
    _rows(connection, "DROP TABLE t")
    assert len(_notes(connection, create)) == 9
    _rows(connection, "INSERT INTO t VALUES (1, 'x')")
    assert _rows(connection, "SHOW CREATE TABLE t")[0][1] == create


def test_a_replica_notes_options_and_refuses_encryption(own_server: Any) -> None:
    """The primary's engine knows none of InnoDB's attributes and lets them pass with a warning."""
    port = free_port()
    options = ("--server-id=1", "--log-bin", "--skip-networking=0", "--bind-address=127.0.0.1")
    primary: Server = own_server(*options, f"--port={port}", "--default-storage-engine=MyISAM")
    replica: Server = own_server("--server-id=2")
    primary.query("CREATE USER r@'%' IDENTIFIED BY 'p'")
    primary.query("GRANT REPLICATION SLAVE ON *.* TO r@'%'")
    replica.query(
        f"CHANGE MASTER TO master_host='127.0.0.1', master_port={port}, master_user='r', "
        "master_password='p', master_use_gtid=slave_pos, master_connect_retry=1"
    )
    replica.query("START SLAVE")
    session = primary.connect()
    for sql in (
        "CREATE DATABASE d",
        "SET sql_mode='STRICT_ALL_TABLES'",
        f"CREATE TABLE d.elsewhere (id INT PRIMARY KEY) DATA DIRECTORY='{primary.directory}'",
        "SET sql_mode='IGNORE_BAD_TABLE_OPTIONS'",
        "CREATE TABLE d.noted (id INT PRIMARY KEY) PAGE_COMPRESSED=1 ROW_FORMAT=COMPRESSED "
        "KEY_BLOCK_SIZE=2",
        "INSERT INTO d.noted VALUES (1)",
    ):
        _rows(session, sql)
    position = _rows(session, "SELECT @@gtid_binlog_pos")[0][0]
    assert replica.query("SELECT MASTER_GTID_WAIT(%s, 60)", (position,)) == ((0,),)
    assert f"ENGINE={ENGINE}" in replica.query("SHOW CREATE TABLE d.noted")[0][1]
    assert replica.query("SELECT * FROM d.noted") == ((1,),)
    assert f"ENGINE={ENGINE}" in replica.query("SHOW CREATE TABLE d.elsewhere")[0][1]
    _rows(session, "CREATE TABLE d.secret (id INT PRIMARY KEY) ENCRYPTED=YES")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = replica.query("SHOW SLAVE STATUS")[0]
        if ILLEGAL in status:
            break
        time.sleep(0.1)
    assert ILLEGAL in status
    assert replica.query("SHOW TABLES FROM d") == (("elsewhere",), ("noted",))
    session.close()


def test_a_sequence_leaves_no_notes(connection: pymysql.Connection[Any]) -> None:
    """The server gives each sequence MIN_ROWS and MAX_ROWS, which nobody has asked for."""
    assert _notes(connection, "CREATE OR REPLACE SEQUENCE noted ENGINE=FIRN") == []
    _rows(connection, "DROP SEQUENCE noted")


def test_a_table_of_aria_leaves_no_notes(connection: pymysql.Connection[Any]) -> None:
    """Some of the server's own tables are of Aria, with options that only Aria knows."""
    options = "ENGINE=Aria PAGE_CHECKSUM=1 TRANSACTIONAL=0"
    _rows(connection, f"CREATE OR REPLACE TABLE aria (id INT PRIMARY KEY) {options}")
    assert _notes(connection, "ALTER TABLE aria ENGINE=FIRN") == []
    noted = _notes(connection, "ALTER TABLE aria PAGE_CHECKSUM=0 TRANSACTIONAL=0")
    assert {name for _, name in noted} == {"PAGE_CHECKSUM", "TRANSACTIONAL"}
    _rows(connection, "DROP TABLE aria")
