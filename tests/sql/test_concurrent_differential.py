"""Random schedules of sessions wait, return and fail on FIRN as on InnoDB.

A schedule is played on InnoDB, where each next statement is chosen among the sessions that do not
wait, and recorded; then it is played on FIRN. By default the same 30 schedules are played. `make
soak` sets FIRN_TEST_SCHEDULES_SECONDS and plays others for that time; FIRN_TEST_SEED repeats its
run. A difference counts only if two more recordings, each slower, show it again: on a busy machine
a statement may seem to wait. A schedule ends, and is counted, where one step wakes two sessions
that then race for one more lock.

Left out are differences that docs/compatibility.md names: from REPEATABLE READ on statements that
remove index entries, since InnoDB keeps them until purge; duplicates of unique secondary keys.
"""

from __future__ import annotations

import os
import re
import time
from random import Random

import golden_scripts
import pymysql
import pytest
from golden_scripts import EffectDiffers, Player, Script, Step
from server import ENGINE, Server

SECONDS = float(os.environ.get("FIRN_TEST_SCHEDULES_SECONDS", "0"))
SCHEDULES = 30
SETUP = [
    "CREATE TABLE t (id INT PRIMARY KEY, v INT, u INT, w INT, KEY v (v), UNIQUE KEY u (u))",
    "INSERT INTO t VALUES (10, 10, 10, 0), (20, 20, 20, 0), (30, 20, 30, 0), (40, 30, 40, 0)",
]
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"]
LOCKS = ["FOR UPDATE", "FOR UPDATE", "LOCK IN SHARE MODE", "", "FOR UPDATE NOWAIT"]
SESSIONS = "abc"
STEPS = 14
# For the recordings that repeat a difference: the time after which a statement counts as waiting,
# and how often FIRN plays the schedule. Two sessions that wait at every step do so for less than
# LOCK_WAIT_SECONDS. The last recording is played several times, so that it also finds a difference
# that comes and goes.
RECORDED_AGAIN = [(1.0, 1), (3.0, 4)]
# How often InnoDB plays a schedule again before FIRN's effects count as a difference.
REPETITIONS = 12
# An update that leaves the entries of the unique index on u as they are.
UPDATE_OF_V_OR_W = r"UPDATE (t FORCE INDEX \(\w+\)) SET ([vw]) = \2 \+ 1 WHERE (.*)"
LOCKING_READ = r"SELECT id FROM \1 WHERE \3 FOR UPDATE"


