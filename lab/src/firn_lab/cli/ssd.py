"""Predicts the size of files on an SSD that compresses: blocks of 4, 8, 16 KiB with zlib.

firn-lab ssd /var/lib/mysql/shop
firn-lab ssd shop.ibd --sample-mib 0      # every byte, not a sample
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.table import Table

from firn_lab.cli.common import wide_console
from firn_lab.cli.numbers import at_least
from firn_lab.errors import LabError
from firn_lab.measures.ssd import BLOCKS, SAMPLE_BYTES, compressed_tree_bytes, files_below
from firn_lab.report.units import bytes_text

NAME = "ssd"
HELP = "what files would take on an SSD that compresses"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, nargs="+", metavar="PATH", help="a directory, or a file")
    parser.add_argument(
        "--sample-mib", type=at_least(0), default=SAMPLE_BYTES >> 20, metavar="MIB",
        help="read of larger trees, spread over all of it; 0: everything (%(default)s)",
    )  # fmt: skip


def main(chosen: argparse.Namespace) -> int:
    sample = chosen.sample_mib << 20 or sys.maxsize
    names = [f"{size >> 10} KiB" for size in BLOCKS.values()]
    table = Table("path", "files", "bytes", "allocated", *names, box=None)
    for path in chosen.path:
        try:
            path.stat()
            files = files_below(path)
            plain = sum(file.stat().st_size for file in files)
            held = sum(file.stat().st_blocks * 512 for file in files)
            sizes = compressed_tree_bytes(path, sample)
        except OSError as error:
            raise LabError(f"{error.filename}: {error.strerror}") from error
        cells = [
            f"{bytes_text(sizes[name])} ({sizes[name] / plain:.0%})" if plain else "–"
            for name in BLOCKS
        ]
        table.add_row(str(path), str(len(files)), bytes_text(plain), bytes_text(held), *cells)
    wide_console().print(table)
    return 0
