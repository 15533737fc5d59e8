"""`firn restore --until-…`: a backup and the log archive restore any later point in time.

Sessions write and change definitions. At several points they pause: the test dumps the rows and
notes the time and the binary log position. Each copy restored to one of these points must equal the
dump.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
from server import IS_FIRN, Server
from test_backup import BINLOG, SMALL, back_up, dump, expect_same, firn

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="point in time recovery is FIRN's")

POINTS = 6
ARCHIVE_SECONDS_MAX = 90.0
WRITER_SECONDS_MAX = 90.0
DATABASE = "pit"


@dataclass
class Point:
    """A moment at which no session writes, and the rows and definitions of that moment."""

    time: str
    binlog: str
    rows: list[str]
    frm: dict[str, bytes]
    what: str


class Writer:
    """Writes rows, some of them large, in small and occasionally spilling transactions."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.rng = Random(seed)
        self.pause = threading.Lock()
        self.stop = threading.Event()
        self.done = 0
        self.unexpected = ""

    def run(self) -> None:
        """Writes until it is stopped; holds `pause` while it writes."""
        rng = self.rng
        try:
            with self.server.connect(DATABASE, autocommit=False) as session:
                while not self.stop.is_set():
                    with self.pause, session.cursor() as cursor:
                        for _ in range(rng.randrange(1, 5)):
                            key, size = rng.randrange(400), rng.choice([10, 200, 9000])
                            cursor.execute(
                                "REPLACE INTO sb VALUES (%s, %s, %s)",
                                (key, rng.randrange(100), rng.choice("abcdef") * size),
                            )
                        if rng.random() < 0.03:
                            cursor.execute(
                                "INSERT INTO large "
                                "SELECT NULL, seq, REPEAT(MD5(seq), 20) FROM seq_1_to_4000"
                            )
                            cursor.execute("DELETE FROM large WHERE a % 3 = 1")
                        session.commit()
                        self.done += 1
        except pymysql.err.MySQLError as error:
            self.unexpected = str(error)

    def __enter__(self) -> Writer:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        assert not self.unexpected, self.unexpected


DDL = [
    "CREATE TABLE one (id INT PRIMARY KEY, a INT, b VARCHAR(40)) ENGINE=FIRN",
    "INSERT INTO one SELECT seq, seq % 7, MD5(seq) FROM seq_1_to_500",
    "ALTER TABLE one ADD INDEX (a), ADD UNIQUE (b)",
    "UPDATE one SET a = a + 10 WHERE id < 50",
    "ALTER TABLE one ADD COLUMN c INT NOT NULL DEFAULT 3, ALGORITHM=COPY",
    "CREATE TABLE two ENGINE=FIRN SELECT * FROM one WHERE id > 100",
    "DELETE FROM one WHERE id > 450",
    "RENAME TABLE one TO first",
    "ALTER TABLE parts ADD INDEX (a)",
    "INSERT INTO parts SELECT seq, seq FROM seq_1001_to_1100",
    "TRUNCATE TABLE two",
    "INSERT INTO two (id, a) VALUES (1, 1), (2, 2)",
    "ALTER TABLE two COMMENT 'changed', ALTER COLUMN b SET DEFAULT 'x'",
    "DROP TABLE first",
    "CREATE TABLE one (k BIGINT AUTO_INCREMENT PRIMARY KEY, v TEXT) ENGINE=FIRN",
    "INSERT INTO one (v) VALUES ('again')",
]


def frm_files(server: Server) -> dict[str, bytes]:
    """The contents of the definition files (.frm) of the database's tables."""
    files = (server.data / DATABASE).glob("*.frm")
    return {path.name: path.read_bytes() for path in files if not path.name.startswith("#")}


def look(server: Server, what: str) -> Point:
    """The present state as a Point.

    Its time is later than all previous writes and earlier than all later ones.
    """
    time.sleep(0.03)
    now = datetime.now()
    file, position = server.query("SHOW MASTER STATUS")[0][:2]
    rows, frm = dump(server, DATABASE), frm_files(server)
    return Point(str(now)[:23], f"{file}:{position}", rows, frm, what)


def create(server: Server) -> None:
    """Creates the initial tables."""
    server.query(f"CREATE DATABASE {DATABASE}")
    for table in [
        "sb (id INT PRIMARY KEY, k INT, c LONGTEXT, KEY (k))",
        "large (id INT AUTO_INCREMENT PRIMARY KEY, a INT, v TEXT, KEY (a))",
        "parts (id INT PRIMARY KEY, a INT)",
    ]:
        more = " PARTITION BY HASH (id) PARTITIONS 3" if table.startswith("parts") else ""
        server.query(f"CREATE TABLE {DATABASE}.{table} ENGINE=FIRN{more}")
    server.query(f"INSERT INTO {DATABASE}.parts SELECT seq, seq FROM seq_1_to_50")


