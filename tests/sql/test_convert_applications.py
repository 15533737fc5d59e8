"""`firn convert` with the schemas of applications: there and back, and the dump is the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest
from application_schemas import ROWS_EACH, install, schemas
from server import IS_FIRN, Server
from test_backup import firn

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="firn convert is FIRN's")

SCHEMAS = schemas()


def dump(server: Server, engines: str) -> str:
    """Definitions and rows; the names of the given engines are blanked out."""
    command = ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "-uroot"]
    command += ["--skip-comments", "--skip-dump-date", "--hex-blob", "--order-by-primary", "app"]
    # Rows of a table without a key come in the order of the engine; one row is one line here.
    command += ["--skip-extended-insert"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return re.sub(f"ENGINE=({engines or '-'})", "ENGINE=…", done.stdout)


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_application_goes_to_firn_and_back(own_server: Callable[..., Server], name: str) -> None:
    server = own_server()
    install(server, "app", SCHEMAS[name])
    before = dump(server, "")
    assert before.count("INSERT INTO") >= ROWS_EACH
    blanked = dump(server, "FIRN|InnoDB")
    address = ["-S", server.socket, "-u", "root"]

    there = firn("convert", "app", *address)
    assert not there["failed"]
    assert not there["missing"]
    in_firn = dict(
        server.query(
            "SELECT ENGINE, COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'app'"
            " AND TABLE_TYPE = 'BASE TABLE' GROUP BY ENGINE"
        )
    )
    stay = [kept for kept in there["stay"] if "FULLTEXT" in kept["reason"]]
    assert in_firn.get("InnoDB", 0) == len(stay), there["stay"]
    assert in_firn["FIRN"] == len(there["converted"]) > 0
    assert dump(server, "FIRN|InnoDB") == blanked

    back = firn("convert", "app", "--to", "innodb", *address)
    assert not back["failed"]
    assert not back["missing"]
    assert len(back["converted"]) == len(there["converted"])
    assert dump(server, "") == before
