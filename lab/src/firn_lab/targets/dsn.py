"""Any server of the MySQL protocol: `dsn:mysql://user:password@host:port?engine=innodb`.

`?socket=/path` replaces the host. The lab uses only the database `lab` of that server. If it exists
already, the lab does not touch it and the run ends with a message: drop it, or permit the lab to
drop it with `&replace=1`.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit

from firn_lab.errors import TargetError, UsageError
from firn_lab.targets.mysql import ForeignTarget
from firn_lab.targets.target import DATABASE, TARGETS, Address, Budget, Target

_KNOWN = {"engine", "name", "socket", "replace"}


class DsnTarget(ForeignTarget):
    """A foreign server that refuses to replace a database `lab` that it did not create."""

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
    try:
        url, options = _parse(argument)
    except ValueError as error:
        raise UsageError(
            f"dsn:{redacted(argument)}: {error}; write "
            "dsn:mysql://user:password@host:port?engine=innodb (known after the ?: "
            f"{', '.join(sorted(_KNOWN))}; / ? # % in a password as %2F %3F %23 %25)"
        ) from None
    engine = options.get("engine", "innodb").lower()
    name = url.hostname or "127.0.0.1"
    # An IPv6 address contains colons, so it needs brackets.
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
    # Make a spec that names the same server without the password, because the spec is recorded.
    host = "" if address.socket else place
    again = urlencode({**options, "engine": engine}, safe="/")
    spec = f"dsn:mysql://{quote(address.user, safe='')}@{host}?{again}"
    target = DsnTarget(options.get("name", f"{engine}@{place}"), spec, address, engine)
    target.replace = options.get("replace") == "1"
    return target


def _parse(argument: str) -> tuple[SplitResult, dict[str, str]]:
    """Splits the dsn. Raises ValueError with a description of the mistake."""
    try:
        url = urlsplit(argument)
    except ValueError:
        raise ValueError("it cannot be read") from None
    if url.scheme not in ("mysql", "mariadb"):
        raise ValueError("it is none of mysql://")
    try:
        _ = url.port
    except ValueError:
        raise ValueError("the port is no number from 0 to 65535") from None
    if "@" in url.path or url.fragment:
        raise ValueError("the address ends before an @")
    options = {key: values[-1] for key, values in parse_qs(url.query, True).items()}
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        # If the query has an @, the unknown key may be the end of a password, so do not print the
        # key.
        what = "what is" if "@" in url.query else f"{', '.join(unknown)}"
        raise ValueError(f"{what} behind the ? is not known")
    return url, options


def redacted(text: str) -> str:
    """The text with the password of a dsn replaced.

    If the dsn cannot be parsed, the end of the password is uncertain: then everything up to the
    last @ is replaced.
    """
    head, separator, rest = text.partition("://")
    try:
        url = _parse(f"mysql://{rest}")[0]
    except ValueError:
        user, colon, secret = rest.partition(":")
        place = secret[secret.rfind("@") :] if "@" in secret else ""
        return f"{head}{separator}{user}:…{place}" if colon else text
    if not separator or url.password is None:
        return text
    user, place = (url.netloc.partition(":")[0], url.netloc.rpartition("@")[2])
    return f"{head}://{user}:…@{place}{rest[len(url.netloc) :]}"
