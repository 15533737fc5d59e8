"""The parts of the estimate, and the command on a small InnoDB server."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import conversions
import pytest

from firn_lab import cli
from firn_lab.cli.estimate import split_dsn
from firn_lab.errors import UsageError
from firn_lab.estimate import compress
from firn_lab.estimate import predict as predict_module
from firn_lab.estimate.blockers import of_server
from firn_lab.estimate.compress import Compressor, Stored, Tuning, raw_bytes, store, tunings
from firn_lab.estimate.entries import Entry, KeyPart, varint, weights
from firn_lab.estimate.predict import predict
from firn_lab.estimate.sample import Sample
from firn_lab.estimate.sample_starts import after, between
from firn_lab.estimate.schema import Column
from firn_lab.estimate.stored_blocks import cut, shape, split
from firn_lab.estimate.values import encoder, is_variable
from firn_lab.targets import Budget
from firn_lab.targets.target import Target, make_target


def column(kind: str, **more: object) -> Column:
    base: dict[str, object] = {
        "name": "c", "kind": kind, "type_text": kind, "nullable": False, "precision": 0, "scale": 0,
        "fraction": 0, "octets": 0, "charset": "", "collation": "", "virtual": False,
    }  # fmt: skip
    return Column(**{**base, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "value", "expected"),
    [
        (column("int"), "-2", "feffffff"),
        (column("bigint", type_text="bigint unsigned"), "258", "0201000000000000"),
        (column("decimal", precision=14, scale=4), "1234567890.1234", "810dfb38d204d2"),
        (column("decimal", precision=14, scale=4), "-1234567890.1234", "7ef204c72dfb2d"),
        (column("date"), "2020-02-03", "43c80f"),
        (column("datetime"), "2020-02-03 04:05:06", "99a5864146"),
        (column("datetime", fraction=3), "2020-02-03 04:05:06.789", "99a58641461ed2"),
        (column("timestamp"), "1580702706", "5e379bf2"),
        (column("time"), "-01:02:03", "7fef7d"),
        (column("year"), "2000", "64"),
        (column("enum", type_text="enum('a','b')"), "2", "02"),
        (column("bit", precision=10), b"\x03\x01", "0301"),
        (column("binary", octets=4), b"ab", "61620000"),
        (column("double"), "1", "000000000000f03f"),
        (column("inet6"), "::1", "00" * 15 + "01"),
    ],
)
def test_values_as_the_server_has_them(found: Column, value: object, expected: str) -> None:
    assert not is_variable(found)
    assert encoder(found)(value).hex() == expected
    assert encoder(found)(None) == bytes(len(expected) // 2)


def test_keys_sort_as_their_values() -> None:
    part = KeyPart(column("int", nullable=True), None)
    keys = [part.encode(value) for value in (None, "-5", "0", "7", "300")]
    assert keys == sorted(keys) and keys[0] == b"\0" and len(keys[1]) == 5
    double = KeyPart(column("double"), None)
    keys = [double.encode(value) for value in ("-2.5", "-1", "0", "1e-3", "8")]
    assert keys == sorted(keys)
    # The example of docs/formats/key.md.
    assert weights("a b", "latin1_swedish_ci").hex() == "41200342" + "2002"


def test_planes_hold_differences_where_these_are_small() -> None:
    items = [(1000 + n).to_bytes(4, "big") for n in range(16)]
    found = split(items, 4)
    assert found[0] == 0b1111
    assert len(found) == 1 + 4 * 16
    # The last byte grows by one from item to item, so its plane stores the first byte and
    # differences of 1.
    assert found[1 + 48 :] == bytes([0xE8]) + b"\1" * 15
    noise = [bytes(random.Random(n).randbytes(2)) for n in range(16)]
    assert split(noise, 2)[0] == 0


def entries(count: int, seed: int = 1) -> list[Entry]:
    chance = random.Random(seed)
    return [
        Entry(
            (7).to_bytes(4, "big") + n.to_bytes(4, "big"),
            b"\x01" + chance.randrange(100).to_bytes(4, "little"),
            varint(20) + chance.randbytes(10).hex().encode(),
        )
        for n in range(count)
    ]


def test_blocks_are_full_and_lose_nothing() -> None:
    rows = entries(2000)
    blocks = cut(rows)
    assert [entry for block in blocks for entry in block] == rows
    assert len({len(block) for block in blocks[:-1]}) <= 2
    shaped = shape(blocks[0], tail_planes=False)
    assert shaped.raw[shaped.tails_at :] == b"".join(entry.tail for entry in blocks[0])
    assert len(shape(blocks[0], tail_planes=True).raw) == len(shaped.raw) + (21 + 7) // 8


def test_trials_find_what_compresses_best() -> None:
    blocks = cut(entries(4000))
    best = tunings(blocks)[0]
    sizes = {
        tuning: sum(Compressor(tuning).stored(shape(b, tuning.tail_planes)) for b in blocks)
        for tuning in (Tuning(), Tuning(True), Tuning(long_matches=True), best)
    }
    assert sizes[best] <= min(sizes.values()) * 1.01
    # The rows have ten random bytes as twenty hexadecimal digits, which compression can at best
    # halve.
    assert sum(store(blocks, 1 << 20).sizes) / 4000 == pytest.approx(11.5, abs=1.5)


def test_noise_is_stored_as_it_is() -> None:
    chance = random.Random(1)
    rows = [Entry(chance.randbytes(16), b"", chance.randbytes(200)) for _ in range(500)]
    blocks = cut(sorted(rows, key=lambda each: each.key))
    raw = sum(len(shape(block, False).raw) for block in blocks)
    assert sum(store(blocks, 1e8).sizes) == raw + 16 * len(blocks)


def test_a_dictionary_is_stored_compressed() -> None:
    """The dictionary consists of hexadecimal digits, which compression halves."""
    chance = random.Random(1)
    words = [chance.randbytes(32).hex().encode() for _ in range(200)]
    blocks = cut(
        Entry((7).to_bytes(4, "big") + n.to_bytes(4, "big"), b"\x01", chance.choice(words))
        for n in range(5000)
    )
    stored = store(blocks, sum(map(raw_bytes, blocks)))
    assert 0 < stored.dictionary_bytes < 12 << 10


def test_a_close_choice_widens_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = entries(4000)
    sample = Sample([[(n, ()) for n in range(4000)]], 4000.0, 0.0, whole=True)
    sure = predict(sample, [rows])
    ways = iter([Stored([100.0], 500), Stored([50.0], 0)])
    monkeypatch.setattr(compress, "tunings", lambda blocks: [Tuning(), Tuning(True)])
    monkeypatch.setattr(compress, "_store", lambda *arguments: next(ways))
    found = store([], 0.0)
    assert (found.sizes, found.dictionary_bytes) == ([75.0], 500)
    assert found.open == pytest.approx(1 / 3)
    monkeypatch.setattr(predict_module, "store", lambda *arguments: Stored([300000.0], 0, 0.1))
    assert predict(sample, [rows]).error > sure.error + 25000


def test_a_small_file_may_be_a_block_more_or_less() -> None:
    sample = Sample([[(n, ()) for n in range(10)]], 10.0, 0.0, whole=True)
    assert predict(sample, [entries(10)]).error > 4096


def test_a_sample_predicts_the_whole() -> None:
    rows = entries(20000)
    whole = Sample([[(n, ()) for n in range(20000)]], 20000.0, 0.0, whole=True)
    exact = predict(whole, [rows])
    starts = range(0, 20000, 1000)
    runs = [rows[start : start + 500] for start in starts]
    part = Sample([[(0, ())]] * len(runs), 20000.0, 0.0, whole=False)
    found = predict(part, runs)
    assert found.bytes == pytest.approx(exact.bytes, rel=0.02)
    assert abs(found.bytes - exact.bytes) <= found.error
    unsure = Sample(part.runs, 20000.0, 0.3, whole=False)
    assert predict(unsure, runs).error > 0.3 * found.bytes


def test_starts_follow_the_order_of_the_index() -> None:
    a, b = column("int", name="a"), column("int", name="b", nullable=True)
    assert after([(a, None, "1"), (b, None, "2")]) == (
        "(`a` > %s OR (`a` = %s AND `b` >= %s))", [1, 1, 2],
    )  # fmt: skip
    assert after([(b, None, None), (a, None, "1")]) == (
        "(`b` IS NOT NULL OR (`b` IS NULL AND `a` >= %s))", [1],
    )  # fmt: skip
    name = column("varchar", name="n", charset="latin1", collation="latin1_bin")
    right = "CONVERT(%s USING latin1) COLLATE latin1_bin"
    assert after([(name, 10, b"x"), (a, None, "1")]) == (f"`n` >= {right}", [b"x"])


def test_starts_of_strings_are_spread_over_the_keys() -> None:
    chance = random.Random(3)
    keys = sorted(b"u-" + chance.randbytes(8).hex().encode() for _ in range(4000))

    def key_at(value: bytes) -> bytes | None:
        return next((key for key in keys if key >= value), None)

    places = [(n + 0.5) / 40 for n in range(40)]
    found = between(column("varchar"), keys[0], keys[-1], places, key_at)
    assert found is not None and len(found) == 40
    ranks = [sum(key < start for key in keys) / 4000 for start in found]
    assert all(abs(rank - place) < 0.05 for rank, place in zip(ranks, places, strict=True))
    assert between(column("double"), "1", "2", places, key_at) is None
    assert between(column("int"), "10", "12", places, key_at) == [10, 11]


def test_a_dsn_names_a_database() -> None:
    found = split_dsn("mysql://u:p@h:1/shop?engine=innodb")
    assert found == ("mysql://u:p@h:1?engine=innodb", "shop")
    assert split_dsn("mysql://root@/?socket=/s/k") == ("mysql://root@?socket=/s/k", None)
    assert split_dsn("dsn:mysql://h/shop") == ("mysql://h", "shop")
    with pytest.raises(UsageError):
        split_dsn("host")


ROWS = 4000
NAMES = ("orders", "sparse", "logs", "products")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Target]:
    budget = Budget(memory_bytes=32 << 20, durable=False)
    target = make_target("engine:innodb", budget, tmp_path_factory.mktemp("estimate"))
    target.start()
    try:
        target.create_database()
        for name in NAMES:
            make, rows = conversions.TABLES[name]
            target.query(f"CREATE TABLE {name} {make}")
            target.query(f"INSERT INTO {name} {rows.format(n=ROWS)}")
        target.analyze()
        yield target
    finally:
        target.destroy()


def estimate(
    server: Target, capsys: pytest.CaptureFixture[str], *more: str, expected: int = 0
) -> dict[str, dict[str, float]]:
    socket = server.address().socket
    command = ["estimate", "--dsn", f"mysql://root@/lab?socket={socket}", "--json", *more]
    assert cli.main(command) == expected
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def test_small_tables_are_counted(
    server: Target, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = estimate(server, capsys, "--chart", str(tmp_path / "chart.png"), "--gb-month", "0.1")
    assert set(found) == {f"lab.{name}" for name in NAMES} | {"total"}
    for name in NAMES:
        each = found[f"lab.{name}"]
        assert each["rows"] == ROWS
        assert 0 < each["firn"]["bytes"] < each["innodb_bytes"]  # type: ignore[index]
    assert (tmp_path / "chart.png").read_bytes()[:4] == b"\x89PNG"


def test_ranges_come_to_the_same(server: Target, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--table", "orders", "products", "--sample-mib", "1"]
    exact = estimate(server, capsys, *options)
    found = estimate(server, capsys, *options, "--scan-mib", "0", "--count")
    for name in ("lab.orders", "lab.products"):
        one, other = exact[name]["firn"], found[name]["firn"]
        assert found[name]["rows"] == ROWS
        assert other["bytes"] == pytest.approx(one["bytes"], rel=0.15)  # type: ignore[index]


def rows_read(server: Target) -> int:
    return sum(int(row[1]) for row in server.query("SHOW GLOBAL STATUS LIKE 'Handler_read%next'"))


def test_all_tables_together_stay_within_the_bound(
    server: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_read(server)
    everything = estimate(server, capsys)
    rows_of_all = rows_read(server) - before
    bytes_of_all = everything["total"]["read_bytes"]
    assert all(each["read_whole"] for name, each in everything.items() if name != "total")
    bound = bytes_of_all * 0.6
    some = estimate(server, capsys, "--total-mib", str(bound / 2**20), expected=1)
    left_out = {name for name, each in some.items() if each["problem"]}
    assert left_out and "--total-mib" in str(some[min(left_out)]["problem"])
    assert 0.2 * bytes_of_all < some["total"]["read_bytes"] <= bound
    assert rows_read(server) - before - rows_of_all < 0.8 * rows_of_all
    assert some["total"]["rows"] == (len(NAMES) - len(left_out)) * ROWS


def test_what_firn_refuses_is_named_for_each_table(
    server: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    server.query("CREATE SEQUENCE numbers")
    for name, (make, _) in conversions.REFUSED.items():
        server.query(f"CREATE TABLE {name} {make}")
    try:
        found = estimate(server, capsys)
        for name, (_, reasons) in conversions.REFUSED.items():
            assert found[f"lab.{name}"]["blockers"] == list(reasons)
        assert "lab.numbers" not in found
        assert all(found[f"lab.{name}"]["blockers"] == [] for name in NAMES)
        dsn = f"mysql://root@/lab?socket={server.address().socket}"
        assert cli.main(["estimate", "--dsn", dsn, "--table", "thai", "words", "history"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "lab.thai: FIRN refuses" not in out
        assert "with: FULLTEXT index t_words; FULLTEXT index u" in out
        assert "not estimated: system versioning" in out
    finally:
        server.query("DROP SEQUENCE numbers")
        for name in ("child", *conversions.REFUSED):
            server.query(f"DROP TABLE IF EXISTS {name}")


def test_settings_that_firn_does_not_work_with() -> None:
    def server(values: dict[str, str]) -> tuple[str, ...]:
        return of_server(lambda statement, arguments: list(values.items()))

    assert server({"binlog_format": "STATEMENT", "log_bin": "ON", "wsrep_on": "OFF"}) == ()
    assert server({"wsrep_on": "ON"}) == ("Galera replication (wsrep_on)",)


def test_statistics_that_are_out_of_date_promise_nothing(
    server: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has grown since the statistics, and the user may not see file sizes."""
    server.query("CREATE USER reader@localhost")
    server.query("GRANT SELECT ON lab.* TO reader@localhost")
    server.query(
        "CREATE TABLE grown (id INT PRIMARY KEY, c CHAR(200)) "
        "STATS_PERSISTENT=1 STATS_AUTO_RECALC=0"
    )
    try:
        server.query("ANALYZE TABLE grown")
        server.query("INSERT INTO grown SELECT seq, SHA2(seq, 512) FROM seq_1_to_5000")
        place = f"/lab?socket={server.address().socket}"
        more = ("--table", "grown", "logs", "--gb-month", "0.1")
        assert cli.main(["estimate", "--dsn", f"mysql://reader@{place}", *more, "--json"]) == 0
        found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
        assert found["lab.grown"]["stale"] and not found["lab.logs"]["stale"]
        assert found["lab.grown"]["rows"] == 5000
        assert found["total"]["rows"] == ROWS
        assert cli.main(["estimate", "--dsn", f"mysql://reader@{place}", *more]) == 0
        out = capsys.readouterr().out
        assert "-" not in "".join(re.findall(r"(\S+)%", out))
        (line,) = [line for line in out.splitlines() if line.startswith(" lab.grown")]
        assert line.split("5,000")[1].count("?") == 3
        assert "lab.grown: InnoDB's statistics are out of date" in out
        # A user with the privilege gets the file's size instead.
        assert cli.main(["estimate", "--dsn", f"mysql://root@{place}", *more, "--json"]) == 0
        found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
        assert not found["lab.grown"]["stale"]
        assert found["lab.grown"]["innodb_bytes"] > found["lab.grown"]["firn"]["bytes"]
    finally:
        server.query("DROP TABLE grown")
        server.query("DROP USER reader@localhost")


