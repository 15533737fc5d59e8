"""Runs the suites on InnoDB and on FIRN and compares them test by test (scripts/frameworks.sh)."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outcomes import Comparison, compare, counts, load, load_reasons, slowest
from suites import HERE, SUITES, Suite, named

ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("FIRN_BUILD", ROOT / "build")) / "frameworks"
ENGINES = ("InnoDB", "FIRN")

# The creation of all tables of Django's suite comes before its first test.
TEST_SECONDS_MAX = 900.0

sys.path.insert(0, str(ROOT / "tests" / "sql"))
from server import Server, remove_scratch  # noqa: E402

# The suites create many tables, and no test depends on durability, so the servers do not sync.
FAST = {
    "InnoDB": ["--innodb-flush-log-at-trx-commit=0", "--sync-frm=0"],
    "FIRN": ["--innodb-flush-log-at-trx-commit=0", "--sync-frm=0", "--firn-flush-log-at-trx-commit=0"],
}


def outcomes_path(suite: Suite, engine: str) -> Path:
    """The record of the last run of a suite on an engine."""
    return BUILD / "results" / f"{suite.name}-{engine}.jsonl"


def source(suite: Suite) -> Path:
    """The suite's unpacked source distribution."""
    return next(iter(sorted((BUILD / "src").glob(suite.directory))))


def watch(process: subprocess.Popen[bytes], server: Server, outcomes: Path) -> str:
    """Waits until the suite ends. Returns what stops it before: the server died, or nothing happens any more.

    A suite whose server died would fail test after test, and some of them wait for it forever.
    """
    size, since = -1, time.monotonic()
    while process.poll() is None:
        if not server.running():
            return "THE SERVER DIED"
        found = outcomes.stat().st_size if outcomes.exists() else 0
        if found != size:
            size, since = found, time.monotonic()
        elif time.monotonic() - since > TEST_SECONDS_MAX:
            return f"NO TEST ENDED IN {TEST_SECONDS_MAX:.0f} s"
        time.sleep(0.2)
    return "" if server.running() else "THE SERVER DIED"


def run(suite: Suite, engine: str, tests: list[str]) -> bool:
    """Runs one suite on a new server; false if the server died or the suite recorded nothing."""
    path = outcomes_path(suite, engine)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    directory = source(suite)
    options = [f"--default-storage-engine={engine}", *FAST[engine], *suite.options]
    server = Server(options=options, engine=engine)
    log = path.with_suffix(".log")
    began = time.monotonic()
    try:
        server.start()
        for statement in suite.setup:
            server.query(statement)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{HERE}:{directory}:{source(SUITES['sqlalchemy']) / 'lib'}",
            "FRAMEWORKS_SOCKET": str(server.socket),
            "FRAMEWORKS_OUTCOMES": str(path),
        }
        with log.open("wb") as output:
            command = suite.command(engine, server.socket, tests)
            process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output)
            try:
                trouble = watch(process, server, path)
            finally:
                process.kill()
                process.wait()
        if trouble:
            print(f"{suite.name} on {engine}: {trouble}\n{server.log_tail()}", flush=True)
    finally:
        (path.with_suffix(".server.log")).write_text(server.log(), encoding="utf-8")
        server.destroy()
    if not path.exists():
        print(f"{suite.name} on {engine}: no test ran; see {log}", flush=True)
        return False
    seconds = time.monotonic() - began
    print(f"{suite.name} on {engine}: {counts(load(path))} ({seconds:.0f} s; {log})", flush=True)
    return not trouble


def show(suite: Suite, comparison: Comparison) -> None:
    """Prints the differences, the worst ones last."""
    titles = (
        ("other differences, which do not count", comparison.other),
        ("known differences", comparison.expected),
        ("FAILS ON FIRN ALONE", comparison.worse),
    )
    for title, tests in titles:
        if tests:
            print(f"\n{suite.name}: {title}: {len(tests)}")
            for test, line in tests.items():
                print(f"  {test}\n      {line}")


def main() -> int:
    """Exit status 1 if a test fails on FIRN alone, or if a suite could not be run or compared."""
    parser = argparse.ArgumentParser(prog="scripts/frameworks.sh", description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="only this one; may be repeated")
    parser.add_argument(
        "--engine",
        action="append",
        choices=ENGINES,
        help="run only this one, and take the other's outcomes from its last run; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="every folder of Django's tests, which takes hours")
    parser.add_argument("--slow", type=int, default=0, metavar="N", help="also name the N slowest tests per engine")
    parser.add_argument("tests", nargs="*", help="these tests instead of the suite's list (with one --suite)")
    arguments = parser.parse_args()
    chosen = [SUITES[name] for name in arguments.suite or SUITES]
    if arguments.tests and len(chosen) != 1:
        parser.error("tests need one --suite")
    # An ended run leaves no server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    reasons = load_reasons(HERE / "expected.txt")
    well = True
    try:
        for suite in chosen:
            tests = arguments.tests
            if suite.name == "django" and not tests and not arguments.all:
                tests = named(HERE / "django.txt")
            for engine in arguments.engine or ENGINES:
                well &= run(suite, engine, tests)
    finally:
        remove_scratch()
    for suite in chosen:
        paths = [outcomes_path(suite, engine) for engine in ENGINES]
        missing = [path for path in paths if not path.exists()]
        if missing:
            print(f"{suite.name}: not compared, because {missing[0].name} is not there")
            well = False
            continue
        for engine, path in zip(ENGINES, paths, strict=True):
            for seconds, test in slowest(path, arguments.slow):
                print(f"{suite.name} on {engine}: {seconds:.1f} s: {test}")
        comparison = compare(load(paths[0]), load(paths[1]), reasons)
        show(suite, comparison)
        well &= not comparison.worse
    print("\nok: no test fails on FIRN alone" if well else "\nFAILED")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
