"""A workload for tests: a small table, short rounds, and failures on demand."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any

from firn_lab.clock import Clock
from firn_lab.errors import DiskFull
from firn_lab.targets import Target
from firn_lab.workloads import WORKLOADS, Outcome, Sink, Workload
from firn_lab.workloads.driver import Done, drive


class TinySession:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def choose(self, random: Random) -> Callable[[], Done]:
        key = random.randrange(10)

        def transaction() -> Done:
            with self._connection.cursor() as cursor:
                cursor.execute("UPDATE tiny SET v = v + 1 WHERE id = %s", (key,))
            return Done("update", 1)

        return transaction

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@WORKLOADS.register("tiny")
class Tiny(Workload):
    """A small table. `fail` is the kind of failure in the second round on the target named by
    `on`."""

    summary = "for tests"
    options = {"fail": "", "on": "innodb"}

    def load(self, target: Target, sink: Sink) -> None:
        target.query(f"CREATE TABLE tiny (id INT PRIMARY KEY, v INT){target.create_suffix()}")
        target.query("INSERT INTO tiny VALUES " + ", ".join(f"({n}, 0)" for n in range(10)))
        sink.progress(1)

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        failure = self.option("fail") if (number, target.name) == (1, self.option("on")) else ""
        if failure == "kill":
            assert target.pid is not None
            os.kill(target.pid, signal.SIGKILL)
        elif failure == "statement":
            target.query("SELECT * FROM not_there")
        elif failure == "stall":
            target.query("SELECT SLEEP(600)")
        elif failure == "full":
            raise DiskFull("no space left for the test")
        elif failure == "interrupt":
            raise KeyboardInterrupt
        elif failure == "mistake":
            raise SystemError("a mistake")
        return drive(self.params, str(number), sink, lambda _: TinySession(target.connect()))

    def check(self, target: Target) -> list[str]:
        if self.option("fail") == "wrong" and target.name == self.option("on"):
            return ["two and two are five"]
        return []
