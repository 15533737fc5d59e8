"""Runs groups of the server's own tests on FIRN and compares the results with the expected ones.

    run.py [--update] ROOT WORK [GROUP...]

ROOT is the tree that overlay.py has built, WORK takes logs and data directories. Each group has a
file `expected/GROUP.txt`: the number of its tests, and a line with status and reason for each test
that does not pass. Every difference from it ends the run with an error, also a test that passes
now, so that the files stay true. `--update` writes the results found; lines that are new get the
reason `?`, which a person replaces.

The expected output of the suite `storage_engine` is recorded from InnoDB on this server once: the
results in the package are older than the server. The other groups compare with the results in the
package, in which FIRN stands in the place of InnoDB where a test names the engine. The originals
of tests that fail run on InnoDB afterwards, so that a test that it fails here, too, is known as such.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
STORAGE_ENGINE = ["storage_engine", "storage_engine/trx", "storage_engine/parts"]

# The suites that overlay.py converts, by group.
CONVERTED = {
    "innodb": ["innodb", "main"],
    "rpl": ["rpl"],
    "tables": ["gcol", "vcol", "versioning", "period", "parts", "sql_sequence", "handler"],
}
ENGINES = ["--suite=engines/funcs,engines/iuds", "--mysqld=--innodb", "--mysqld=--partition"]

# Arguments of mtr for each group.
GROUPS: dict[str, list[str]] = {
    "storage_engine": ["--suite=" + ",".join(f"{suite}-firn" for suite in STORAGE_ENGINE)],
    "engines": [
        *ENGINES,
        "--combination=--default-storage-engine=FIRN",
        "--mysqld=--plugin-load-add=ha_firn",
        "--mysqld=--ignore-db-dirs=#firn",
    ],
    **{group: ["--suite=" + ",".join(f"{suite}_firn" for suite in suites)] for group, suites in CONVERTED.items()},
}
STATUS = {"PASSED": "pass", "FAILED": "fail", "SKIPPED": "skip", "DISABLED": "skip"}
CASE = re.compile(
    r'<testcase [^>]*classname="([^"]*)" name="([^"]*)" status="MTR_RES_(\w+)"'
    r'[^>]*combinations="([^"]*)"[^>]*>(?:\s*<(?:skipped|disabled) message="([^"]*)")?'
)
EXPECTED = re.compile(r"(\S+) +(\S+(?: \[[^\]]*\])?) +(.*)")


@dataclass
class Result:
    """The outcome of a test. For a skipped test, `message` is the reason that mtr gives."""

    status: str
    message: str = ""


@dataclass
class Expected:
    """The kept results of a group: those of tests that do not pass, with their reasons."""

    tests: int = 0
    suites: list[str] = field(default_factory=list)
    lines: dict[str, tuple[str, str]] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Expected:
        """Reads a file. Raises ValueError for a line of unknown form."""
        expected = Expected()
        for line in path.read_text().splitlines() if path.exists() else []:
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("tests "):
                expected.tests = int(line.split()[1])
                continue
            match = EXPECTED.fullmatch(line)
            if match is None or match[1] not in ("fail", "skip", "any"):
                raise ValueError(f"{path}: {line!r}")
            expected.lines[match[2]] = (match[1], match[3])
        return expected

    def write(self, path: Path) -> None:
        """Writes the file in the order of the tests' names."""
        width = max((len(name) for name in self.lines), default=0)
        lines = [f"tests {self.tests}", *self.suites]
        lines += [f"{status:4} {name:{width}} {reason}" for name, (status, reason) in sorted(self.lines.items())]
        path.write_text("\n".join(lines) + "\n")

    def differences(self, found: dict[str, Result]) -> list[str]:
        """The differences between the results found and the expected ones, a line for each."""
        lines = []
        if len(found) != self.tests:
            lines.append(f"{len(found)} tests ran, {self.tests} are expected")
        for name in sorted(found.keys() | self.lines.keys()):
            expected, reason = self.lines.get(name, ("pass", ""))
            status = found[name].status if name in found else "missing"
            if expected not in ("any", status):
                lines.append(f"{name}: {status}, expected {expected} {reason}".rstrip())
            if reason == "?":
                lines.append(f"{name}: the reason is missing")
        return lines

    def updated(self, found: dict[str, Result], innodb: dict[str, Result]) -> Expected:
        """The results found, with the reasons that are known or that InnoDB's results give."""
        kept = Expected(len(found), [f"# {line}" for line in by_suite(found)])
        for name, result in found.items():
            before, reason = self.lines.get(name, ("", ""))
            if before == "any" or (result.status == before and reason != "?"):
                kept.lines[name] = (before, reason)
            elif result.status != "pass":
                too = "InnoDB fails, too" if fails(innodb.get(name)) else "?"
                kept.lines[name] = (result.status, result.message or too)
        return kept