def restore(
    own_server: Callable[..., Server], target: Path, archive: Path, *until: str
) -> tuple[Server, Any]:
    """Starts a server on a copy restored to a point."""
    copy = own_server(load_engine=False)
    copy.stop()
    report = firn("restore", target, "--to", copy.data, "--archive", archive, *until)
    copy.load_engine = True
    copy.start()
    return copy, report


def archived(server: Server, target: Path, archive: Path) -> None:
    """Waits until everything that was written so far is in the log archive."""
    server.query("SET GLOBAL firn_log_archive_timeout = 1")
    written = datetime.now().isoformat(" ", "milliseconds")
    deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
    until = ""
    # The tool shows the time up to which the archive has all commits.
    while until[: len(written)] <= written:
        assert time.monotonic() < deadline, f"archived until {until}\n{server.log()}"
        time.sleep(0.2)
        # The tool fails as long as the archive has no owner.
        with contextlib.suppress(AssertionError):
            ranges = firn("backups", target, "--archive", archive)["archive"]
            until = (ranges[-1]["last_time"] or "") if ranges else ""


def says(server: Server, words: str) -> None:
    """Waits until the server's error log has these words."""
    deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
    while words not in (log := server.log()):
        assert time.monotonic() < deadline, log
        time.sleep(0.1)


@pytest.mark.parametrize("end", ["runs", "killed"])
def test_each_point_is_the_state_at_its_time(
    own_server: Callable[..., Server], seed: int, tmp_path: Path, end: str
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "backups"
    archive.mkdir()
    options = [*BINLOG, *SMALL, "--loose-firn-txn-memory-limit=1048576"]
    options += ["--loose-firn-wal-segment-size=4194304", f"--loose-firn-log-archive-dir={archive}"]
    server = own_server(*options)
    create(server)
    rng = Random(seed)
    points = []
    with Writer(server, seed) as writer:
        time.sleep(0.5)
        back_up(server, target)
        for number, statement in enumerate(DDL):
            with server.connect(DATABASE) as session, session.cursor() as cursor:
                cursor.execute(statement)
            time.sleep(rng.uniform(0, 0.3))
            with writer.pause:
                points.append(look(server, statement))
            if number == len(DDL) // 2:
                back_up(server, target)
                if end == "killed":
                    with writer.pause:
                        writer.stop.set()
                    writer.thread.join()
                    server.kill()
                    server.start()
                    writer = Writer(server, seed + 1).__enter__()
        # The writer after the kill has had the second half of the statements only.
        deadline = time.monotonic() + WRITER_SECONDS_MAX
        while writer.done <= 5 and not writer.unexpected:
            assert time.monotonic() < deadline, writer.done
            time.sleep(0.05)
    if end == "killed":
        writer.__exit__()
    archived(server, target, archive)
    listed = firn("backups", target, "--archive", archive)
    assert len(listed["backups"]) == 2
    assert len(listed["archive"]) == 1, listed

    chosen = rng.sample(range(len(points)), POINTS)
    for number, at in enumerate(chosen):
        point = points[at]
        until = ["--until-time", point.time] if number % 2 else ["--until-binlog", point.binlog]
        copy, report = restore(own_server, target, archive, *until)
        expect_same(dump(copy, DATABASE), point.rows, f"{until} after {point.what}: {report}")
        found = frm_files(copy)
        assert found == point.frm, (until, point.what, found.keys(), point.frm.keys())
        for (table,) in copy.query(f"SHOW TABLES FROM {DATABASE}"):
            status = copy.query(f"CHECK TABLE {DATABASE}.`{table}` EXTENDED")
            assert status[-1][3] == "OK", (until, status)
        copy.destroy()

    # Pruning removes the log before the newest backup; later points stay reachable.
    pruned = firn("prune", target, "--keep", 1, "--archive", archive)
    assert pruned["archive"]["segments"] > 0, pruned
    copy, _ = restore(own_server, target, archive, "--until-time", points[-1].time)
    expect_same(dump(copy, DATABASE), points[-1].rows, "after prune")
    firn(
        "restore",
        target,
        "--to",
        tmp_path / "c",
        "--archive",
        archive,
        "--until-time",
        points[0].time,
        code=4,
    )


def test_partitions_that_were_changed_before_the_backup(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    """The engine does not see the definition that an ALTER of partitions leaves.

    A restore takes the one from the backup.
    """
    archive, target = tmp_path / "archive", tmp_path / "backups"
    archive.mkdir()
    server = own_server(*BINLOG, f"--loose-firn-log-archive-dir={archive}")
    server.query(f"CREATE DATABASE {DATABASE}")

    def less(name: str, bound: int) -> str:
        return f"PARTITION {name} VALUES LESS THAN ({bound})"

    def run(*statements: str) -> None:
        with server.connect(DATABASE) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    ranges = f"PARTITION BY RANGE (id) ({less('p0', 10)}, {less('p1', 50)}, {less('p2', 101)})"
    hashes = "PARTITION BY HASH (id) PARTITIONS 3"
    for table, parts in [("h", hashes), ("i", hashes), ("r", ranges), ("s", ranges), ("c", ranges)]:
        run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT) ENGINE=FIRN {parts}",
            f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_100",
        )
    run(
        "ALTER TABLE h ADD PARTITION PARTITIONS 1",
        "ALTER TABLE h ADD PARTITION PARTITIONS 1",
        "ALTER TABLE i ADD PARTITION PARTITIONS 2",
        "ALTER TABLE r DROP PARTITION p0",
        f"ALTER TABLE s REORGANIZE PARTITION p1, p2 INTO ({less('p1', 80)}, {less('p2', 101)})",
        "ALTER TABLE c CONVERT PARTITION p0 TO TABLE t",
    )
    words = ["definition", server.data / "#firn", f"{DATABASE}.h", tmp_path / "h.frm"]
    server.stop()
    assert "partitions of" in firn(*words, code=4)["error"]
    server.start()
    back_up(server, target)
    # These changes come after the backup: rows, an ALTER in place, which stores the definition
    # again, and a truncated partition.
    run(
        "INSERT INTO h VALUES (1000, 1)",
        "INSERT INTO t VALUES (0, 0)",
        "ALTER TABLE i COMMENT 'in place'",
        "ALTER TABLE r TRUNCATE PARTITION p1",
        "INSERT INTO r VALUES (20, 1)",
    )
    archived(server, target, archive)
    copy, _ = restore(own_server, target, archive, "--until-end")
    expect_same(dump(copy, DATABASE), dump(server, DATABASE), "partitions")
    assert frm_files(copy) == frm_files(server)
    for table in "hirsct":
        assert copy.query(f"CHECK TABLE {DATABASE}.{table} EXTENDED")[-1][3] == "OK"
    copy.destroy()
    # Partitions that are reorganized after the backup cannot be restored, even if their names stay.
    run(f"ALTER TABLE s REORGANIZE PARTITION p1, p2 INTO ({less('p1', 60)}, {less('p2', 101)})")
    archived(server, target, archive)
    words = ["restore", target, "--to", tmp_path / "never", "--archive", archive, "--until-end"]
    assert f"{DATABASE}.s" in str(firn(*words, code=4)["error"])


