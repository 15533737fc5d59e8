"""Kills a server before a chosen step of a DDL statement (see file_steps.c)."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
from pathlib import Path

import pymysql
import pytest
from server import Server, scratch_root


@functools.cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = scratch_root() / "file_steps.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


class FileSteps:
    """Counts the steps of one server, and kills it before one of them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.control = server.directory / "steps"
        self._set(0, 0)
        server.environment |= {
            "LD_PRELOAD": str(_library()),
            "FIRN_STEP_FILE": str(self.control),
        }

    def _set(self, counting: int, last: int) -> None:
        with self.control.open("r+b" if self.control.exists() else "wb") as file:
            file.write(struct.pack("=III", counting, 0, last))

    def run(self, statements: list[str], last: int = 0) -> int:
        """Runs the statements in one session; the server dies before its step `last`.

        Returns the number of steps. The server is dead afterwards if it has reached the step.
        """
        session = self.server.connect("ddl")
        self._set(1, last)
        try:
            with session.cursor() as cursor:
                for sql in statements:
                    cursor.execute(sql)
        except pymysql.err.MySQLError:
            if self.server.running():
                assert self.server.process is not None
                self.server.process.wait(60)
        finally:
            (_, count, _) = struct.unpack("=III", self.control.read_bytes())
            self._set(0, 0)
        if last and count >= last:
            self.server.kill()
        return int(count)
