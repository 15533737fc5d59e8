"""Judges by the ratios of a run whether a limit is met: "0.98 of InnoDB's throughput", say.

  firn-lab judge --at-least 0.98                 # the last run, each case's headline
  firn-lab judge 3 --at-least 0.98 --figure cpu_us_per_transaction
  firn-lab run oltp_point_select --targets engine:firn@before=/tmp/ha_firn.so engine:firn@after
  firn-lab judge --at-least 0.98                 # after ÷ before: the first target is the reference

A limit is met when the lower end of the 95 % interval of the paired ratios reaches it, and the
ratio over all transactions of all blocks reaches it, too: a typical block shows no rare stalls. It
is missed when the upper end of either interval does not reach it, otherwise undecided. Times and
costs are inverted: reference ÷ target. Exit status 0 when every case meets the limit, 1 when one
misses it, 3 when one is undecided.
"""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from firn_lab.cli.common import add_store, wide_console
from firn_lab.cli.numbers import above
from firn_lab.errors import LabError
from firn_lab.report.conclusions import judge, ratio_text
from firn_lab.report.report_data import collect
from firn_lab.store import Reader

NAME = "judge"
HELP = "whether ratios of a run reach a limit"
STYLES = {"met": "green", "missed": "red", "undecided": "yellow"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last", metavar="RUN", help="an id, or last")
    parser.add_argument("--at-least", type=above(0.0), required=True, metavar="RATIO")
    parser.add_argument("--figure", metavar="NAME", help="another than each case's headline")
    parser.add_argument("--target", metavar="NAME", help="of this one alone")
    add_store(parser)


def main(chosen: argparse.Namespace) -> int:
    with Reader(chosen.store) as store:
        found = judge(collect(store, chosen.run), chosen.at_least, chosen.figure)
    if chosen.target:
        found = [each for each in found if each.target == chosen.target]
    if not found:
        raise LabError("the run has nothing to judge: no such figure of two targets")
    head = ("case", "figure", "ratio", "95 % interval of paired ratios", "all transactions", "")
    table = Table(*head, box=None)
    for each in found:
        turned = f"{each.target} ÷ {each.reference}"
        table.add_row(
            each.case,
            each.figure,
            turned,
            ratio_text(each.ratio),
            "–" if each.whole is None else ratio_text(each.whole),
            Text(f"{each.verdict}: ≥ {chosen.at_least:g}", style=STYLES[each.verdict]),
        )
    wide_console().print(table)
    verdicts = {each.verdict for each in found}
    return 1 if "missed" in verdicts else 3 if "undecided" in verdicts else 0