class Schedule:
    """Chooses random statements for the sessions."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.level = rng.choice(LEVELS)
        self.open: set[str] = set()

    def _where(self, column: str) -> str:
        low, high = sorted(self.rng.choices(range(5, 50, 5), k=2))
        choices = [
            f"{column} = {low}",
            f"{column} = {low}",
            f"{column} >= {low} AND {column} <= {high}",
            f"{column} > {low} AND {column} < {high + 5}",
            f"{column} <= {low}",
            f"{column} > {high}",
        ]
        return self.rng.choice(choices)

    def _select(self) -> str:
        index, column = self.rng.choice([("PRIMARY", "id"), ("v", "v"), ("u", "u")])
        order = self.rng.choice(["", "", f"ORDER BY {column}", f"ORDER BY {column} DESC"])
        limit = self.rng.choice(["", "", "LIMIT 1"]) if order else ""
        # NOWAIT is left out for secondary indexes: if it fails at the row, InnoDB keeps the lock of
        # the index entry and FIRN keeps nothing.
        lock = self.rng.choice(LOCKS if column == "id" else LOCKS[:-1])
        return (
            f"SELECT id, w FROM t FORCE INDEX ({index}) WHERE {self._where(column)} "
            f"{order} {limit} {lock}"
        )

    def _insert(self) -> str:
        number = self.rng.choice(range(5, 50, 5)) + self.rng.choice([0, 0, 1])
        value = self.rng.choice(range(5, 40, 5))
        return f"INSERT INTO t VALUES ({number}, {value}, {number}, 0)"

    def _update(self) -> str:
        index, column = self.rng.choice([("PRIMARY", "id"), ("v", "v"), ("u", "u")])
        return f"UPDATE t FORCE INDEX ({index}) SET w = w + 1 WHERE {self._where(column)}"

    def _remove(self) -> str:
        number = self.rng.choice(range(5, 50, 5))
        return self.rng.choice(
            [
                f"DELETE FROM t WHERE id = {number}",
                f"UPDATE t FORCE INDEX (PRIMARY) SET v = v + 1 WHERE id = {number}",
                f"UPDATE t FORCE INDEX (PRIMARY) SET u = u + 2 WHERE id = {number}",
            ]
        )

    def next(self, session: str) -> str:
        """The next statement of the session."""
        if session not in self.open and self.rng.random() < 0.8:
            self.open.add(session)
            return "BEGIN"
        if session in self.open and self.rng.random() < 0.15:
            self.open.discard(session)
            return self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        acts = [self._select, self._select, self._insert, self._insert, self._update]
        if self.level == "READ COMMITTED":
            acts.append(self._remove)
        return self.rng.choice(acts)()


def _first(session: str, level: str) -> list[Step]:
    return [
        Step(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"),
        # FIRN pushes no conditions into locking reads. InnoDB does, and then locks fewer rows.
        Step(session, "SET optimizer_switch = 'index_condition_pushdown=off'"),
    ]


def _record(server: Server, database: str, schedule: Schedule) -> Script:
    steps = [step for name in SESSIONS for step in _first(name, schedule.level)]
    script = Script([], list(SETUP), steps)

    def choose(player: Player) -> Step | None:
        free = [name for name in SESSIONS if name not in player.waiting]
        if not free or len(script.steps) >= STEPS + 2 * len(SESSIONS):
            return None
        session = schedule.rng.choice(free)
        return Step(session, schedule.next(session))

    Player(server, "InnoDB", database, record=True).play(script, choose)
    return script


def _difference(server: Server, database: str, script: Script) -> EffectDiffers | None:
    try:
        Player(server, ENGINE, database).play(script)
    except EffectDiffers as difference:
        return difference
    return None


def _is_about_a_deadlock(difference: EffectDiffers) -> bool:
    """Whether the engines differ at a step where InnoDB finds a deadlock, which is allowed.

    FIRN may choose another victim, or find no deadlock: entries of secondary indexes have no locks
    of their own, and the upgrade of a shared lock goes before requests that wait for it.
    """
    return any("1213" in line for line in difference.expected)


def _avoids_a_deadlock(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether the step, which does not wait for locks, would be a deadlock on InnoDB if it waited.

    Then FIRN grants the upgrade of a shared lock at once where InnoDB queues it behind a request
    that waits for the shared lock itself: the difference of `_is_about_a_deadlock`.
    """
    steps = script.steps[: difference.number]
    sql = steps[-1].sql.removesuffix(" NOWAIT")
    if sql == steps[-1].sql:
        return False
    patient = [Step(step.session, step.sql) for step in steps[:-1]]
    patient.append(Step(steps[-1].session, sql))
    _fresh(server, database)
    Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), patient))
    return any("1213" in line for line in patient[-1].expected)


def _finds_a_deadlock_earlier(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB finds the deadlock that FIRN has found when sessions outside of it commit.

    A request that waits for two sessions follows only one of them on InnoDB. If the deadlock is
    with the other one, it is found when the first one ends.
    """
    if not any("1213" in line for line in difference.found):
        return False
    steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
    begun = Script([], list(SETUP), steps)
    ends: list[str] = []

    def end(player: Player) -> Step | None:
        free = [name for name in SESSIONS if name not in player.waiting and name not in ends]
        ends.extend(free[:1])
        return Step(free[0], "COMMIT") if free else None

    _fresh(server, database)
    Player(server, "InnoDB", database, record=True).play(begun, end)
    return any(
        "1213" in line for step in begun.steps[difference.number :] for line in step.expected
    )


def _locks_what_it_has_changed(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB finds FIRN's deadlock if the session only locks rows that it changes here.

    InnoDB takes a session that has changed a row for the holder of the row's entries in secondary
    indexes, also of unchanged ones: it passes an entry that another session has locked. FIRN asks
    for the entry's lock.
    """
    if not any("1213" in line for line in difference.found):
        return False
    steps = [
        Step(step.session, re.sub(UPDATE_OF_V_OR_W, LOCKING_READ, step.sql))
        for step in script.steps[: difference.number]
    ]
    _fresh(server, database)
    try:
        Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), steps))
    except AssertionError:
        return False  # A session waits that has a further statement.
    return any("1213" in line for line in steps[-1].expected)


