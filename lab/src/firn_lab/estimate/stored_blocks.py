"""Builds last-level blocks as docs/formats/sst.md defines them: sections, with or without planes.

It builds only the parts that determine the size. Hash index, block offsets and checksums are
counted elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firn_lab.estimate.entries import Entry, varint

# FIRN's defaults: the target size of a data block, the number of entries between restart points,
# the bytes that a block counts for each entry beside its key and value, and the limits for byte
# planes (fewest entries of a block, largest length of an item).
BLOCK_BYTES = 8 << 10
RESTART_INTERVAL = 16
ENTRY_OVERHEAD = 3
PLANE_ENTRIES_MIN = 8
PLANE_WIDTH_MAX = 4096


@dataclass(frozen=True)
class StoredForm:
    """The raw bytes of a block; the value tails begin at the offset `tails_at`."""

    raw: bytes
    tails_at: int


def shared(one: bytes, other: bytes) -> int:
    """Length of the common prefix."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(n for n in range(length) if one[n] != other[n])


def cut(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Cuts the ordered entries of an index into blocks."""
    blocks: list[list[Entry]] = []
    size, last = BLOCK_BYTES, b""
    for entry in entries:
        own = len(entry.key) + len(entry.head) + len(entry.tail) + ENTRY_OVERHEAD
        if size >= BLOCK_BYTES:
            blocks.append([])
            size = own
        else:
            size += own - shared(last, entry.key)
        blocks[-1].append(entry)
        last = entry.key
    return blocks


def shape(block: Sequence[Entry], tail_planes: bool) -> StoredForm:
    """Encodes a block. Length arrays and heads become planes, tails only with `tail_planes`."""
    heads, tails = [e.head for e in block], [e.tail for e in block]
    planes = len(block) >= PLANE_ENTRIES_MIN
    fixed = len({len(e.key) for e in block}) == 1
    head = bytearray(b"\0") + varint(len(block))
    body = bytearray()
    restarts = b""
    if fixed:
        prefix = shared(block[0].key, block[-1].key)
        width = len(block[0].key) - prefix
        rest = [e.key[prefix:] for e in block]
        keys = block[0].key[:prefix] + (split(rest, width) if planes else b"".join(rest))
    else:
        keys, restarts = _prefixed(block)
        head += varint(RESTART_INTERVAL)
    body += keys
    # All entries of a bulk-loaded file have the same trailer (seqno and kind), so its blocks have
    # no array of trailers.
    lengths = _lengths(heads, planes, head), _lengths(tails, planes, head)
    if fixed:
        head += varint(prefix) + varint(width)
    else:
        head += varint(len(keys))
    body += lengths[0] + lengths[1]
    body += _items(heads, planes)
    body += restarts
    if not fixed:
        head += varint(0)
    head += varint(0)
    tails_at = len(head) + len(body)
    return StoredForm(bytes(head + body) + _items(tails, planes and tail_planes), tails_at)


def _prefixed(block: Sequence[Entry]) -> tuple[bytes, bytes]:
    """The prefix-compressed keys, and the array of restart offsets."""
    out, restarts, last = bytearray(), bytearray(), b""
    for n, entry in enumerate(block):
        common = shared(last, entry.key)
        if n % RESTART_INTERVAL == 0:
            restarts += len(out).to_bytes(4, "little")
            common = 0
        out += varint(common) + varint(len(entry.key) - common) + entry.key[common:]
        last = entry.key
    return bytes(out), bytes(restarts)


def _lengths(items: Sequence[bytes], planes: bool, head: bytearray) -> bytes:
    """The lengths of the items as an array.

    If all lengths are equal, `head` gets the length instead and the result is empty.
    """
    if len({len(item) for item in items}) == 1:
        head += varint(len(items[0]))
        return b""
    head += varint(sum(map(len, items)))
    array = [len(item).to_bytes(4, "little") for item in items]
    return split(array, 4) if planes else b"".join(array)


def _items(items: Sequence[bytes], planes: bool) -> bytes:
    width = len(items[0])
    alike = all(len(item) == width for item in items)
    if planes and alike and 1 <= width <= PLANE_WIDTH_MAX:
        return split(items, width)
    return b"".join(items)


def split(items: Sequence[bytes], width: int) -> bytes:
    """Byte planes: plane j holds byte j of every item, delta-coded if most deltas are -1, 0, 1."""
    bitmap = bytearray((width + 7) // 8)
    joined = b"".join(items)
    out = bytearray()
    for j in range(width):
        plane = joined[j::width]
        steps = bytes((b - a) & 0xFF for a, b in itertools.pairwise(b"\0" + plane))
        small = sum(step in (0, 1, 0xFF) for step in steps[1:])
        if small * 2 >= len(plane):
            bitmap[j // 8] |= 1 << j % 8
            plane = steps
        out += plane
    return bytes(bitmap) + bytes(out)
