"""Follows a run that is going on elsewhere, in the terminal. Ctrl-C ends the view, not the run.

firn-lab watch                # the last run; waits for one
firn-lab watch 3 --once       # how it stands, printed once
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.live import Live

from firn_lab.cli.common import add_store, wide_console
from firn_lab.cli.watch_board import Board, render
from firn_lab.errors import LabError
from firn_lab.store import Reader
from firn_lab.store.rows import Run

NAME = "watch"
HELP = "a live view of a run"
POLL_SECONDS = 0.5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last", metavar="RUN", help="an id, or last")
    parser.add_argument("--once", action="store_true", help="print how it stands, and end")
    add_store(parser)


def main(chosen: argparse.Namespace) -> int:
    if chosen.once:
        with Reader(chosen.store) as store:
            board = follow(store, Board(store.run(chosen.run)))
            wide_console().print(render(board, time.time()))
        return 0
    console = Console(highlight=False)
    with wait_for(chosen, console) as store:
        board = Board(store.run(chosen.run))
        with Live(console=console, auto_refresh=False) as live:
            while True:
                follow(store, board)
                live.update(render(board, time.time()), refresh=True)
                if board.status != "running":
                    return 0
                time.sleep(POLL_SECONDS)


def follow(store: Reader, board: Board) -> Board:
    """Applies the events since the last call."""
    run: Run = store.run(board.run.id)
    for event in store.events(run.id, board.last_event):
        board.apply(event)
    if run.status != "running":
        board.status, board.message = run.status, run.message
    return board


def wait_for(chosen: argparse.Namespace, console: Console) -> Reader:
    """Waits until the store holds the run, and opens the store."""
    told = False
    while True:
        if chosen.store.is_file():
            reader = Reader(chosen.store)
            if reader.runs():
                return reader
            reader.__exit__(None, None, None)
        if chosen.run != "last":
            raise LabError(f"{chosen.store} has no run {chosen.run}")
        if not told:
            console.print(f"waiting for a run in {chosen.store}")
            told = True
        time.sleep(POLL_SECONDS)