def _gap_grows_by_a_rollback(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB would end the same waits as FIRN if the session that rolls back committed.

    When a rollback takes an inserted entry out of an index, the gap lock of another session that
    ended at the entry grows to the entry before it on InnoDB, and an insert there goes on waiting.
    On FIRN the lock keeps the range that its statement has read.
    """
    expected, found = difference.expected, difference.found
    steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
    if steps[-1].sql != "ROLLBACK" or not set(expected) < set(found):
        return False
    steps[-1] = Step(steps[-1].session, "COMMIT")
    _fresh(server, database)
    Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), steps))
    return _ended_waits(found) == _ended_waits(steps[-1].expected)


def _reads_what_was_committed_meanwhile(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB meets the same rows as FIRN if it repeats the statement whose wait has ended.

    At READ COMMITTED, a scan that has waited for an entry goes on behind its last row on FIRN, and
    reads rows that were committed in front of the entry meanwhile. InnoDB goes on at the entry.
    """
    sessions = {line[0] for line in set(difference.found) ^ set(difference.expected)}
    if len(sessions) != 1 or not sessions < set(SESSIONS):
        return False
    (session,) = sessions
    steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
    own = [step.sql for step in steps if step.session == session]
    if not own[0].endswith("READ COMMITTED") or not own[-1].startswith(("SELECT", "UPDATE")):
        return False
    steps.append(Step(session, own[-1]))
    _fresh(server, database)
    Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), steps))
    prefix = f"{session}: "
    rows = [line.removeprefix(prefix) for line in difference.found if line.startswith(prefix)]
    return steps[-1].expected == rows


def _waits_for_a_waiting_scan(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether an insert waits on InnoDB only for requests that themselves wait.

    A descending scan that waits for an entry asks for the gap below it at the same time on InnoDB,
    and an insert waits behind this request. On FIRN the scan locks the gap when it has the entry.
    """
    if difference.expected != ["waits"] or not difference.found[0].endswith("changed"):
        return False
    session = script.steps[difference.number - 1].session
    asked = "b.trx_requested_lock_id <=> w.blocking_lock_id"
    blockers = _innodb_blockers(server, database, script, difference, session, asked)
    return bool(blockers) and all(blockers)


def _waits_for_a_gap_at_read_committed(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB lets inserts wait only for shared locks of gaps at READ COMMITTED.

    A scan takes no such lock. It arises where a rollback takes an inserted entry out of an index:
    the shared lock that another session has of the entry becomes one of the gap, and an insert of
    the same key goes on waiting. It also arises where a unique key is inserted again before purge
    has removed the entry of the deleted row: the check for duplicates locks the gap behind it.
    """
    sessions = _ended_waits(difference.found) - _ended_waits(difference.expected)
    if difference.expected == ["waits"] and difference.found[0].endswith("changed"):
        sessions.add(script.steps[difference.number - 1].session)
    if not sessions or not script.steps[0].sql.endswith("READ COMMITTED"):
        return False
    # A shared lock of the pseudo-record at the end of the index is one of the last gap. A request
    # for a gap waits for locks that are of a gap and an entry.
    asked = (
        "l.lock_mode = 'S,GAP' OR l.lock_mode = 'S' AND (l.lock_data LIKE 'supremum%' OR EXISTS "
        "(SELECT * FROM information_schema.innodb_locks q "
        "WHERE q.lock_id = w.requested_lock_id AND q.lock_mode = 'X,GAP'))"
    )
    blockers = [
        _innodb_blockers(server, database, script, difference, session, asked)
        for session in sessions
    ]
    return all(found and all(found) for found in blockers)


def _innodb_blockers(
    server: Server,
    database: str,
    script: Script,
    difference: EffectDiffers,
    session: str,
    asked: str,
) -> list[bool]:
    """Plays the steps up to the difference on InnoDB, and lists the locks that `session` waits for.

    `asked` is a condition on a lock `l` of a transaction `b`, for which another one waits.
    """
    steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
    answers: list[bool] = []

    def ask(player: Player) -> None:
        time.sleep(0.3)  # InnoDB answers from a copy of its tables that is up to 0.1 s old.
        sql = (
            f"SELECT {asked} FROM information_schema.innodb_lock_waits w "
            "JOIN information_schema.innodb_locks l ON l.lock_id = w.blocking_lock_id "
            "JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id "
            "JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id "
            f"WHERE r.trx_mysql_thread_id = {player.sessions[session].identifier}"
        )
        answers.extend(bool(row[0]) for row in server.query(sql))

    _fresh(server, database)
    Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), steps), ask)
    return answers


