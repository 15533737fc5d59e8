"""The parser of sysbench's report, and the Zipf distribution."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import Heard, made, run_round

from firn_lab.clock import SystemClock
from firn_lab.errors import DiskFull, LabError, TargetDied, TargetError, UsageError
from firn_lab.targets import Budget, Target, make_target
from firn_lab.workloads import Outcome, Params, Second, make_workload
from firn_lab.workloads.sysbench import program as sysbench_program
from firn_lab.workloads.sysbench import workload as sysbench
from firn_lab.workloads.sysbench.program import LUA, failure, parse_outcome, parse_second

REPORT = """
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.500 |****                                     4
       1.000 |**************************************** 90
       7.000 |**                                       5
      90.000 |                                         1

SQL statistics:
    queries performed:
        read:                            1400
    transactions:                        100    (10.00 per sec.)
    queries:                             2000   (200.00 per sec.)
    ignored errors:                      3      (0.30 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          10.0012s
    total number of events:              100

Latency (ms):
         min:                                    0.42
         avg:                                    2.22
         max:                                   91.10
         95th percentile:                        7.00
         sum:                                  222.00
"""


def test_the_report_of_a_run() -> None:
    outcome = parse_outcome(REPORT)
    assert (outcome.transactions, outcome.queries, outcome.retries) == (100, 2000, 3)
    assert outcome.seconds == 10.0012
    latency = outcome.latency
    assert latency is not None
    assert (latency.average_ms, latency.max_ms) == (2.22, 91.1)
    assert (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.p999_ms) == (1, 7, 7, 90)
    with pytest.raises(LabError, match="no queries"):
        parse_outcome(REPORT.replace("queries:", "questions:"))


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (1114, "The table 'sbtest4' is full", DiskFull),
        (1021, "Disk full (/tmp)", DiskFull),
        (2013, "Lost connection to server during query", TargetDied),
        (1062, "Duplicate entry", TargetError),
    ],
)
def test_what_a_failure_means(number: int, text: str, kind: type[LabError]) -> None:
    line = (
        "FATAL: `thread_run' function failed: x.lua:61: SQL error, "
        f"errno = {number}, state = 'HY000': {text}"
    )
    query = f"FATAL: mysql_drv_query() returned error {number} ({text}) for query 'INSERT …'"
    target = make_target("dsn:mysql://h", Budget(), Path())
    found = failure(target, f"Threads started!\n{query}\n{line}\n{query}\n")
    assert type(found) is kind
    assert str(found) == f"sysbench on innodb@h:3306: {line}"


def test_a_program_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sysbench"
    program.write_text("#!/bin/sh\necho Threads started!\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sysbench_program, "GRACE_SECONDS", 0.05)
    target = make_target("dsn:mysql://h", Budget(), Path())
    with pytest.raises(LabError, match="did not end in time"):
        sysbench_program.run_sysbench(target, Path("x.lua"), [], {}, 1)


def test_the_report_of_a_second() -> None:
    line = (
        "[ 3s ] thds: 2 tps: 450.90 qps: 9018.07 (r/w/o: 6308.65/1801.62/907.80) "
        "lat (ms,95%): 6.32 err/s: 1.50 reconn/s: 0.00\n"
    )
    assert parse_second(line) == Second(2, 450.9, 9018.07, retries=1.5, p95_ms=6.32)
    assert parse_second("Threads started!\n") is None


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.2])
def test_rows_are_drawn_by_zipf(exponent: float, tmp_path: Path) -> None:
    rows, draws = 1000, 40_000
    script = tmp_path / "draw.lua"
    script.write_text("function event() print('r', sysbench.rand.default(1, 1000)) end\n")
    environment = {"FIRN_LAB_SCRIPT": str(script), "FIRN_LAB_ZIPF": str(exponent)}
    done = subprocess.run(
        [
            "sysbench",
            str(LUA / "zipf.lua"),
            f"--events={draws}",
            "--time=0",
            "--rand-seed=7",
            "run",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    drawn = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("r\t")]
    assert len(drawn) == draws
    assert min(drawn) >= 1
    assert max(drawn) <= rows
    counts = [count for _, count in Counter(drawn).most_common()]
    weights = [rank**-exponent for rank in range(1, rows + 1)]
    for first in (1, 10, 100):
        expected = sum(weights[:first]) / sum(weights)
        # Allow five standard deviations, and 0.02 more: the test ranks rows by their counts, so
        # rows with lucky draws get the first ranks and their sum is too high.
        slack = 5 * (expected * (1 - expected) / draws) ** 0.5 + 0.02
        assert sum(counts[:first]) / draws == pytest.approx(expected, abs=slack)
    # The popular rows are spread over the table.
    popular = [row for row, _ in Counter(drawn).most_common(10)]
    assert max(popular) - min(popular) > rows / 10


def test_rounds_of_tables_made_anew_have_draws_of_their_own_the_same_on_every_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[str] = []

    def run(target: Target, script: Path, options: list[str], *rest: object) -> Outcome:
        seeds.extend(option for option in options if option.startswith("--rand-seed="))
        return Outcome(1, 1, 1.0)

    monkeypatch.setattr(sysbench, "run_sysbench", run)
    workload = make_workload("oltp_delete", Params())
    for number in (0, 1, 2):
        for target in theirs("a", "b"):
            workload.measure(target, SystemClock(), Heard(), number)
    assert seeds[::2] == seeds[1::2]
    assert len(set(seeds)) == 3


def theirs(*hosts: str) -> list[Target]:
    return [make_target(f"dsn:mysql://{host}", Budget(), Path()) for host in hosts]


def test_clients_that_stay_have_the_same_draws_on_every_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[tuple[str, str]] = []

    class Fails(sysbench.Gated):
        def __init__(self, target: Target, script: Path, options: list[str], *rest: object) -> None:
            found = [option for option in options if option.startswith("--rand-seed=")]
            seeds.append((target.name, *found))

        def round(self, lead: float, seconds: float, sink: object) -> Outcome:
            if len(seeds) <= 2:
                return Outcome(1, 1, 1.0)
            raise TargetError("it is over")

        def end(self) -> None: ...

    monkeypatch.setattr(sysbench, "Gated", Fails)
    monkeypatch.setattr(sysbench, "run_sysbench", lambda *_: Outcome(1, 20, 1.0))
    workload = make_workload("oltp_update_index", Params())
    targets = theirs("a", "b")
    for number in (0, 1):
        for target in targets:
            workload.measure(target, SystemClock(), Heard(), number)
    assert len(seeds) == 2, "they stay"
    assert seeds[0][1] == seeds[1][1]
    # After an error the workload connects new clients, which draw from another seed.
    workload.leave(targets[0])
    for number in (2, 3):
        with pytest.raises(TargetError):
            workload.measure(targets[0], SystemClock(), Heard(), number)
    assert len({seed for _, seed in seeds}) == 3


def commits(target: Target) -> int:
    return int(target.query("SHOW GLOBAL STATUS LIKE 'Com_commit'")[0][1])


def await_clients(target: Target, number: int) -> None:
    """Waits until `number` sysbench threads are connected.

    The server takes a session off its list some time after the client has left, so a single look
    may see sessions of earlier queries.
    """
    deadline = time.monotonic() + 60
    with target.connect("lab") as connection, connection.cursor() as cursor:
        while True:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist"
                " WHERE db = 'lab' AND id <> CONNECTION_ID()"
            )
            found = cursor.fetchone()[0]
            if found == number:
                return
            assert time.monotonic() < deadline, f"{found} clients, not {number}"
            time.sleep(0.01)


def test_clients_wait_between_rounds(innodb: Target) -> None:
    """Every transaction belongs to one round and is counted, and no client connects again."""
    workload = made(innodb, "oltp_read_write", seconds=1.0, threads=3, tables=1, rows=1000)
    workload.warm(innodb, SystemClock())
    heard = Heard()
    first = workload.measure(innodb, SystemClock(), heard, 0)
    try:
        before = commits(innodb)
        time.sleep(0.1)
        assert commits(innodb) == before
        await_clients(innodb, 3)
        second = workload.measure(innodb, SystemClock(), heard, 1)
        assert commits(innodb) - before == second.all_transactions > 0
        await_clients(innodb, 3)
    finally:
        workload.leave(innodb)
    for outcome in (first, second):
        assert outcome.transactions > 0
        assert outcome.seconds >= 0.99
        assert outcome.queries == 20 * outcome.transactions
        assert outcome.latency is not None
        latency = outcome.latency
        assert 0 < latency.p50_ms <= latency.p95_ms <= latency.p99_ms <= latency.max_ms
        assert outcome.client_cpu_seconds is not None and outcome.client_cpu_seconds > 0
    assert [second.second for second in heard.seconds] == [0, 0]
    assert workload.check(innodb) == []
    await_clients(innodb, 0)


def test_clients_whose_statement_fails_say_so(innodb: Target) -> None:
    workload = made(innodb, "oltp_point_select", seconds=0.2, threads=2, tables=1, rows=100)
    workload.warm(innodb, SystemClock())
    workload.measure(innodb, SystemClock(), Heard(), 0)
    innodb.query("DROP TABLE sbtest1")
    with pytest.raises(TargetError, match="sbtest1"):
        workload.measure(innodb, SystemClock(), Heard(), 1)
    # The clients that connect after the failure fail, too.
    with pytest.raises(TargetError, match="sbtest1"):
        workload.measure(innodb, SystemClock(), Heard(), 2)


def test_another_seed_is_another_dataset() -> None:
    for name in ("oltp_read_only", "users", "tpcc", "shop", "blobs", "scan"):
        one, other = (make_workload(name, Params(seed=seed)) for seed in (1, 2))
        assert one.dataset != other.dataset


def test_scripts_that_read_one_table_have_one() -> None:
    one = make_workload("select_random_points", Params(options={"rows": "5"}))
    assert one.dataset == make_workload("oltp_read_only", Params(options={
        "rows": "5", "tables": "1"})).dataset  # fmt: skip
    with pytest.raises(UsageError, match="no option 'tables'"):
        make_workload("select_random_ranges", Params(options={"tables": "10"}))


def test_every_round_of_deletes_finds_all_rows(innodb: Target) -> None:
    workload = made(innodb, "oltp_delete", seconds=1, tables=1, rows=20_000)

    def rows() -> int:
        return int(innodb.query("SELECT COUNT(*) FROM sbtest1")[0][0])

    for number in range(2):
        workload.warm(innodb, SystemClock())
        # Before the first round the tables are as they were loaded, so `prepare` has nothing to do.
        assert workload.prepare(innodb, Heard()) == (number > 0)
        assert rows() == 20_000
        workload.measure(innodb, SystemClock(), Heard(), number)
        assert rows() < 20_000
    innodb.query("DELETE FROM sbtest1 WHERE id > 9000")
    assert "most rows are deleted" in " ".join(workload.check(innodb))


def test_one_table_is_read(innodb: Target) -> None:
    run_round(made(innodb, "select_random_points", seconds=1, rows=200), innodb)
