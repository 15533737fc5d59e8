"""Any server of the MySQL protocol: `dsn:mysql://user:password@host:port?engine=innodb`.

`?socket=/path` instead of a host. Everything happens in the database `lab` of that server. One that
is there already is not touched: the run ends with a message (drop it yourself, or let the lab do so
with `&replace=1`).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from firn_lab.errors import TargetError, UsageError
from firn_lab.targets.base import DATABASE, TARGETS, Address, Budget, Target
from firn_lab.targets.mysql import ForeignTarget

_KNOWN = {"engine", "name", "socket", "replace"}


class DsnTarget(ForeignTarget):
    """Refuses to take a database `lab` that somebody else has made."""

    replace = False
    _ours = False

    def create_database(self, database: str = DATABASE) -> None:
        if not self._ours and not self.replace:
            rows = self.query(
                "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (database,), ""
            )
            if rows:
                raise TargetError(
                    f"{self.name} has a database {database} already: drop it, or add &replace=1 "
                    "to the dsn to have it dropped"
                )
        self._ours = True
        super().create_database(database)

    def destroy(self) -> None:
        if self._ours:
            super().destroy()


@TARGETS.register("dsn")
def dsn(argument: str, budget: Budget, scratch: Path) -> Target:
    """dsn:mysql://user:password@host:port?engine=innodb: any server, used as it is."""
    url = urlsplit(argument)
    options = {key: values[-1] for key, values in parse_qs(url.query).items()}
    if url.scheme not in ("mysql", "mariadb") or set(options) - _KNOWN:
        raise UsageError(
            f"dsn:{argument}: write dsn:mysql://user:password@host:port?engine=innodb "
            f"(known after the ?: {', '.join(sorted(_KNOWN))})"
        )
    engine = options.get("engine", "innodb").lower()
    name = url.hostname or "127.0.0.1"
    # An address of IPv6 has colons of its own.
    name = f"[{name}]" if ":" in name else name
    place = options.get("socket") or f"{name}:{url.port or 3306}"
    address = Address(
        "mysql",
        unquote(url.username or "root"),
        DATABASE,
        unquote(url.password or ""),
        Path(options["socket"]) if "socket" in options else None,
        url.hostname or "127.0.0.1",
        url.port or 3306,
    )
    # The same server again, but for the password, which stays out of the record.
    host = "" if address.socket else place
    again = urlencode({**options, "engine": engine}, safe="/")
    spec = f"dsn:mysql://{quote(address.user, safe='')}@{host}?{again}"
    target = DsnTarget(options.get("name", f"{engine}@{place}"), spec, address, engine)
    target.replace = options.get("replace") == "1"
    return target