def _ended_waits(lines: list[str]) -> set[str]:
    return {line.split(":")[0] for line in lines[1:] if line[1:2] == ":"}


def _goes_second(server: Server, database: str, script: Script, difference: EffectDiffers) -> bool:
    """Whether one step woke several sessions, and one that ended its wait here holds up the others.

    On InnoDB the others went first. Here their waits must end when the transactions of those that
    went first end: a lost wakeup would not be mended by that.
    """
    expected, found = difference.expected, difference.found
    ended, ended_here = _ended_waits(expected), _ended_waits(found)
    late = ended - ended_here
    if expected[:1] != found[:1] or not ended_here or not ended_here < ended:
        return False
    steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
    begun = Script([], list(SETUP), steps)
    left = sorted(ended_here)

    def end(player: Player) -> Step | None:
        free = [name for name in left if name not in player.waiting]
        if not free:
            return None
        left.remove(free[0])
        return Step(free[0], "COMMIT")

    _fresh(server, database)
    Player(server, ENGINE, database, record=True).play(begun, end)
    effects = [step.expected for step in begun.steps[difference.number - 1 :]]
    return late <= set().union(*map(_ended_waits, effects))


def _innodb_does_the_same(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether InnoDB gives FIRN's effects when it plays the steps again.

    One step woke two sessions, and each needs a further lock: the scheduler decides which of them
    gets it first. An error of the other one may be seen one step late.
    """
    expected, found = difference.expected, difference.found
    for _ in range(REPETITIONS):
        steps = [Step(step.session, step.sql) for step in script.steps[: difference.number]]
        _fresh(server, database)
        try:
            Player(server, "InnoDB", database, record=True).play(Script([], list(SETUP), steps))
        except AssertionError:
            continue  # A session waits that has a further statement.
        own, effects = steps[-1].expected, set(steps[-2].expected[1:] + steps[-1].expected[1:])
        missing = set(expected[1:]) - set(found[1:])
        if own[:1] == found[:1] and effects >= set(found[1:]) and not effects & missing:
            return True
    return False


def _recorded_again(
    server: Server, database: str, script: Script, plays: int
) -> EffectDiffers | None:
    """The difference of one of the plays to another recording of the same statements on InnoDB."""
    _fresh(server, database)
    for step in script.steps:
        step.expected = []
    try:
        Player(server, "InnoDB", database, record=True).play(script)
    except AssertionError:
        return None  # Now another session waits, so the first recording was too fast.
    difference = None
    for _ in range(plays):
        _fresh(server, database)
        difference = difference or _difference(server, database, script)
    return difference


def _order_of_two_decides(
    server: Server, database: str, script: Script, difference: EffectDiffers
) -> bool:
    """Whether one step ended the waits of the same two sessions in both engines, in any order.

    What they then read or change depends on which of them goes first: FIRN has InnoDB's effects too
    when it plays the steps again.
    """
    ended = _ended_waits(difference.expected)
    if len(ended) < 2 or ended != _ended_waits(difference.found):
        return False
    steps = script.steps[: difference.number]
    for _ in range(REPETITIONS):
        _fresh(server, database)
        if not _difference(server, database, Script([], list(SETUP), steps)):
            return True
    return False


def _is_a_race(difference: EffectDiffers) -> bool:
    """Whether one step woke two sessions, and another of them went ahead in each engine.

    Both run at once and may need one more common lock, so the scheduler decides which of them gets
    it first. A wait that FIRN does not end at all is no race: each engine must have ended a wait
    that the other did not end.
    """
    expected, found = difference.expected, difference.found
    if expected[:1] != found[:1]:
        return False
    ended, ended_here = _ended_waits(expected), _ended_waits(found)
    first, first_here = ended - ended_here, ended_here - ended
    return bool(first and first_here) and first | first_here <= difference.waiting


def test_a_race_is_told_from_a_wait_that_does_not_end() -> None:
    def differs(expected: list[str], found: list[str]) -> EffectDiffers:
        return EffectDiffers("", 1, expected, found, {"a", "b"})

    assert _is_a_race(differs(["ok", "a: 3 changed"], ["ok", "b: 1 changed"]))
    assert not _is_a_race(differs(["ok", "a: 3 changed"], ["ok"]))
    assert not _is_a_race(differs(["ok"], ["ok", "b: 1 changed"]))
    assert not _is_a_race(differs(["ok", "a: 3 changed"], ["ok", "a: 2 changed"]))
    assert not _is_a_race(differs(["ok", "a: 3 changed"], ["waits", "b: 1 changed"]))
    assert not _is_a_race(differs(["ok", "a: 3 changed"], ["ok", "c: 1 changed"]))


@pytest.mark.skipif(ENGINE.upper() == "INNODB", reason="it compares an engine with InnoDB")
def test_random_schedules_agree_with_innodb(
    server: Server, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = time.monotonic() + SECONDS
    played = victims = races = 0
    while time.monotonic() < until if SECONDS else played < SCHEDULES:
        database = f"schedule_{played}"
        name = f"{seed if SECONDS else 'always'} {played}"
        server.query(f"CREATE DATABASE {database}")
        monkeypatch.setattr(golden_scripts, "WAIT_SECONDS", 0.08)
        try:
            script = _record(server, database, Schedule(Random(name)))
        except AssertionError:
            # The machine is busy, and a statement took so long that it seemed to wait.
            monkeypatch.setattr(golden_scripts, "WAIT_SECONDS", 5.0)
            _fresh(server, database)
            script = _record(server, database, Schedule(Random(name)))
        _fresh(server, database)
        difference = _difference(server, database, script)
        for seconds, plays in RECORDED_AGAIN:
            if difference and not _is_about_a_deadlock(difference):
                monkeypatch.setattr(golden_scripts, "WAIT_SECONDS", seconds)
                difference = _recorded_again(server, database, script, plays)
            if difference and (
                _is_about_a_deadlock(difference)
                or _avoids_a_deadlock(server, database, script, difference)
                or _finds_a_deadlock_earlier(server, database, script, difference)
                or _locks_what_it_has_changed(server, database, script, difference)
            ):
                victims += 1
                difference = None
            if difference and (
                _is_a_race(difference)
                or _goes_second(server, database, script, difference)
                or _gap_grows_by_a_rollback(server, database, script, difference)
                or _waits_for_a_waiting_scan(server, database, script, difference)
                or _waits_for_a_gap_at_read_committed(server, database, script, difference)
                or _reads_what_was_committed_meanwhile(server, database, script, difference)
                or _order_of_two_decides(server, database, script, difference)
                or _innodb_does_the_same(server, database, script, difference)
            ):
                races += 1
                difference = None
        assert not difference, _report(seed, played, difference, script)
        server.query(f"DROP DATABASE {database}")
        played += 1
    print(f"{played} schedules, {victims} ended by a deadlock, {races} by a race")
    assert played > 5
    assert races <= played / 4


def _report(seed: int, played: int, difference: EffectDiffers | None, script: Script) -> str:
    return f"seed {seed}, schedule {played}\n{difference}\n\n{script.format()}"


def _fresh(server: Server, database: str) -> None:
    for _ in range(50):
        try:
            server.query(f"SET STATEMENT lock_wait_timeout = 5 FOR DROP DATABASE {database}")
            break
        except pymysql.err.MySQLError:
            time.sleep(0.1)
    server.query(f"CREATE DATABASE {database}")
