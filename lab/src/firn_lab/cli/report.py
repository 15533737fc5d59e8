"""Makes a report of a run: one HTML page, a Markdown file and pictures.

firn-lab report                          # the last run, into lab-results/run-N/
firn-lab report 3 --out docs/results/quick --raw --screenshot
firn-lab report --hour 0.10 --gb-month 0.08 --million-ios 0.20
"""

from __future__ import annotations

import argparse
from pathlib import Path

from firn_lab.cli.common import add_prices, add_store, prices_of
from firn_lab.errors import UsageError
from firn_lab.report.browser import screenshot
from firn_lab.report.html import html
from firn_lab.report.markdown import markdown
from firn_lab.report.report_data import collect
from firn_lab.store import Reader
from firn_lab.store.extract import extract

NAME = "report"
HELP = "an HTML page, a Markdown table and pictures of a run"
RAW, PICTURE = "raw.sqlite", "page.png"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last", metavar="RUN", help="an id, or last")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: run-N beside the store")
    parser.add_argument(
        "--raw", action="store_true", help=f"the run's raw numbers too: {RAW}, a store by itself"
    )
    parser.add_argument(
        "--screenshot", action="store_true", help=f"a picture of the page too: {PICTURE}"
    )
    add_store(parser)
    add_prices(parser)


def main(chosen: argparse.Namespace) -> int:
    prices = prices_of(chosen)
    with Reader(chosen.store) as store:
        report = collect(store, chosen.run, prices)
        out: Path = chosen.out or chosen.store.parent / f"run-{report.run.id}"
        if chosen.raw and (out / RAW).resolve() == chosen.store.resolve():
            raise UsageError(f"--raw would replace the store {chosen.store}: choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        made = [out / "index.html", out / "report.md"]
        # Imported here because the import takes half a second, which other commands should not pay.
        from firn_lab.report.png import pictures

        drawn = pictures(report, out)
        made[0].write_text(html(report), encoding="utf-8")
        made[1].write_text(markdown(report, [path.name for path in drawn]), encoding="utf-8")
        made += drawn
        if chosen.raw:
            made.append(out / RAW)
            extract(chosen.store, report.run.id, made[-1])
    if chosen.screenshot:
        made.append(out / PICTURE)
        screenshot(made[0], made[-1])
    for path in made:
        print(path)
    return 0
