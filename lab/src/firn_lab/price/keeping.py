"""Where to keep what is read: break-evens of memory pool, memory, volume and object store.

The five-minute rule of Gray and Putzolu (1987) in general form. A place has a price of keeping a
thing for a month, and a price of each read of it. Of two places, one costs less to keep and more to
read. Both cost the same if the thing is read again after

    difference of the prices of a read / difference of the prices of keeping it

A thing that is read more often belongs where a read costs less.

- A *block* is on the volume in any case, so that place costs nothing to keep it. The pool keeps it
  as it is stored, memory keeps it decompressed.
- A *file* is on the volume or in the bucket. The bucket is asked for a chunk, which goes to the
  file cache on the volume, or for whole pieces by a scan.
- A *chunk* of a file in the bucket is in the file cache or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial

from firn_lab.errors import UsageError
from firn_lab.price.catalogue import HOUR_SECONDS, LEAST, MONTH_SECONDS, Prices
from firn_lab.price.cost import crossing, ios

GB = 10**9
GIB = 2**30
MIB = 2**20
KIB = 2**10

# Processor time of the server, seconds (docs/pool.md, docs/benchmarks.md): to ask a node for a
# block, and to decompress a block.
ASK_SECONDS = 15e-6
DECOMPRESS_SECONDS = 10e-6
# The share of a node's memory that holds values with the options in docs/pool.md.
VALUE_SHARE = 0.95

# Sizes of crates/firn-objects: the unit of the file cache, the first and the largest piece that a
# scan reads ahead, the largest object that one request writes, and the parts of larger ones.
CHUNK = 256 * KIB
PIECE_FIRST = MIB
PIECE_MOST = 8 * MIB
WHOLE_MOST = 32 * MIB
PART = 16 * MIB


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is kept."""

    block_kib: float = 8.0
    # The share of its bytes that a compressed block has.
    stored: float = 0.41
    file_mib: float = 32.0

    def __post_init__(self) -> None:
        if self.stored > 1:
            raise UsageError(f"stored is a share of 1 at most, not {self.stored:g}")
        for field in fields(self):
            if getattr(self, field.name) < LEAST:
                raise UsageError(f"{field.name} must be above zero, {LEAST:g} at least")

    @property
    def block(self) -> float:
        """Bytes of a block in memory."""
        return self.block_kib * KIB

    @property
    def stored_block(self) -> float:
        """Bytes of a block in its file, and in the pool."""
        return self.block * self.stored

    @property
    def file(self) -> float:
        """Bytes of a file."""
        return self.file_mib * MIB


@dataclass(frozen=True)
class _Place:
    """The price of a read of a thing in a place, and of keeping it there for a month."""

    read: float
    month: float


@dataclass(frozen=True)
class Choice:
    """The comparison of two places for a thing.

    `read` and `month`: how much more a read and a month cost in the first place. `verdict` is as in
    `BreakEven`. For `above` and `below`, `seconds` is the interval of reads at which both places
    cost the same, and `rate` the reads a second at which a `rate_of` of such things costs the same.
    """

    thing: str
    places: str
    read: float
    month: float
    verdict: str
    seconds: float | None
    rate: float | None
    # Empty if counters show no such rate.
    rate_of: str
    # Whether the price of a read is that of one move instead.
    moves: bool

    def words(self) -> str:
        """The verdict as a text that follows the names of the places."""
        match self.verdict:
            case "always":
                return "always costs less"
            case "never":
                return "never costs less"
            case "equal":
                return "costs the same"
        after = duration(self.seconds or 0.0)
        if self.moves:
            return f"costs less from {after} on"
        if self.verdict == "above":
            return f"costs less if read at most once in {after}"
        return f"costs less if read again within {after}"

    def rate_words(self) -> str:
        """The break-even as a rate, which counters show."""
        if self.rate is None:
            return ""
        limit = "fewer" if self.verdict == "above" else "more"
        return f"{limit} than {_number(self.rate)} reads a second for each {self.rate_of}"


