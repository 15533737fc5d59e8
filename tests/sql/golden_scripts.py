"""Golden scripts of several sessions: the result of each statement, and which statements wait.

A script is text. It begins with lines `setup: SQL`. Then follow steps `session: SQL`, each with
indented lines that describe its effect:

    a: UPDATE t SET v = 11 WHERE id = 1
      1 changed
    b: UPDATE t SET v = 12 WHERE id = 1
      waits
    a: COMMIT
      ok
      b: 1 changed

A row is written `1|10`, an empty result `empty`, an error as number and name. A line `b: …` below
another session's step is the end of b's wait. `deadlock with b` means that exactly one of the
statements in the cycle fails with 1213 and one continues at once; the engine may choose the victim.
In SQL, $b stands for the connection id of session b, and $LOCK_WAIT_TIMEOUT for the engine's
session variable. `a: DISCONNECT` closes the connection.

The expectation also determines how long the player waits: a statement that should return gets a
long timeout, a statement that should wait is observed for WAIT_SECONDS. So a slow machine causes no
false failure.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pymysql
from pymysql.constants import ER
from server import LOCK_WAIT_TIMEOUTS, Server

WAIT_SECONDS = 0.5
RETURN_SECONDS_MAX = 60.0
# Longer than the above, so that a statement that should return and waits is seen to wait.
LOCK_WAIT_SECONDS = 90

ERROR_NAMES = {
    number: name for name, number in vars(ER).items() if isinstance(number, int) and name.isupper()
}
CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@dataclass
class Step:
    """One statement of one session, with the lines that describe its effect."""

    session: str
    sql: str
    expected: list[str] = field(default_factory=list)


@dataclass
class Script:
    """A parsed script; `head` holds its leading comments."""

    head: list[str]
    setup: list[str]
    steps: list[Step]

    @staticmethod
    def parse(text: str) -> Script:
        """Parses a script. Raises ValueError for a line of unknown form."""
        script = Script([], [], [])
        for line in text.splitlines():
            if not line.strip():
                continue
            if line.startswith("#"):
                script.head.append(line)
            elif line.startswith("  "):
                script.steps[-1].expected.append(line.strip())
            elif line.startswith("setup: "):
                script.setup.append(line.removeprefix("setup: "))
            else:
                session, colon, sql = line.partition(": ")
                if not colon:
                    raise ValueError(f"not a step: {line!r}")
                script.steps.append(Step(session, sql))
        return script

    def format(self) -> str:
        """The script as text."""
        lines = [*self.head, *(f"setup: {sql}" for sql in self.setup), ""]
        for step in self.steps:
            lines.append(f"{step.session}: {step.sql}")
            lines += [f"  {line}" for line in step.expected]
        return "\n".join(lines) + "\n"


class Session:
    """A connection, and a thread that executes its statements and may block."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self.connection = connection
        self.identifier = connection.thread_id()
        self.work: SimpleQueue[tuple[str, Future[list[str]]] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def send(self, sql: str) -> Future[list[str]]:
        """Starts a statement; the future gives its result as lines."""
        result: Future[list[str]] = Future()
        self.work.put((sql, result))
        return result

    def close(self) -> None:
        """Ends the thread and closes the connection."""
        self.work.put(None)
        self.thread.join(RETURN_SECONDS_MAX)

    def _loop(self) -> None:
        while (item := self.work.get()) is not None:
            sql, result = item
            try:
                result.set_result(self._execute(sql))
            except Exception as error:
                result.set_exception(error)
        if self.connection.open:
            self.connection.close()

    def _execute(self, sql: str) -> list[str]:
        if sql == "DISCONNECT":
            self.connection.close()
            return ["ok"]
        with self.connection.cursor() as cursor:
            try:
                count = cursor.execute(sql)
            except pymysql.err.MySQLError as error:
                number = int(error.args[0])
                if number in (0, 2006, 2013):
                    return ["connection lost"]
                return [f"error {number} {ERROR_NAMES.get(number, '')}".strip()]
            if cursor.description is None:
                return [f"{count} changed"] if sql.upper().startswith(CHANGES) else ["ok"]
            rows = ["|".join("NULL" if v is None else str(v) for v in row) for row in cursor]
            return rows or ["empty"]


class EffectDiffers(AssertionError):
    """A step had another effect than the script expects.

    `number` counts the steps from 1; `waiting` names the sessions that waited before the step.
    """

    def __init__(
        self, text: str, number: int, expected: list[str], found: list[str], waiting: set[str]
    ) -> None:
        super().__init__(text)
        self.number = number
        self.expected = expected
        self.found = found
        self.waiting = waiting


class Player:
    """Plays one script with tables of one engine in a fresh database.

    With `record` it records the effects instead of comparing them.
    """

    def __init__(self, server: Server, engine: str, database: str, record: bool = False) -> None:
        self.server = server
        self.engine = engine
        self.database = database
        self.record = record
        self.sessions: dict[str, Session] = {}
        self.waiting: dict[str, Future[list[str]]] = {}
        self.timeout_variable = LOCK_WAIT_TIMEOUTS.get(engine.upper(), "lock_wait_timeout")

    def play(self, script: Script, choose: Callable[[Player], Step | None] | None = None) -> None:
        """Runs the script, then steps that `choose` returns until it returns none.

        Raises EffectDiffers if the engine behaves differently.
        """
        try:
            for sql in script.setup:
                lines = self._session("setup").send(self._substitute(sql)).result(60)
                assert not lines[0].startswith("error"), f"setup {sql!r}: {lines}"
            for number, step in enumerate(script.steps, 1):
                self._play_step(number, step)
            while choose and (step := choose(self)):
                script.steps.append(step)
                self._play_step(len(script.steps), step)
        finally:
            self._end()

    def _play_step(self, number: int, step: Step) -> None:
        waiting = set(self.waiting)
        found = self._observe(step)
        if self.record:
            step.expected = found
        if found != step.expected:
            text = (
                f"{self.engine}, step {number}, {step.session}: {step.sql}\n"
                f"  expected {step.expected}\n  found    {found}"
            )
            raise EffectDiffers(text, number, step.expected, found, waiting)

    def _end(self) -> None:
        for name in self.waiting:
            with contextlib.suppress(pymysql.err.MySQLError):
                self.server.query(f"KILL {self.sessions[name].identifier}")
        for session in self.sessions.values():
            session.close()

    def _session(self, name: str) -> Session:
        if name not in self.sessions:
            connection = self.server.connect(self.database)
            with connection.cursor() as cursor:
                cursor.execute(f"SET default_storage_engine = {self.engine}")
                cursor.execute(f"SET {self.timeout_variable} = {LOCK_WAIT_SECONDS}")
            self.sessions[name] = Session(connection)
        return self.sessions[name]

    def _substitute(self, sql: str) -> str:
        for name, session in self.sessions.items():
            sql = sql.replace(f"${name} ", f"{session.identifier} ")
            if sql.endswith(f"${name}"):
                sql = sql[: -len(name) - 1] + str(session.identifier)
        return sql.replace("$LOCK_WAIT_TIMEOUT", self.timeout_variable)

    def _observe(self, step: Step) -> list[str]:
        """Runs a step; returns its effect as lines in the form of a script."""
        assert step.session not in self.waiting, f"{step.session} is waiting: {step.sql}"
        future = self._session(step.session).send(self._substitute(step.sql))
        deadlock = [line for line in step.expected if line.startswith("deadlock with ")]
        if deadlock:
            return self._deadlock(future, deadlock[0])
        sleeps = step.sql.startswith("DO SLEEP")
        if (self.record and not sleeps) or step.expected == ["waits"]:
            lines = self._wait(future, WAIT_SECONDS)
        else:
            lines = self._wait(future, RETURN_SECONDS_MAX)
        if lines == ["waits"]:
            self.waiting[step.session] = future
        return lines + self._wakened(step)

    def _wait(self, future: Future[list[str]], seconds: float) -> list[str]:
        try:
            return future.result(seconds)
        except TimeoutError:
            return ["waits"]

    def _wakened(self, step: Step) -> list[str]:
        """The results of other sessions' statements whose waits this step has ended, as lines.

        The results that the script expects get more time to arrive.
        """
        lines: list[str] = []
        expected = {line.split(": ")[0] for line in step.expected if ": " in line}
        for name in sorted(self.waiting):
            if name == step.session:
                continue
            patient = name in expected
            seconds = RETURN_SECONDS_MAX if patient else WAIT_SECONDS if self.record else 0.0
            found = self._wait(self.waiting[name], seconds)
            if found != ["waits"]:
                del self.waiting[name]
                lines += [f"{name}: {line}" for line in found]
        return lines

    def _deadlock(self, future: Future[list[str]], line: str) -> list[str]:
        """`line` if the deadlock ended as it says, otherwise the results that the sessions got."""
        cycle = {"": future}
        for name in line.removeprefix("deadlock with ").split(", "):
            cycle[name] = self.waiting.pop(name)
        deadline = time.monotonic() + RETURN_SECONDS_MAX
        victims: list[str] = []
        winners: list[str] = []
        while time.monotonic() < deadline and not (victims and winners):
            time.sleep(0.02)
            ended = {name: each.result() for name, each in cycle.items() if each.done()}
            victims = [name for name, result in ended.items() if result[0][:10] == "error 1213"]
            winners = [name for name, result in ended.items() if result[0][:5] != "error"]
        for name, each in cycle.items():
            if name and not each.done():
                self.waiting[name] = each
        if len(victims) == 1 and winners and len(victims) + len(winners) == len(ended):
            return [line]
        return [f"{name or 'this'}: {result}" for name, result in ended.items()] or ["all wait"]


def load(path: Path) -> Script:
    """Reads a script."""
    return Script.parse(path.read_text())
