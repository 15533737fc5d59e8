"""Builds a private tree of the server's own tests, in which FIRN is one more engine.

    overlay.py PACKAGES ROOT PLUGIN

PACKAGES holds the distribution's packages of the tests, of the same version as the server; they are
unpacked, not installed: mariadb-test depends on mariadb-server, whose scripts start a service. The
rest of ROOT are links to the installed server. Nothing outside ROOT changes.

- The suite `storage_engine` gets an overlay for FIRN: the suite's own mechanism for engines.
- The suites `innodb` and `rpl` are copied to `innodb_firn` and `rpl_firn`, where FIRN stands in the
  place of InnoDB. Only the tests of SELECTED are taken.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SYSTEM_BIN = Path("/usr/bin")
SYSTEM_SHARE = Path("/usr/share/mysql")
HERE = Path(__file__).resolve().parent

# The options of each server that runs converted tests.
OPTIONS = ["--plugin-load-add=ha_firn", "--ignore-db-dirs=#firn", "--innodb"]

# Tests of locking, of replication and of foreign keys, by suite.
SELECTED = {
    "innodb": re.compile(r".*(lock|deadlock|gap|semi-consistent).*|.*isolation.*|(add_)?foreign.*|truncate_foreign"),
    "rpl": re.compile(r"rpl_parallel.*|rpl_gtid.*|rpl_row_.*"),
}
# Tests of the suite `rpl` count only if they name the engine.
NAMES_ENGINE = re.compile(r"innodb", re.IGNORECASE)
# Tests that are left out: they use InnoDB's own files, statistics, reports or settings.
INNODB_ONLY = re.compile(
    r"alter_key_block_size.*|lock_memory(_debug)?|innodb_stats_drop_locked|deadlock_report|gap_locks|innodb_row_lock_time_ms"
    r"|innodb_i_s_innodb_locks|snapshot_isolation_race|auto_increment_lock_mode"
    r"|innodb_autoinc_lock_mode_zero|mon_lock_wait_current_count|xap_release_locks_on_dict_stats_table"
)

ENGINE_NAME = re.compile(
    r"((?:engine|storage_engine|engine_type|type)[`'\"]?\s*(?:=\s*|\s)\s*[`'\"]?)innodb\b",
    re.IGNORECASE,
)
# InnoDB's views of locks, and the setting that tests of locks change: FIRN has the same under its own name.
VIEWS = re.compile(r"\binnodb(?=_(?:trx|locks|lock_waits|deadlock_detect|deadlocks)\b)", re.IGNORECASE)
# The engine takes a session's timeout for InnoDB, not the server's: see docs/locks.md.
TIMEOUT = re.compile(r"--(?:loose-)?innodb[-_]lock[-_]wait[-_]timeout=(\d+)")
POSITIONS = re.compile(r"(gtid_slave_pos_|gtid_pos_auto_engines\s*=\s*[\"']?)innodb\b", re.IGNORECASE)


def unpack(packages: Path, root: Path) -> None:
    """Unpacks the packages into an empty tree."""
    shutil.rmtree(root, ignore_errors=True)
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def link(target: Path, name: Path) -> None:
    """Makes a link unless the name is taken."""
    name.parent.mkdir(parents=True, exist_ok=True)
    if not name.exists():
        name.symlink_to(target)


def link_server(usr: Path, plugin: Path) -> None:
    """Completes the tree with the installed server, its tools and messages, and the plugin."""
    server = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if server is None:
        raise SystemExit("mariadbd is not installed")
    link(Path(server), usr / "sbin" / "mariadbd")
    for tool in SYSTEM_BIN.iterdir():
        if re.match(r"maria|mysql|my_print_defaults|perror|resolveip|replace|innochecksum", tool.name):
            link(tool, usr / "bin" / tool.name)
    for entry in SYSTEM_SHARE.iterdir():
        link(entry, usr / "share" / "mysql" / entry.name)
    name = usr / "lib" / "mysql" / "plugin" / "ha_firn.so"
    name.unlink(missing_ok=True)
    link(plugin.resolve(), name)


def add_storage_engine(tests: Path) -> None:
    """The overlays of the suite `storage_engine`.

    The results in the package are older than the server, so InnoDB's overlay loses its list of
    differences: run.py records what InnoDB gives on this server.
    """
    innodb = tests / "plugin" / "innobase" / "storage_engine"
    firn = tests / "plugin" / "firn" / "storage_engine"
    for directory in (innodb, innodb / "trx", innodb / "parts"):
        for difference in directory.glob("*.rdiff"):
            difference.unlink()
        (directory / "suite.opt").write_text("--innodb\n--innodb-lock-wait-timeout=1\n")
        mine = firn / directory.relative_to(innodb)
        mine.mkdir(parents=True, exist_ok=True)
        options = [*OPTIONS, "--loose-firn-lock-wait-timeout=1"]
        (mine / "suite.opt").write_text("\n".join(options) + "\n")
        disabled = directory / "disabled.def"
        if disabled.exists():
            shutil.copy(disabled, mine)
    definition = (innodb / "define_engine.inc").read_text()
    (firn / "define_engine.inc").write_text(definition.replace("let $ENGINE = InnoDB;", "let $ENGINE = FIRN;"))


def converted(text: str, suite: str) -> str:
    """A test, result or include file in which FIRN takes the place of InnoDB."""
    text = ENGINE_NAME.sub(r"\1FIRN", text)
    text = POSITIONS.sub(r"\1FIRN", text)
    text = VIEWS.sub("firn", text.replace("--innodb-deadlock-detect", "--loose-firn-deadlock-detect"))
    text = TIMEOUT.sub(r"\g<0> --loose-firn-lock-wait-timeout=\1", text)
    return text.replace(f"suite/{suite}/", f"suite/{suite}_firn/")


def convert(source: Path, target: Path, suite: str) -> None:
    """Copies one file; files that are no text are copied as they are."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.write_text(converted(source.read_text(encoding="utf-8"), suite), encoding="utf-8")
    except UnicodeDecodeError:
        shutil.copy(source, target)


