"""Makes a report of a run: one HTML page, a Markdown file and pictures.

firn-lab report                          # the last run, into lab-results/run-N/
firn-lab report 3 --out docs/results/quick
firn-lab report --hour 0.10 --gb-month 0.08 --million-ios 0.20
"""

from __future__ import annotations

import argparse
from pathlib import Path

from firn_lab.cli.common import add_prices, add_store, prices_of
from firn_lab.report.data import collect
from firn_lab.report.html import html
from firn_lab.report.markdown import markdown
from firn_lab.report.png import pictures
from firn_lab.store import Reader

NAME = "report"
HELP = "an HTML page, a Markdown table and pictures of a run"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last", metavar="RUN", help="an id, or last")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: run-N beside the store")
    add_store(parser)
    add_prices(parser)


def main(chosen: argparse.Namespace) -> int:
    prices = prices_of(chosen)
    with Reader(chosen.store) as store:
        report = collect(store, chosen.run, prices)
        out: Path = chosen.out or chosen.store.parent / f"run-{report.run.id}"
        out.mkdir(parents=True, exist_ok=True)
        made = [out / "index.html", out / "report.md"]
        made[0].write_text(html(report), encoding="utf-8")
        made[1].write_text(markdown(report), encoding="utf-8")
        made += pictures(report, out)
    for path in made:
        print(path)
    return 0