def _number(value: float) -> str:
    """Two significant digits."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if 10 <= rounded < 1e15 else f"{rounded:g}"


def duration(seconds: float) -> str:
    """A duration with two significant digits."""
    units = (("years", 365 * 86400), ("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for unit, each in units:
        if seconds >= 2 * each:
            return f"{_number(seconds / each)} {unit}"
    return f"{seconds:.2g} s"


def node_gb_month(prices: Prices) -> float | None:
    """The price of a GB of nodes for a month; None if the offer has none."""
    if prices.node_hour is None or prices.node_gib is None:
        return prices.memory_gb_month
    return _gb_month(prices.node_hour, prices.node_gib)


def more_gb_month(prices: Prices) -> float | None:
    """The price of a GB that a larger machine has more; None if the offer has none."""
    if prices.more_hour is None or prices.more_gib is None:
        return None
    return _gb_month(prices.more_hour, prices.more_gib)


def _gb_month(hour: float, gib: float) -> float:
    return hour * MONTH_SECONDS / HOUR_SECONDS / (gib * GIB / GB)


def put_requests(size: float) -> int:
    """Requests that write a file. One in parts is begun and completed by a request each."""
    return 1 if size <= WHOLE_MOST else math.ceil(size / PART) + 2


def scan_requests(size: float) -> int:
    """Requests of a scan of a file: a chunk, then pieces that double up to the largest one."""
    found, done, piece = 1, CHUNK, PIECE_FIRST
    while done < size and piece < PIECE_MOST:
        found, done, piece = found + 1, done + piece, piece * 2
    return found + math.ceil(max(0.0, size - done) / PIECE_MOST)


def choices(prices: Prices, sizes: Sizes) -> list[Choice]:
    """All comparisons that the prices allow."""
    return [*_blocks(prices, sizes), *_files(prices, sizes)]


def _compare(
    thing: str,
    places: str,
    one: _Place,
    other: _Place,
    rate_of: str = "",
    count: float = 0.0,
    moves: bool = False,
) -> Choice:
    """Compares two places. `count`: the number of things in a `rate_of`."""
    read, month = one.read - other.read, one.month - other.month
    verdict, months = crossing(read, month)
    seconds = None if months is None else months * MONTH_SECONDS
    rate = count / seconds if rate_of and seconds else None
    return Choice(thing, places, read, month, verdict, seconds, rate, rate_of, moves)


def _blocks(prices: Prices, sizes: Sizes) -> Iterator[Choice]:
    core_second = prices.hour / prices.cores / HOUR_SECONDS if prices.cores else 0.0
    decompress = DECOMPRESS_SECONDS * core_second
    stored = sizes.stored_block / GB
    thing = f"block of {sizes.block_kib:g} KiB, {_number(sizes.stored_block / KIB)} KiB stored"
    volume = _Place(prices.io * ios(prices, 1, sizes.stored_block) + decompress, 0.0)
    pool = memory = None
    node, more = node_gb_month(prices), more_gb_month(prices)
    if node is not None:
        ask = ASK_SECONDS * core_second + stored * prices.node_traffic_gb
        pool = _Place(ask + decompress, stored / VALUE_SHARE * node)
        count = VALUE_SHARE / stored
        yield _compare(thing, "pool, not volume alone", pool, volume, "GB of nodes", count)
    if more is not None:
        memory = _Place(0.0, sizes.block / GB * more)
        count = GB / sizes.block
        yield _compare(
            thing, "more memory, not volume alone", memory, volume, "GB of memory", count
        )
    if pool is not None and memory is not None:
        count = GB / sizes.block
        yield _compare(thing, "more memory, not pool", memory, pool, "GB of memory", count)


def _files(prices: Prices, sizes: Sizes) -> Iterator[Choice]:
    if prices.bucket_gb_month is None:
        return
    size = sizes.file / GB
    get, put = prices.million_gets / 1e6, prices.million_puts / 1e6
    # A chunk that comes from the bucket is written to the file cache on the volume.
    block_read = prices.io * ios(prices, 1, sizes.stored_block)
    chunk = min(CHUNK, sizes.file)
    chunk_read = get + chunk / GB * prices.traffic_gb + prices.io * ios(prices, 1, chunk)
    file_io = prices.io * ios(prices, 1, sizes.file)
    scan = scan_requests(sizes.file) * get + size * prices.traffic_gb + file_io
    bucket = partial(_Place, month=size * prices.bucket_gb_month)
    volume = partial(_Place, month=size * prices.gb_month)
    places = "bucket, not volume"

    def thing(how: str) -> str:
        return f"file of {sizes.file_mib:g} MiB, {how}"

    read = bucket(chunk_read), volume(block_read)
    yield _compare(thing("chunks read"), places, *read, "TB", 1000 / size)
    yield _compare(thing("scanned"), places, bucket(scan), volume(file_io))
    sent = put_requests(sizes.file) * put + file_io
    yield _compare(thing("sent once"), places, bucket(sent), volume(0.0), moves=True)
    cached = _Place(block_read, chunk / GB * prices.gb_month)
    fetched = _Place(chunk_read, 0.0)
    places = "file cache, not bucket alone"
    name = f"chunk of {chunk / KIB:g} KiB"
    yield _compare(name, places, cached, fetched, "GB of file cache", GB / chunk)
