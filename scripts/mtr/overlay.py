"""Builds a private tree of the server's own tests, in which FIRN is one more engine.

    overlay.py PACKAGES ROOT PLUGIN

PACKAGES holds the distribution's packages of the tests, of the same version as the server; they are
unpacked, not installed: mariadb-test depends on mariadb-server, whose scripts start a service. The
rest of ROOT are links to the installed server. Nothing outside ROOT changes.

- The suite `storage_engine` gets an overlay for FIRN: the suite's own mechanism for engines.
- The suites of SELECTED are copied, `innodb` to `innodb_firn` and so on, and FIRN stands in the place
  of InnoDB there. Only the tests that SELECTED names are taken. The originals stay beside them, and
  run.py runs them on InnoDB.
- Files that these tests include from elsewhere, and that name InnoDB as the engine of a table, are
  copied to the folder INCLUDES.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM_BIN = Path("/usr/bin")
SYSTEM_SHARE = Path("/usr/share/mysql")
HERE = Path(__file__).resolve().parent

# The options of each server that runs converted tests.
OPTIONS = ["--plugin-load-add=ha_firn", "--ignore-db-dirs=#firn", "--innodb"]

# The tests that are taken, by suite: of locking, replication, foreign keys and kinds of tables.
SELECTED = {
    "innodb": re.compile(
        r".*(lock|deadlock|gap|semi-consistent).*|.*isolation.*|(add_|alter_|truncate_)?foreign.*"
        r"|(stored_|innodb-(get-|index-online-)?)?fk.*"
    ),
    "main": re.compile(r"foreign_key.*|.*_fk|(multi_update|delete|update|insert|deadlock)_innodb"),
    "rpl": re.compile(r"rpl_parallel.*|rpl_gtid.*|rpl_row_.*"),
    "gcol": re.compile(r".*"),
    "vcol": re.compile(r".*"),
    "versioning": re.compile(r".*"),
    "period": re.compile(r".*"),
    "parts": re.compile(r".*"),
    "sql_sequence": re.compile(r".*"),
    "handler": re.compile(r".*"),
}
# Except in the suite `innodb`, tests count only if they or what they include of their suite name the engine.
NAMES_ENGINE = re.compile(r"innodb", re.IGNORECASE)
INCLUDES = "include_firn"
# Includes from elsewhere that stay as they are: they ask what the server has, or wait for InnoDB's purge.
ABOUT_SERVER = re.compile(r"(have|no|not|maybe|default)_.*|wait_all_purged.inc")
SOURCE = re.compile(r"^\s*(?:--\s*)?source\s+([^\s;$]+)", re.IGNORECASE | re.MULTILINE)
# Tests that are left out: they use InnoDB's own files, statistics, reports or settings.
INNODB_ONLY = re.compile(
    # These compare engines, or name InnoDB without use of it.
    r".*_myisam|vcol_utf32|"
    r"alter_key_block_size.*|lock_memory(_debug)?|innodb_stats_drop_locked|deadlock_report|gap_locks|innodb_row_lock_time_ms"
    r"|innodb_i_s_innodb_locks|snapshot_isolation_race|auto_increment_lock_mode"
    r"|innodb_autoinc_lock_mode_zero|mon_lock_wait_current_count|xap_release_locks_on_dict_stats_table"
)

ENGINE_NAME = re.compile(
    r"((?:engine|storage_engine|engine_(?:type|table|part|subpart)|type)[`'\"]?\s*(?:={1,2}\s*|\s)\s*[`'\"]{0,2})innodb\b",
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


@dataclass
class Suite:
    """A suite of the server and the copy of it in which FIRN takes the place of InnoDB."""

    tests: Path
    name: str
    # Includes from outside the suite that are copied, by the names that tests use.
    includes: dict[str, Path] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The folder of the suite; `main` lies beside the others."""
        return self.tests / self.name if self.name == "main" else self.tests / "suite" / self.name

    @property
    def target(self) -> Path:
        """The folder of the copy."""
        return self.tests / "suite" / f"{self.name}_firn"

    def add(self) -> None:
        """Copies the selected tests, with what they need."""
        names = set(self.selected())
        for path in self.source.rglob("*"):
            inside = path.relative_to(self.source)
            if path.is_dir():
                continue
            test = re.split(r"[.,]", path.name)[0]
            in_a_folder_of_tests = inside.parts[0] in ("t", "r") or (self.source / test).with_suffix(".test").exists()
            # An include may have combinations and options, too.
            of_an_include = path.suffix not in (".test", ".result") and (path.parent / f"{test}.inc").exists()
            of_a_test = in_a_folder_of_tests and not of_an_include
            # `name-master.opt` belongs to the test `name`.
            if of_a_test and re.sub(r"-(master|slave)$", "", test) not in names and test not in names:
                continue
            self.convert(path, self.target / inside)
        for name, path in self.includes.items():
            self.convert(path, self.tests / INCLUDES / name)
        options = self.target / "suite.opt"
        own = options.read_text().splitlines() if options.exists() else []
        options.write_text("\n".join([*own, *OPTIONS]) + "\n")

    def selected(self) -> Iterable[str]:
        """Names of the tests that are taken. Notes the includes that they need."""
        for path in sorted([*self.source.glob("t/*.test"), *self.source.glob("*.test")]):
            name = path.stem
            if not SELECTED[self.name].fullmatch(name) or INNODB_ONLY.fullmatch(name):
                continue
            files = [path, *(file for file in self.included(path, {path}) if file.is_relative_to(self.source))]
            texts = [file.read_text(errors="replace") for file in files]
            if self.name == "innodb" or any(NAMES_ENGINE.search(text) for text in texts):
                self.note_includes(path, set())
                yield name

    def sources(self, path: Path) -> Iterable[tuple[str, Path]]:
        """The files that a file includes, with the names that it uses; names made of variables are left out."""
        for name in SOURCE.findall(path.read_text(errors="replace")):
            for folder in (self.tests, self.source, path.parent):
                if (folder / name).is_file():
                    yield name, (folder / name).resolve()
                    break

    def included(self, path: Path, seen: set[Path]) -> set[Path]:
        """All files that a file includes, also by way of others."""
        for _, include in self.sources(path):
            if include not in seen:
                seen.add(include)
                self.included(include, seen)
        return seen

    def note_includes(self, path: Path, seen: set[Path]) -> bool:
        """Notes which includes from outside the suite to copy: those that use the engine, or include such a file.

        Returns whether this file is one.
        """
        uses = ENGINE_NAME.search(path.read_text(errors="replace")) is not None
        for name, include in self.sources(path):
            if include in seen or ABOUT_SERVER.fullmatch(include.name):
                continue
            seen.add(include)
            elsewhere = include == self.tests / name and not include.is_relative_to(self.source)
            if self.note_includes(include, seen) and elsewhere:
                self.includes[name] = include
                uses = True
        return uses

    def convert(self, source: Path, target: Path) -> None:
        """Copies one file; files that are no text are copied as they are."""
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            text = source.read_text(encoding="utf-8")
            if source.suffix == ".combinations":
                text = without_other_engines(text)
            if source.name == "disabled.def":
                text = re.sub(rf"^{self.name}\.", f"{self.name}_firn.", text, flags=re.MULTILINE)
            text = self.converted(text)
            if source.suffix == ".combinations":
                text = text.replace(" --loose-firn", "\n--loose-firn")  # An option a line.
            target.write_text(text, encoding="utf-8")
        except UnicodeDecodeError:
            shutil.copy(source, target)

    def converted(self, text: str) -> str:
        """A test, result or include file in which FIRN takes the place of InnoDB."""
        text = ENGINE_NAME.sub(r"\1FIRN", text)
        text = POSITIONS.sub(r"\1FIRN", text)
        text = VIEWS.sub("firn", text.replace("--innodb-deadlock-detect", "--loose-firn-deadlock-detect"))
        text = TIMEOUT.sub(r"\g<0> --loose-firn-lock-wait-timeout=\1", text)
        for name in self.includes:
            text = re.sub(rf"(source\s+){re.escape(name)}\b", rf"\1{INCLUDES}/{name}", text)
        return text.replace(f"suite/{self.name}/", f"suite/{self.name}_firn/")


def without_other_engines(text: str) -> str:
    """Combinations of options without those of other engines, if some are for InnoDB.

    FIRN refuses versioning by transactions (docs/compatibility.md), so that combination goes too.
    """
    sections = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    if not any(NAMES_ENGINE.search(section) for section in sections):
        return text
    return "".join(s for s in sections if NAMES_ENGINE.search(s) and not s.startswith("[trx_id]"))


def main() -> None:
    """See the head of this file."""
    packages, root, plugin = (Path(argument) for argument in sys.argv[1:])
    unpack(packages, root)
    usr = root / "usr"
    link_server(usr, plugin)
    tests = usr / "share" / "mysql" / "mysql-test"
    add_storage_engine(tests)
    for name in SELECTED:
        Suite(tests.resolve(), name).add()


if __name__ == "__main__":
    main()
