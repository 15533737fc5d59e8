"""Size on a compressing SSD, which compresses each 4, 8 or 16 KiB block of the files with zlib.

A block that does not shrink counts whole. Large trees are sampled evenly over all their bytes.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from firn_lab.measures.measure import STATE_MEASURES, Moment, StateMeasure
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind

BLOCKS = {"ssd_4k_bytes": 4096, "ssd_8k_bytes": 8192, "ssd_16k_bytes": 16384}
# Bytes of a read: a multiple of every block size.
CHUNK = 1 << 20
SAMPLE_BYTES = 64 << 20


def files_below(root: Path) -> list[Path]:
    """Regular files below a directory in order, or the file itself.

    A directory that cannot be read raises OSError, because the sum would miss its files. A
    directory that disappears meanwhile is skipped.
    """

    def told(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    if root.is_file():
        return [root]
    found = (Path(place, name) for place, _, names in os.walk(root, onerror=told) for name in names)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def compressed_tree_bytes(root: Path, sample_bytes: int) -> dict[str, float]:
    """Compressed bytes of all files below `root`, keyed by BLOCKS."""
    files = files_below(root)
    total = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    every = max(1, round(total / sample_bytes))
    sizes = dict.fromkeys(BLOCKS, 0)
    seen = 0
    for chunk in _chunks(files, every):
        seen += len(chunk)
        for name, block in BLOCKS.items():
            for start in range(0, len(chunk), block):
                part = chunk[start : start + block]
                sizes[name] += min(len(part), len(zlib.compress(part)))
    scale = total / seen if seen else 0.0
    return {name: size * scale for name, size in sizes.items()}


def _chunks(files: list[Path], every: int) -> Iterator[bytes]:
    """Every `every`-th chunk, counted across all files."""
    number = 0
    for path in files:
        try:
            with path.open("rb") as file:
                for start in range(0, path.stat().st_size, CHUNK):
                    if number % every == 0:
                        file.seek(start)
                        yield file.read(CHUNK)
                    number += 1
        except FileNotFoundError:
            continue  # The engine deleted the file meanwhile.


@STATE_MEASURES.register("ssd")
class Ssd(StateMeasure):
    figures = {name: FigureKind("B") for name in BLOCKS}
    costly = True

    def take(self, target: Target, moment: Moment) -> Mapping[str, float]:
        assert target.data_dir is not None
        return compressed_tree_bytes(target.data_dir, SAMPLE_BYTES)
