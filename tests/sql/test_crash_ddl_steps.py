"""A server killed before any step of a DDL statement has all tables and rows when it starts again.

Each test kills the server before some steps of one statement, chosen by the seed; with
FIRN_TEST_DDL_STEPS=all before each of them. Then the server starts at once, or on a disk without a
free byte, or first without the engine, which makes the server lose its log of the statement. The
tables must be those before the statement or those after it, with all rows.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from file_steps import FileSteps
from server import ENGINE, IS_FIRN, Server
from test_full_disk import OPTIONS, fill, small_disk, wait_for

ALL_STEPS = os.environ.get("FIRN_TEST_DDL_STEPS") == "all"
SAMPLE = 3

Tables = dict[str, tuple[str, tuple[tuple[Any, ...], ...]]]


@dataclass
class Case:
    """Tables, and a statement on them."""

    tables: list[str]
    statements: list[str]
    # Whether a rename of several tables may stop in the middle if the server has lost its log: the
    # tables then keep their rows under the names that they had got.
    may_keep_new_names: bool = False


PARENT = "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE={}"
CHILD = (
    "CREATE TABLE c (id INT PRIMARY KEY, pid INT, KEY (pid), "
    "CONSTRAINT refers FOREIGN KEY (pid) REFERENCES p (id)) ENGINE={}"
)
FILL = [
    "INSERT INTO p SELECT seq, REPEAT('v', seq % 20) FROM seq_1_to_50",
    "INSERT INTO c SELECT seq, seq FROM seq_1_to_50",
]
PAIR = [PARENT, CHILD, *FILL]
PARTITIONED = (
    "CREATE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE={} PARTITION BY RANGE (id) "
    "(PARTITION a VALUES LESS THAN (30), PARTITION b VALUES LESS THAN (1000))"
)
FILL_PARTITIONED = "INSERT INTO parts SELECT seq, seq FROM seq_1_to_60"

CASES = {
    # The settings of a session may allow what they would not allow later.
    "child_loses_index": Case(
        PAIR, ["SET foreign_key_checks = 0", "ALTER TABLE c DROP KEY pid, ALGORITHM=COPY"]
    ),
    "child_of_another_parent": Case(
        [
            *PAIR,
            "SET foreign_key_checks = 0",
            "DROP TABLE p",
            "CREATE TABLE p (id BIGINT PRIMARY KEY) ENGINE={}",
        ],
        ["SET foreign_key_checks = 0", "ALTER TABLE c ADD COLUMN w INT, ALGORITHM=COPY"],
    ),
    "parent_copied": Case(PAIR, ["ALTER TABLE p ADD COLUMN w INT DEFAULT 7, ALGORITHM=COPY"]),
    "parent_copied_and_renamed": Case(
        PAIR, ["ALTER TABLE p ADD COLUMN w INT DEFAULT 7, RENAME TO q, ALGORITHM=COPY"], True
    ),
    "in_place": Case(PAIR, ["ALTER TABLE p ADD KEY (v), ALGORITHM=INPLACE"]),
    "columns_in_place": Case(
        PAIR,
        [
            "ALTER TABLE p ADD w INT DEFAULT 7 FIRST, ADD g INT AS (id + w) VIRTUAL, "
            "MODIFY v VARCHAR(300) AFTER w, ALGORITHM=INSTANT"
        ],
    ),
    "columns_and_index_in_place": Case(
        PAIR, ["ALTER TABLE p DROP v, ADD w INT DEFAULT 7, ADD KEY (w), ALGORITHM=NOCOPY"]
    ),
    "columns_in_place_and_renamed": Case(
        PAIR,
        ["ALTER TABLE p DROP v, ADD v VARCHAR(20) DEFAULT 'n', RENAME TO q, ALGORITHM=INSTANT"],
        True,
    ),
    "columns_of_partitions": Case(
        [PARTITIONED, FILL_PARTITIONED],
        ["ALTER TABLE parts ADD w INT DEFAULT 7 FIRST, DROP v, ALGORITHM=INSTANT"],
    ),
    "renamed": Case(PAIR, ["RENAME TABLE p TO spare, c TO p, spare TO c"], True),
    "exchanged": Case(
        [
            PARTITIONED,
            FILL_PARTITIONED,
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={}",
            "INSERT INTO t SELECT seq, 1000 + seq FROM seq_1_to_20",
        ],
        ["ALTER TABLE parts EXCHANGE PARTITION a WITH TABLE t"],
    ),
    "partitions_copied": Case(
        [PARTITIONED, FILL_PARTITIONED],
        ["ALTER TABLE parts ADD COLUMN w INT DEFAULT 7, ALGORITHM=COPY"],
    ),
    "partitioned_anew": Case(
        [PARTITIONED, FILL_PARTITIONED],
        ["ALTER TABLE parts PARTITION BY HASH (id) PARTITIONS 3"],
    ),
}


# InnoDB loses a table or a foreign key here; on other engines these cases are skipped.
FIRN_ONLY = {
    "child_loses_index",
    "child_of_another_parent",
    "partitions_copied",
    "partitioned_anew",
}


def skip_unless_possible(name: str, mode: str) -> None:
    """Skips what this engine or this user cannot do."""
    if not IS_FIRN and name in FIRN_ONLY:
        pytest.skip("InnoDB does not keep the tables of this case")
    if mode == "full_disk" and os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")


def create(server: Server, case: Case) -> None:
    """Creates the tables of a case anew."""
    with contextlib.closing(server.connect("mysql")) as session, session.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS ddl")
        cursor.execute("CREATE DATABASE ddl")
        cursor.execute("USE ddl")
        for sql in case.tables:
            cursor.execute(sql.format(ENGINE))


def tables(server: Server) -> Tables:
    """All tables: definition and rows. Raises if one cannot be read."""
    found: Tables = {}
    names = server.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ddl'"
    )
    for (name,) in names:
        definition = server.query(f"SHOW CREATE TABLE ddl.{name}")[0][1]
        rows = server.query(f"SELECT * FROM ddl.{name} ORDER BY id")
        check = server.query(f"CHECK TABLE ddl.{name} EXTENDED")
        assert check[-1][3] == "OK", check
        found[name] = (definition, rows)
    return found


def nameless(state: Tables) -> list[tuple[str, tuple[tuple[Any, ...], ...]]]:
    """The tables without their names and foreign keys."""
    return sorted(
        (re.sub(r"(?m)^CREATE TABLE `\w+`|^ *CONSTRAINT.*$|,$", "", definition), rows)
        for definition, rows in state.values()
    )


def judge(server: Server, case: Case, old: Tables, new: Tables, told: str) -> None:
    """The tables are the old or the new ones, and the engine has no others."""
    found = tables(server)
    is_right = found in (old, new)
    if not is_right and case.may_keep_new_names and "without_engine" in told:
        assert nameless(found) in (nameless(old), nameless(new)), f"{told}\n{found}"
        return
    assert is_right, f"{told}\n found {found}\n old {old}\n new {new}\n{server.log_tail(15)}"
    expect_no_orphans(server)


def expect_no_orphans(server: Server) -> None:
    """The engine has the listed tables and no others, and the server has no files of copies.

    A definition that the server has created and not written yet belongs to no engine, and may stay.
    """
    names = {*tables(server), "db"}
    left = [
        path.name
        for path in (server.data / "ddl").iterdir()
        if path.name.split(".")[0].split("#P#")[0] not in names
        and (path.stat().st_size or path.suffix != ".frm")
    ]
    assert not left, left
    if not IS_FIRN:
        return
    known = server.query(
        "SELECT DISTINCT SUBSTRING_INDEX(table_name, '#P#', 1) FROM "
        "information_schema.firn_tables WHERE table_schema = 'ddl'"
    )
    assert {name for (name,) in known} == set(tables(server))


@contextlib.contextmanager
def stepped_server(full_disk: bool) -> Iterator[tuple[Server, FileSteps, Any]]:
    """A server whose steps are counted, on a file system of its own if the disk shall be full."""
    options = OPTIONS if full_disk else ["--innodb-stats-persistent=0"]
    server = Server(options)
    try:
        steps = FileSteps(server)
        with small_disk(server) if full_disk else contextlib.nullcontext() as disk:
            server.start()
            yield server, steps, disk
    finally:
        server.destroy()


def await_reserve(server: Server) -> None:
    """Waits until the engine has made anew what it keeps for a full disk; at most 3.3 MiB."""
    wanted = 3 << 20
    wait_for("the reserve is not made anew", lambda: reserve(server) > wanted)


def reserve(server: Server) -> int:
    """Bytes that the engine keeps for a full disk."""
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Firn_reserve_bytes'")[0][1])


def start_on_full_disk(server: Server, disk: Any) -> None:
    """Starts the server without a free byte; DDL is recovered there. Then makes room."""
    fill(disk)
    server.start()
    (disk / "filler").unlink()


def start_without_engine(server: Server) -> None:
    """Starts the server once without the engine, then with it."""
    server.load_engine = False
    server.start()
    server.stop()
    server.load_engine = True
    server.start()


MODES = ["plain", "full_disk", "without_engine"] if IS_FIRN else ["plain"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_a_kill_before_any_step(name: str, mode: str, seed: int) -> None:
    skip_unless_possible(name, mode)
    case = CASES[name]
    with stepped_server(mode == "full_disk") as (server, steps, disk):
        create(server, case)
        old = tables(server)
        count = steps.run(case.statements)
        new = tables(server)
        assert count > 3
        assert old != new
        chosen = range(1, count + 1)
        if not ALL_STEPS:
            rng = Random(f"{seed} {name} {mode}")
            chosen = sorted(rng.sample(chosen, min(SAMPLE, count)))
        killed = 0
        for step in chosen:
            create(server, case)
            if mode == "full_disk":
                await_reserve(server)
            steps.run(case.statements, step)
            if server.running():
                continue  # Numbers of steps differ a little from run to run.
            killed += 1
            if mode == "full_disk":
                start_on_full_disk(server, disk)
            elif mode == "without_engine":
                start_without_engine(server)
            else:
                server.start()
            judge(server, case, old, new, f"{name}, {mode}, step {step} of {count}")
        assert killed, "the statement never reached a chosen step"
        print(f"{name}, {mode}: killed before {killed} of {count} steps")


HELD = [
    "child_loses_index",
    "child_of_another_parent",
    "parent_copied",
    "parent_copied_and_renamed",
    "partitions_copied",
]


@pytest.mark.parametrize("mode", ["plain", "full_disk"] if IS_FIRN else ["plain"])
@pytest.mark.parametrize("name", HELD)
def test_a_kill_while_a_reader_holds_up_the_alter(name: str, mode: str) -> None:
    """The copy is complete, and the ALTER waits for a session that has read the table."""
    skip_unless_possible(name, mode)
    case = CASES[name]
    with stepped_server(mode == "full_disk") as (server, steps, disk):
        create(server, case)
        old = tables(server)
        steps.run(case.statements)
        new = tables(server)
        create(server, case)
        table = re.findall(r"ALTER TABLE (\w+)", case.statements[-1])[0]
        reader = server.connect("ddl")
        with reader.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT * FROM {table}")
        alter = threading.Thread(target=steps.run, args=(case.statements,))
        alter.start()
        wait_until_held(server)
        server.kill()
        alter.join()
        if mode == "full_disk":
            start_on_full_disk(server, disk)
        else:
            server.start()
        judge(server, case, old, new, f"{name}, {mode}, held")


def wait_until_held(server: Server) -> None:
    """Waits until an ALTER waits for a metadata lock."""
    deadline = time.monotonic() + 60
    while not server.query(
        "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'ALTER%' "
        "AND state = 'Waiting for table metadata lock'"
    ):
        assert time.monotonic() < deadline, "the ALTER never waits"
        time.sleep(0.02)
