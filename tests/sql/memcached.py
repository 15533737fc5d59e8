"""Real memcached processes: nodes of the memory pool.

Each listens on a socket in the directory of the test run, so that tests that run at the same time
do not meet.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from base64 import b64encode
from pathlib import Path
from urllib.parse import unquote_to_bytes

from server import free_port, scratch_root

START_SECONDS_MAX = 20.0


def is_installed() -> bool:
    """Whether the distribution's package is there."""
    return shutil.which("memcached") is not None


class Memcached:
    """A node, running from the start."""

    _count = 0

    def __init__(
        self, megabytes: int = 64, refuses_blocks: bool = False, tls: Path | None = None
    ) -> None:
        """With `tls`, the directory of its certificates, it listens on a port instead."""
        Memcached._count += 1
        self.path = scratch_root() / f"m{Memcached._count}"
        # Nearly all memory holds values, whatever their length. Or no value is longer than 1 KiB.
        refusing = ["-I", "1k", "-o", "slab_chunk_max=1024"]
        self.options = refusing if refuses_blocks else ["-n", "2048", "-f", "1.07"]
        self.options += ["-m", str(megabytes)]
        self.port = 0
        if tls is None:
            self.options += ["-s", str(self.path)]
        else:
            self.port = free_port()
            self.options += ["-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-Z"]
            for option, file in (("chain_cert", "node.pem"), ("key", "node.key")):
                self.options += ["-o", f"ssl_{option}={tls / file}"]
            # Clients must show a certificate.
            self.options += ["-o", f"ssl_ca_cert={tls / 'ca.pem'}", "-o", "ssl_verify_mode=2"]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """The node as `firn_pool_nodes` names it."""
        return f"tls:127.0.0.1:{self.port}" if self.port else f"unix:{self.path}"

    def start(self) -> None:
        """Starts the process, which has no values, and waits until it answers."""
        assert self.process is None, "the node is running"
        self.path.unlink(missing_ok=True)
        options = ["-t", "1", *self.options]
        if os.geteuid() == 0:
            options += ["-u", "root"]
        self.process = subprocess.Popen(["memcached", *options])
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.answers():
            assert self.process.poll() is None, "memcached does not start"
            assert time.monotonic() < deadline, "memcached does not answer"
            time.sleep(0.01)

    def answers(self) -> bool:
        """Whether the process accepts connections."""
        family = socket.AF_INET if self.port else socket.AF_UNIX
        with socket.socket(family) as probe:
            try:
                probe.connect(("127.0.0.1", self.port) if self.port else str(self.path))
            except OSError:
                return False
            return True

    def kill(self) -> None:
        """Sends SIGKILL: connections are reset, values are gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Sends SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def values(self, count: int) -> list[bytes]:
        """Some values that the node has, at most `count`."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path))
            stream = connection.makefile("rwb")
            stream.write(b"lru_crawler metadump all\r\n")
            stream.flush()
            keys = []
            while (line := stream.readline().strip()) != b"END":
                # key=<bytes as in a URL> exp=…
                key = unquote_to_bytes(line.split()[0].removeprefix(b"key="))
                keys.append(b64encode(key))
            found = []
            for key in keys[:count]:
                # `b`: the key is in base64.
                stream.write(b"mg " + key + b" v b\r\n")
                stream.flush()
                status, *rest = stream.readline().split()
                if status == b"VA":
                    found.append(stream.read(int(rest[0]) + 2)[:-2])
            return found