def selected(directory: Path, suite: str) -> Iterable[str]:
    """Names of the tests of a suite that are taken."""
    for path in sorted((directory / "t").glob("*.test")):
        name = path.stem
        if not SELECTED[suite].fullmatch(name) or INNODB_ONLY.fullmatch(name):
            continue
        if suite == "innodb" or NAMES_ENGINE.search(_with_includes(path, directory)):
            yield name


def _with_includes(path: Path, directory: Path) -> str:
    text = path.read_text(errors="replace")
    for name in re.findall(r"source\s+suite/\w+/include/(\S+)", text):
        include = directory / "include" / name.rstrip(";")
        text += include.read_text(errors="replace") if include.exists() else ""
    return text


def add_converted(tests: Path, suite: str) -> None:
    """Copies the selected tests of a suite, with what they need."""
    source, target = tests / "suite" / suite, tests / "suite" / f"{suite}_firn"
    names = set(selected(source, suite))
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_dir():
            continue
        test = re.split(r"[.,]", path.name)[0]
        of_a_test = inside.parts[0] in ("t", "r") and path.suffix != ".inc"
        # `name-master.opt` belongs to the test `name`.
        if of_a_test and re.sub(r"-(master|slave)$", "", test) not in names and test not in names:
            continue
        convert(path, target / inside, suite)
    options = target / "suite.opt"
    own = options.read_text().splitlines() if options.exists() else []
    options.write_text("\n".join([*own, *OPTIONS]) + "\n")


def main() -> None:
    """See the head of this file."""
    packages, root, plugin = (Path(argument) for argument in sys.argv[1:])
    unpack(packages, root)
    usr = root / "usr"
    link_server(usr, plugin)
    tests = usr / "share" / "mysql" / "mysql-test"
    add_storage_engine(tests)
    for suite in SELECTED:
        add_converted(tests, suite)


if __name__ == "__main__":
    main()