def test_nothing_can_be_written(server: Target) -> None:
    from firn_lab.cli.estimate import connect, query_of
    from firn_lab.errors import LabError

    connection = connect(f"mysql://root@/?socket={server.address().socket}", 0.5)
    try:
        with pytest.raises(LabError, match="READ ONLY"):
            query_of(connection)("DELETE FROM lab.orders", ())
        with pytest.raises(LabError, match="max_statement_time"):
            query_of(connection)("SELECT SLEEP(60)", ())
    finally:
        connection.close()


def test_a_large_table_without_order_says_so(
    server: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = server.address().socket
    server.query("CREATE TABLE floats (f DOUBLE PRIMARY KEY)")
    server.query("INSERT INTO floats VALUES (1), (2)")
    try:
        dsn = f"mysql://root@/lab?socket={socket}"
        command = ["estimate", "--dsn", dsn, "--scan-mib", "0", "--gb-month", "0.1"]
        assert cli.main([*command, "--table", "floats", "logs"]) == 1
        out = capsys.readouterr().out
        assert "begins with double" in out and "without a primary key" in out
        assert cli.main(["estimate", "--dsn", dsn, "--gb-month", "0.1", "--table", "logs"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "saved a month" in lines[0] and lines[1].startswith(" lab.logs  4,000")
        assert lines[1].rstrip().endswith("USD")
    finally:
        server.query("DROP TABLE floats")


def test_what_is_not_there_is_told_before_anything_is_read(
    server: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(database: str, *more: str) -> str:
        dsn = f"mysql://root@/{database}?socket={server.address().socket}"
        assert cli.main(["estimate", "--dsn", dsn, *more]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        return said.err.splitlines()[-1]

    missing = "there is no InnoDB table typo in lab"
    assert told("lab", "--table", "logs", "typo").endswith(missing)
    assert "the server has no database nowhere" in told("nowhere")
    server.query("CREATE DATABASE bare", database="")
    assert "there is no InnoDB table in bare" in told("bare")
