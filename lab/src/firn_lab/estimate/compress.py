"""Blocks compressed as FIRN does it in the last level: trials, and a dictionary if it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

from firn_lab.estimate.blocks import Shaped, shape
from firn_lab.estimate.entries import Entry

LEVEL = 3
LONG_MATCH, LONG_MATCH_LEVEL = 7, 1
CUT_MIN = 128
TRIAL_BLOCKS, TRIAL_BYTES_MIN = 8, 32 << 10
DICTIONARY_BYTES = 16 << 10
TRAINING_BYTES = 32 * DICTIONARY_BYTES
TRAINING_BYTES_MIN = 8 * DICTIONARY_BYTES
SAMPLE_BYTES = 1 << 10
DICTIONARY_TRIALS = 16
GAIN_MIN = 0.02
# Header and checksum of a stored block; the id of a dictionary.
FRAME_BYTES, DICTIONARY_ID_BYTES = 16, 4

Block = Sequence[Entry]


@dataclass(frozen=True)
class Tuning:
    tail_planes: bool = False
    long_matches: bool = False
    cut: bool = False


class Compressor:
    """Stored sizes of blocks."""

    def __init__(self, tuning: Tuning, dictionary: bytes | None = None) -> None:
        self.tuning = tuning
        level, match = (LONG_MATCH_LEVEL, LONG_MATCH) if tuning.long_matches else (LEVEL, 0)
        parameters = zstandard.ZstdCompressionParameters(
            compression_level=level,
            min_match=match,
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            write_content_size=True,
            write_dict_id=False,
        )
        self._frame = FRAME_BYTES + (DICTIONARY_ID_BYTES if dictionary else 0)
        data = None if dictionary is None else zstandard.ZstdCompressionDict(dictionary)
        self._context = zstandard.ZstdCompressor(compression_params=parameters, dict_data=data)

    def stored(self, block: Shaped) -> int:
        """With header and checksum; raw unless compression saves an eighth."""
        raw, at = block.raw, block.tails_at
        if self.tuning.cut and min(at, len(raw) - at) >= CUT_MIN:
            stream = self._context.compressobj(size=len(raw))
            size = len(stream.compress(raw[:at]))
            size += len(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            size += len(stream.compress(raw[at:])) + len(stream.flush())
        else:
            size = len(self._context.compress(raw))
        if size <= len(raw) - len(raw) // 8:
            return size + self._frame
        return len(raw) + FRAME_BYTES


def raw_bytes(block: Block) -> int:
    return sum(len(e.key) + len(e.head) + len(e.tail) for e in block)


def tune(blocks: Sequence[Block]) -> Tuning:
    """The best of all ways for eight of the blocks."""
    if sum(map(raw_bytes, blocks)) < TRIAL_BYTES_MIN:
        return Tuning()
    trial = blocks[:: max(1, len(blocks) // TRIAL_BLOCKS)]
    best = (1 << 62, Tuning())
    for tail_planes in (False, True):
        shaped = [shape(block, tail_planes) for block in trial]
        for long_matches, cut in ((False, False), (False, True), (True, False), (True, True)):
            tuning = Tuning(tail_planes, long_matches, cut)
            compressor = Compressor(tuning)
            size = sum(compressor.stored(block) for block in shaped)
            if size < best[0]:
                best = (size, tuning)
    return best[1]


@dataclass(frozen=True)
class Stored:
    """`sizes`: of each block. `dictionary_bytes` is what one file carries."""

    sizes: list[float]
    dictionary_bytes: int


def store(blocks: Sequence[Block], whole_raw_bytes: float) -> Stored:
    """Sizes of the blocks in a file of so many raw bytes, of which these are a sample.

    A dictionary holds pieces of the blocks that it was trained on, and fits these better than
    others: more so in a small sample than in a whole file. So the sample is halved, each half
    compressed with the other's dictionary and with its own; that counts by the half's part of the
    file.
    """
    tuning = tune(blocks)
    shaped = [shape(block, tuning.tail_planes) for block in blocks]
    plain_compressor = Compressor(tuning)
    plain = [float(plain_compressor.stored(block)) for block in shaped]
    raw = sum(len(block.raw) for block in shaped)
    if whole_raw_bytes < TRAINING_BYTES_MIN or raw < 2 * SAMPLE_BYTES:
        return Stored(plain, 0)
    trained_on = min(1.0, raw / 2 / whole_raw_bytes)
    sizes = [0.0] * len(shaped)
    halves = [list(range(start, len(shaped), 2)) for start in (0, 1)]
    length = 0
    for own, other in (halves, halves[::-1]):
        dictionary = train([shaped[n] for n in own])
        if dictionary is None:
            return Stored(plain, 0)
        length = len(dictionary)
        compressor = Compressor(tuning, dictionary)
        for n in own:
            sizes[n] += compressor.stored(shaped[n]) * trained_on
        for n in other:
            sizes[n] += compressor.stored(shaped[n]) * (1 - trained_on)
    saved = sum(plain) - sum(sizes)
    saved_in_all = saved * whole_raw_bytes / max(1, raw)
    if saved < GAIN_MIN * sum(plain) or saved_in_all <= length:
        return Stored(plain, 0)
    return Stored(sizes, length + FRAME_BYTES)


def train(blocks: Sequence[Shaped]) -> bytes | None:
    """As FIRN's trainer: pieces of a KiB of evenly spread blocks."""
    total = sum(len(block.raw) for block in blocks)
    spread = blocks[:: max(1, total // TRAINING_BYTES)]
    samples: list[bytes | bytearray | memoryview[int]] = [
        block.raw[start : start + SAMPLE_BYTES]
        for block in spread
        for start in range(0, len(block.raw), SAMPLE_BYTES)
    ]
    try:
        return zstandard.train_dictionary(
            DICTIONARY_BYTES, samples, k=512, d=8, f=19, split_point=1.0, accel=1, steps=1
        ).as_bytes()
    except zstandard.ZstdError:
        return None  # Too few samples.
