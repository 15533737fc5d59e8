"""Sessions that update one row: their packets, their mix, the exact count, the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firn_lab import cli
from firn_lab.errors import LabError, UsageError
from firn_lab.hot_row.page import draw, growth, page
from firn_lab.hot_row.protocol import query_packet, reply_error
from firn_lab.hot_row.record import Result
from firn_lab.hot_row.sessions import QUERY_KILLED, TIMED_OUT, HotRow, Kind, Mix, Round
from firn_lab.processes import allow_descriptors
from firn_lab.targets import Target

OK = b"\x07\0\0\x01\0\x01\0\x02\0\0\0"
ERROR = b"\x09\0\0\x01\xff\xb5\x04#HY000"
# Less than the 50 s after which plain sessions time out, too.
BLOCKED_SECONDS_MAX = 45.0


def test_a_statement_is_one_packet() -> None:
    assert query_packet("DO 1") == b"\x05\0\0\0\x03DO 1"
    long = query_packet("x" * 300)
    assert (long[:3], len(long)) == (b"\x2d\x01\0", 305)


def test_replies() -> None:
    assert reply_error(OK) == 0
    assert reply_error(ERROR) == TIMED_OUT
    # The rest after the first packet is left alone: a killed connection is told so, too.
    assert reply_error(ERROR + ERROR) == TIMED_OUT
    for packet in (OK, ERROR):
        for length in range(len(packet)):
            assert reply_error(packet[:length]) is None
    for packet in (b"\x01\0\0\x01\x03", b"\0\0\0\x01", b"\x01\0\0\x01\xff"):
        with pytest.raises(LabError, match="answered an update"):
            reply_error(packet)


@pytest.mark.parametrize("sessions", [20, 500, 10_000])
def test_kinds_are_spread_over_the_sessions(sessions: int) -> None:
    mix = Mix(sessions, hasty=0.1, killed=0.2)
    for first in (0, sessions // 2):
        some = range(first, first + sessions // 2)
        for kind, part in ((Kind.HASTY, 0.1), (Kind.KILLED, 0.2), (Kind.PLAIN, 0.7)):
            count = sum(mix.kind(number) is kind for number in some)
            assert abs(count - part * len(some)) <= 2
    assert {Mix(100, 0, 0).kind(number) for number in range(100)} == {Kind.PLAIN}


@pytest.fixture
def row_of(innodb: Target) -> Callable[[Mix], HotRow]:
    innodb.create_database()

    def make(mix: Mix) -> HotRow:
        row = HotRow(innodb.connect, "innodb", mix)
        row.create()
        row.connect()
        return row

    return make


def round_that_commits(
    row: HotRow, seconds: float, processor_seconds: Callable[[], float] = lambda: 0.0
) -> Round:
    """A round with commits. Rounds without any are repeated, because the disk may be slow."""
    deadline = time.monotonic() + 60
    while (done := row.round(0.1, seconds, processor_seconds)).commits == 0:
        assert time.monotonic() < deadline, done
    return done


def test_the_count_is_exact_with_timeouts_and_kills(
    innodb: Target, row_of: Callable[[Mix], HotRow]
) -> None:
    mix = Mix(40, hasty=0.2, killed=0.3, kills_per_second=100)
    with row_of(mix) as row:
        with innodb.connect() as connection, connection.cursor() as cursor:
            # Another transaction holds the row, so that hasty sessions time out for sure.
            cursor.execute("BEGIN")
            cursor.execute("UPDATE hot SET n = n WHERE id = 1")
            errors: Counter[int] = Counter()
            deadline = time.monotonic() + BLOCKED_SECONDS_MAX
            while errors[TIMED_OUT] < 8 or errors[QUERY_KILLED] == 0:
                assert time.monotonic() < deadline, errors
                blocked = row.round(0.0, 1.5, drain=False)
                assert blocked.commits == 0
                assert blocked.latency is None
                errors += blocked.errors
            cursor.execute("ROLLBACK")
        done = round_that_commits(row, 1.0, lambda: 7.0)
        assert done.server_cpu_seconds == 0.0
        assert done.latency is not None
        assert row.check() == []
        assert len(row._sessions) == 41


def test_a_wrong_count_is_found(innodb: Target, row_of: Callable[[Mix], HotRow]) -> None:
    with row_of(Mix(10, hasty=0, killed=0.3, kills_per_second=0)) as row:
        round_that_commits(row, 0.2)
        assert row.check() == []
        innodb.query("UPDATE hot SET n = n + 1")
        (wrong,) = row.check()
        assert "the hot row counts" in wrong
        # A commit of a killed session that no answer tells of.
        number = next(n for n in range(10) if row._mix.kind(n) is Kind.KILLED)
        innodb.query("UPDATE own SET n = n + 1 WHERE id = %s", (number,))
        (wrong,) = row.check()
        assert f"session {number} counts" in wrong


def test_an_error_that_nothing_explains_ends_the_round(
    innodb: Target, row_of: Callable[[Mix], HotRow]
) -> None:
    with row_of(Mix(2, hasty=0, killed=0)) as row:
        innodb.query("DROP TABLE hot")
        with pytest.raises(LabError, match="plain session met error 1146"):
            row.round(0.0, 5.0)


def result(target: str, sessions: int, block: int, rate: float, cpu_us: float) -> Result:
    return Result(
        target, sessions, block, 2.0, int(2 * rate), rate, cpu_us, 0.1, 5, 9, 10, 11, 4, 2, 0.5, 2e9
    )


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    results = [
        result(name, sessions, block, rate * (1 + block / 10), cpu_us)
        for name, rate, cpu_us in (("innodb", 1000, 50.0), ("firn", 3000, 40.0))
        for sessions in (10, 1000)
        for block in range(3)
    ]
    results += [result("firn", 5000, 0, 3000, 80)]
    assert growth(results[-4:]) == 2
    text = page(results[:-1])
    assert "| 1,000 | firn | 3,300 | ×3.000 (3.000…3.000) | 40.0 |" in text
    assert "fewest: ×1.00" in text
    for name in ("a.svg", "a.png"):
        draw(results[:-1], tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    for options in (["--hasty", "0.6", "--killed", "0.6"], ["--sessions", str(1 << 40)]):
        assert cli.main(["hot-row", "--dir", str(tmp_path / "run"), *options]) == 1
    options = ["--targets", "dsn:mysql://root@nowhere", "--dir", str(tmp_path / "run")]
    assert cli.main(["hot-row", *options]) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="descriptors are needed"):
        allow_descriptors(1 << 40)


def test_the_command_in_small(tmp_path: Path) -> None:
    options = ["--targets", "engine:innodb", "--sessions", "5", "20", "--blocks", "2"]
    times = ["--seconds", "0.3", "--lead-seconds", "0.1", "--memory", "32"]
    places = ["--dir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    assert cli.main(["hot-row", *options, *times, *places]) == 0
    assert len((tmp_path / "out" / "rounds.jsonl").read_text().splitlines()) == 4
    assert "| 20 | innodb |" in (tmp_path / "out" / "hot-row.md").read_text()
    assert (tmp_path / "out" / "hot-row.svg").exists()
    assert list((tmp_path / "run").iterdir()) == []
