"""Compresses blocks as FIRN does in the last level: with trials, and a dictionary if it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

from firn_lab.estimate.entries import Entry
from firn_lab.estimate.stored_blocks import StoredForm, shape

LEVEL = 3
LONG_MATCH, LONG_MATCH_LEVEL = 7, 1
CUT_MIN = 128
TRIAL_BLOCKS, TRIAL_BYTES_MIN = 8, 32 << 10
DICTIONARY_BYTES = 16 << 10
TRAINING_BYTES = 32 * DICTIONARY_BYTES
RAW_BYTES_MIN = 8 * DICTIONARY_BYTES
SAMPLE_BYTES = 1 << 10
DICTIONARY_TRIALS = 16
GAIN_MIN = 0.02
# Tunings whose trial sizes differ by less than this fraction count as equal, because on other
# blocks their order may be the reverse.
TIE = 0.005
# Bytes of header and checksum around a stored block, and of the dictionary id that such a block has
# in addition if a dictionary compresses it.
FRAME_BYTES, DICTIONARY_ID_BYTES = 16, 4

Block = Sequence[Entry]


@dataclass(frozen=True)
class Tuning:
    tail_planes: bool = False
    long_matches: bool = False
    cut: bool = False


class Compressor:
    """Computes the stored sizes of blocks under one tuning."""

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

    def stored(self, block: StoredForm) -> int:
        """Stored bytes of a data block, with header and checksum."""
        raw, at = block.raw, block.tails_at
        if self.tuning.cut and min(at, len(raw) - at) >= CUT_MIN:
            stream = self._context.compressobj(size=len(raw))
            size = len(stream.compress(raw[:at]))
            size += len(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            size += len(stream.compress(raw[at:])) + len(stream.flush())
        else:
            size = len(self._context.compress(raw))
        return self._kept(raw, size)

    def other(self, raw: bytes) -> int:
        """Stored bytes of a block that is no data block, such as an index or a dictionary."""
        return self._kept(raw, len(self._context.compress(raw)))

    def _kept(self, raw: bytes, size: int) -> int:
        """The stored size of a block that compression makes `size` bytes long.

        A block is stored compressed only if that saves an eighth.
        """
        if size <= len(raw) - len(raw) // 8:
            return size + self._frame
        return len(raw) + FRAME_BYTES


def raw_bytes(block: Block) -> int:
    return sum(len(e.key) + len(e.head) + len(e.tail) for e in block)


def tunings(blocks: Sequence[Block]) -> list[Tuning]:
    """The tunings that FIRN may choose for these blocks, best first.

    The best one makes about eight of the blocks smallest. The others come within TIE of it: FIRN
    tries other blocks and may prefer them. Too few bytes for a trial give the default tuning alone.
    """
    if sum(map(raw_bytes, blocks)) < TRIAL_BYTES_MIN:
        return [Tuning()]
    trial = blocks[:: max(1, len(blocks) // TRIAL_BLOCKS)]
    found: dict[int, Tuning] = {}
    for tail_planes in (False, True):
        shaped = [shape(block, tail_planes) for block in trial]
        for long_matches, cut in ((False, False), (False, True), (True, False), (True, True)):
            tuning = Tuning(tail_planes, long_matches, cut)
            compressor = Compressor(tuning)
            # If two tunings give the same size, the first one wins.
            found.setdefault(sum(compressor.stored(block) for block in shaped), tuning)
    best = min(found)
    return [found[size] for size in sorted(found) if size <= best * (1 + TIE)]


@dataclass(frozen=True)
class Stored:
    """The stored sizes of sampled blocks of a file.

    `sizes`: bytes of each block. `dictionary_bytes`: bytes that the dictionary adds to each file.
    `open`: uncertainty of the sum of the sizes, as a fraction to either side.
    """

    sizes: list[float]
    dictionary_bytes: int
    open: float = 0.0


def store(blocks: Sequence[Block], whole_raw_bytes: float) -> Stored:
    """The stored sizes of sampled blocks, as parts of one file.

    `whole_raw_bytes`: bytes of all keys and values of that file before compression. If it is
    uncertain whether FIRN uses a dictionary, each size is the mean of the two sizes, with a
    dictionary and without.
    """
    ways = [_store(blocks, tuning, whole_raw_bytes) for tuning in tunings(blocks)]
    # Keep the best tuning with a dictionary and the best one without.
    kinds = list({way.dictionary_bytes > 0: way for way in reversed(ways)}.values())
    if len(kinds) == 1:
        return kinds[0]
    sizes = [sum(pair) / 2 for pair in zip(kinds[0].sizes, kinds[1].sizes, strict=True)]
    carried = max(way.dictionary_bytes for way in kinds)
    return Stored(sizes, carried, abs(sum(kinds[0].sizes) / sum(sizes) - 1))


def _store(blocks: Sequence[Block], tuning: Tuning, whole_raw_bytes: float) -> Stored:
    """The sizes of sampled blocks under one tuning.

    A dictionary contains pieces of the blocks that trained it, and compresses these better than
    other blocks; the effect is larger in a small sample than in a whole file. Therefore each half
    of the sample is compressed twice: with the dictionary trained on itself and with that of the
    other half. The first result gets the weight that the training blocks have in the whole file.
    """
    shaped = [shape(block, tuning.tail_planes) for block in blocks]
    plain_compressor = Compressor(tuning)
    plain = [float(plain_compressor.stored(block)) for block in shaped]
    raw = sum(len(block.raw) for block in shaped)
    # `whole_raw_bytes` counts each key whole, but a block stores a prefix that its keys share only
    # once. Scale it by the ratio that both counts have in the sampled blocks.
    whole = whole_raw_bytes * raw / max(1, sum(map(raw_bytes, blocks)))
    if whole < RAW_BYTES_MIN or raw < 2 * SAMPLE_BYTES:
        return Stored(plain, 0)
    trained_on = min(1.0, raw / 2 / whole)
    sizes = [0.0] * len(shaped)
    halves = [list(range(start, len(shaped), 2)) for start in (0, 1)]
    length = carried = 0
    for own, other in (halves, halves[::-1]):
        dictionary = train([shaped[n] for n in own])
        if dictionary is None:
            return Stored(plain, 0)
        length, carried = len(dictionary), plain_compressor.other(dictionary)
        compressor = Compressor(tuning, dictionary)
        for n in own:
            sizes[n] += compressor.stored(shaped[n]) * trained_on
        for n in other:
            sizes[n] += compressor.stored(shaped[n]) * (1 - trained_on)
    saved = sum(plain) - sum(sizes)
    saved_in_all = saved * whole / max(1, raw)
    if saved < GAIN_MIN * sum(plain) or saved_in_all <= length:
        return Stored(plain, 0)
    return Stored(sizes, carried)


def train(blocks: Sequence[StoredForm]) -> bytes | None:
    """Trains a dictionary as FIRN does, from evenly spread pieces of a KiB."""
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
        return None  # There are too few samples.
