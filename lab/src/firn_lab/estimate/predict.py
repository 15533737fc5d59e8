"""Extrapolates from samples to bytes on disk, with an error bound."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from firn_lab.estimate.compress import Block, raw_bytes, store
from firn_lab.estimate.entries import Entry
from firn_lab.estimate.sample import Sample
from firn_lab.estimate.stored_blocks import cut

# FIRN splits the data of the last level into FILES files, but makes no file larger than
# FILE_BYTES_MAX or smaller than FILE_BYTES_MIN.
FILE_BYTES_MAX, FILE_BYTES_MIN, FILES = 32 << 20, 2 << 20, 64
# Bytes that a file takes beside its blocks: the top of its index, its properties and footer, and on
# average half of a file system block.
FILE_EXTRA_BYTES = 600 + 2048
# Error of the predicted size per file in bytes: the file may end anywhere within a file system
# block.
FILE_ERROR_BYTES = 4096
FILTER_BITS = 10
# The error bound covers this many standard errors of the sample.
SIGMAS = 2.0
# Relative error of the prediction that comes from the imitation of FIRN's formats.
MODEL_ERROR = 0.05


@dataclass(frozen=True)
class Prediction:
    """Predicted bytes on disk, plus or minus `error`.

    `raw_bytes`: bytes of keys and values before compression; for a table, only those of its rows.
    """

    bytes: float
    error: float
    blob_bytes: float = 0.0
    raw_bytes: float = 0.0


def predict(sample: Sample, entries: Sequence[Sequence[Entry]]) -> Prediction:
    """Predicts the size of one index. `entries`: the encoded rows of each sampled run.

    A run is a range of neighbouring rows.
    """
    runs = [_whole_blocks(run, sample.whole) for run in entries]
    runs = [run for run in runs if run]
    blocks = [block for run in runs for block in run]
    count = sum(map(len, blocks))
    if not count or not sample.rows:
        return Prediction(0.0, 0.0)
    whole_raw = sum(map(raw_bytes, blocks)) / count * sample.rows
    # The raw size of a file depends on how well its blocks compress, which is not known yet: assume
    # that they shrink to a third.
    file_raw = min(whole_raw, _file_bytes(whole_raw / 3) * 3)
    stored = store(blocks, file_raw)
    data = sum(stored.sizes) / count * sample.rows
    # Each data block has an entry of about 13 bytes in the file's index: the separator without the
    # prefix that it shares, the block's offset and length, and counts.
    index = sample.rows * len(blocks) / count * 13
    filters = sample.rows * FILTER_BITS / 8
    files = max(1.0, math.ceil(data / _file_bytes(data)))
    extra = files * (FILE_EXTRA_BYTES + stored.dictionary_bytes)
    blob = sum(e.blob for block in blocks for e in block) / count * sample.rows
    whole = data + index + filters + extra + blob
    spread = 0.0 if sample.whole else _standard_error(runs, stored.sizes)
    error = whole * math.hypot(SIGMAS * spread, MODEL_ERROR, sample.rows_error)
    error += data * stored.open + files * FILE_ERROR_BYTES
    return Prediction(whole, error, blob, whole_raw + blob)


def _whole_blocks(run: Sequence[Entry], whole: bool) -> list[Block]:
    """Cuts a run of neighbouring entries into blocks.

    The last block is left out if there are others, because the run ends within it; it is complete
    only if the run is `whole`, the entire index.
    """
    blocks: list[Block] = list(cut(run))
    return blocks if whole or len(blocks) < 2 else blocks[:-1]


def _file_bytes(data: float) -> float:
    return min(float(FILE_BYTES_MAX), max(float(FILE_BYTES_MIN), data / FILES))


def _standard_error(runs: Sequence[Sequence[Block]], sizes: Sequence[float]) -> float:
    """Relative standard error of the bytes per row, by the jackknife.

    The jackknife leaves out one run (a range of neighbouring rows) at a time.
    """
    totals, counts, at = [], [], 0
    for run in runs:
        totals.append(sum(sizes[at : at + len(run)]))
        totals[-1] += sum(entry.blob for block in run for entry in block)
        counts.append(sum(map(len, run)))
        at += len(run)
    if len(runs) < 2:
        return 0.5
    size, count = sum(totals), sum(counts)
    without = [(size - total) / (count - rows) for total, rows in zip(totals, counts, strict=True)]
    middle = statistics.fmean(without)
    variance = sum((value - middle) ** 2 for value in without) * (len(runs) - 1) / len(runs)
    return math.sqrt(variance) / (size / count)