def test_what_cannot_be_reached_is_refused(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "backups"
    server = own_server(*BINLOG, f"--loose-firn-log-archive-dir={archive}")
    create(server)
    server.query(
        f"CREATE TRIGGER {DATABASE}.tr BEFORE INSERT ON {DATABASE}.sb " "FOR EACH ROW SET NEW.k = 7"
    )
    back_up(server, target)
    server.query(f"INSERT INTO {DATABASE}.sb VALUES (1, 1, REPEAT('x', 9000))")
    # The directory of the log archive does not exist, so the log is kept.
    server.query("SET GLOBAL firn_log_archive_timeout = 1")
    says(server, "the log is not archived")
    deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
    waiting = failures = 0
    while waiting == 0 or failures == 0:
        assert time.monotonic() < deadline, (waiting, failures)
        time.sleep(0.1)
        status = dict(server.query("SHOW STATUS LIKE 'firn_log_archive%'"))
        waiting = int(status["Firn_log_archive_waiting"])
        failures = int(status["Firn_log_archive_failures"])
    archive.mkdir()
    archived(server, target, archive)
    says(server, "the archive of the log is written again")

    def refused(*until: str, to: str = "never") -> str:
        words = ["restore", target, "--to", tmp_path / to, "--archive", archive, *until]
        return str(firn(*words, code=4)["error"])

    assert "archive ends" in refused("--until-seqno", "100000")
    assert "archive ends" in refused("--until-time", "2100-01-01 00:00:00")
    assert "archive ends" in refused("--until-binlog", "bin.000009:4")
    assert "lies before backup" in refused("--until-time", "2001-01-01 00:00:00")
    assert "no time" in refused("--until-time", "yesterday")

    copy, report = restore(own_server, target, archive, "--until-end")
    assert any("triggers" in note and f"{DATABASE}.sb" in note for note in report["notes"]), report
    assert copy.query(f"SELECT k, LENGTH(c) FROM {DATABASE}.sb") == ((7, 9000),)
    # The restored copy is another database, which must not continue the archive.
    copy.stop()
    copy.options.append(f"--loose-firn-log-archive-dir={archive}")
    copy.start()
    copy.query(f"INSERT INTO {DATABASE}.sb VALUES (2, 2, '')")
    copy.query("SET GLOBAL firn_log_archive_timeout = 1")
    says(copy, "archive of another database")

    # Add a partition that the backup does not contain.
    server.query(f"ALTER TABLE {DATABASE}.parts ADD PARTITION PARTITIONS 1")
    archived(server, target, archive)
    assert f"{DATABASE}.parts" in refused("--until-end", to="p")
    firn(
        "restore",
        target,
        "--to",
        tmp_path / "q",
        "--archive",
        archive,
        "--until-end",
        "--table",
        f"{DATABASE}.sb",
    )
    segments = sorted(archive.glob("*.wal"))
    shutil.move(segments[-2], tmp_path / "away")
    assert segments[-2].name in refused("--until-end", to="r")