def fails(result: Result | None) -> bool:
    """Whether there is a result, and it is a failure."""
    return result is not None and result.status == "fail"


def by_suite(found: dict[str, Result]) -> list[str]:
    """How many tests of each suite passed, failed and were skipped."""
    suites: dict[str, Counter[str]] = {}
    for name, result in found.items():
        suites.setdefault(name.split(".")[0], Counter())[result.status] += 1
    return [
        f"{suite}: " + ", ".join(f"{counts[status]} {status}" for status in ("pass", "fail", "skip"))
        for suite, counts in sorted(suites.items())
    ]


def mtr(root: Path, work: Path, log: Path, *arguments: str) -> str:
    """Runs mtr; returns the report of its results. Raises SystemExit if it makes none."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = ["perl", "./mtr", "--force", "--max-test-fail=0", "--retry=0", "--testcase-timeout=4"]
    command += [f"--vardir={work / 'var'}", f"--xml-report={report}"]
    command += [f"--parallel={os.environ.get('MTR_PARALLEL', '2')}", *arguments]
    tests = root / "usr" / "share" / "mysql" / "mysql-test"
    with log.open("w") as output:
        # mtr may write to a worker of its own that has ended; SIGPIPE would then end the run.
        done = subprocess.run(command, cwd=tests, stdout=output, stderr=output, check=False, restore_signals=False)
    if not report.exists():
        raise SystemExit(f"mtr ended with {done.returncode} and without results: {log}")
    return report.read_text(errors="replace")


def results(report: str) -> dict[str, Result]:
    """The results in a report, by test; a test that runs in several ways counts for each."""
    found = {}
    for suite, name, status, ways, message in CASE.findall(report):
        ways = ways.strip()
        result = Result(STATUS.get(status, status), html.unescape(message))
        found[f"{suite}.{name}" + (f" [{ways}]" if ways else "")] = result
    return found


def record(root: Path, work: Path) -> None:
    """Records what InnoDB gives in the suite `storage_engine`, unless that is done."""
    done = root / "recorded"
    if done.exists():
        return
    tests = root / "usr" / "share" / "mysql" / "mysql-test"
    for suite in STORAGE_ENGINE:
        names = sorted(path.stem for path in (tests / "suite" / suite).glob("*.test"))
        log = work / f"record-{Path(suite).name}.log"
        report = mtr(root, work, log, f"--suite={suite}-innobase", "--record", *names)
        failed = [name for name, result in results(report).items() if result.status == "fail"]
        if failed:
            raise SystemExit(f"InnoDB fails in {suite}: {failed} ({log})")
    done.touch()


def on_innodb(root: Path, work: Path, group: str, failed: list[str]) -> dict[str, Result]:
    """What InnoDB gives in tests that failed on FIRN, by the names that they have there."""
    log = work / f"{group}-innodb.log"
    if group == "storage_engine" or not failed:
        return {}  # The expected output is InnoDB's own.
    tests = {name.split(" ")[0] for name in failed}
    if group == "engines":
        engine = "--combination=--default-storage-engine="
        report = mtr(root, work, log, *ENGINES, engine + "InnoDB", *sorted(tests))
        return {name.replace("engine=InnoDB", "engine=FIRN"): result for name, result in results(report).items()}
    found = results(mtr(root, work, log, *sorted(name.replace("_firn.", ".") for name in tests)))
    return {name.replace(".", "_firn.", 1): result for name, result in found.items()}


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    arguments.work.mkdir(parents=True, exist_ok=True)
    bad = False
    for group in arguments.groups or list(GROUPS):
        if group == "storage_engine":
            record(arguments.root, arguments.work)
        log = arguments.work / f"{group}.log"
        found = results(mtr(arguments.root, arguments.work, log, *GROUPS[group]))
        failed = [name for name, result in found.items() if result.status == "fail"]
        innodb = on_innodb(arguments.root, arguments.work, group, failed)
        both = sum(fails(innodb.get(name)) for name in failed)
        print(f"{group}: {both} tests fail on both engines ({log})", flush=True)
        print("".join(f"  {line}\n" for line in by_suite(found)), end="", flush=True)
        path = HERE / "expected" / f"{group}.txt"
        expected = Expected.read(path)
        if arguments.update:
            expected.updated(found, innodb).write(path)
        else:
            differences = expected.differences(found)
            bad |= bool(differences)
            print("".join(f"  {line}\n" for line in differences), end="")
    raise SystemExit(bad)


if __name__ == "__main__":
    main()
