"""Encodes rows as FIRN's index entries: memcomparable keys, heads and tails.

docs/formats/key.md and row.md define the form. Collation weights are imitated instead of fetched
from the server, so that their size and entropy are about right.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import zstandard

from firn_lab.estimate.schema import Column, Index, Table
from firn_lab.estimate.values import Encode, encoder, is_integer, is_text, is_variable, variable

# FIRN's default of firn_blob_threshold: values of this length or more go to blob files.
BLOB_MIN = 4096
BLOB_HEADER = 32
_BLOB = zstandard.ZstdCompressor(level=1)
_OUT_OF_LINE = ("varchar", "varbinary", "text", "mediumtext", "longtext", "json", "blob",
                "mediumblob", "longblob")  # fmt: skip
# Types whose bytes in the record buffer sort like their values already.
_AS_STORED = ("decimal", "time", "datetime", "timestamp", "bit", "binary", "uuid", "inet6", "inet4")


@dataclass(frozen=True)
class Entry:
    """An index entry; `blob` is the number of bytes that it adds to blob files."""

    key: bytes
    head: bytes
    tail: bytes
    blob: int = 0


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class RowEncoder:
    """Encodes rows of the primary index. A row has a value for each column that is not virtual."""

    def __init__(self, table: Table, index_id: int) -> None:
        self._columns = [column for column in table.columns if not column.virtual]
        self._nullable = [n for n, column in enumerate(self._columns) if column.nullable]
        self._fixed: list[tuple[int, Encode]] = []
        self._variable: list[tuple[int, Column]] = []
        for n, column in enumerate(self._columns):
            if is_variable(column):
                self._variable.append((n, column))
            else:
                self._fixed.append((n, encoder(column)))
        places = {column.name: n for n, column in enumerate(self._columns)}
        parts = table.primary.parts if table.primary else ()
        self._key_columns = {column.name for column, _ in parts}
        self._key = [(places[column.name], KeyPart(column, prefix)) for column, prefix in parts]
        self._prefix = index_id.to_bytes(4, "big")

    def entry(self, row: Sequence[Any], number: int) -> Entry:
        """Encodes a row; `number` is the hidden row id of tables without a primary key."""
        key = self._prefix + b"".join(part.encode(row[n]) for n, part in self._key)
        if not self._key:
            key += number.to_bytes(8, "big")
        tail, blob = self._tail(row)
        return Entry(key, self._head(row), tail, blob)

    def _head(self, row: Sequence[Any]) -> bytes:
        nulls = bytearray((len(self._nullable) + 7) // 8)
        for bit, n in enumerate(self._nullable):
            if row[n] is None:
                nulls[bit // 8] |= 1 << bit % 8
        return b"\x01" + bytes(nulls) + b"".join(encode(row[n]) for n, encode in self._fixed)

    def _tail(self, row: Sequence[Any]) -> tuple[bytes, int]:
        if not self._variable:
            return b"", 0
        lengths, values, references, blob = bytearray(), [], bytearray(), 0
        for n, column in self._variable:
            value = b"" if row[n] is None else variable(row[n])
            if column.kind == "char":
                value = value.rstrip(b" ")
            if self._is_out_of_line(column, value):
                stored = stored_blob(value)
                references += _reference(n, value, stored, blob)
                blob += stored + BLOB_HEADER
                value = b""
            lengths += varint(len(value))
            values.append(value)
        trailer = bytes(references) + struct.pack("<I", len(references)) if references else b""
        return varint(len(lengths)) + bytes(lengths) + b"".join(values) + trailer, blob

    def _is_out_of_line(self, column: Column, value: bytes) -> bool:
        return (
            len(value) >= BLOB_MIN
            and column.kind in _OUT_OF_LINE
            and column.name not in self._key_columns
        )


def stored_blob(value: bytes) -> int:
    """Bytes of a value in a blob file. Compression applies only if it saves an eighth."""
    packed = len(_BLOB.compress(value))
    return packed if packed <= len(value) - len(value) // 8 else len(value)


def _reference(column: int, value: bytes, stored: int, offset: int) -> bytes:
    codec = 0 if stored == len(value) else 1
    out = varint(column + 1) + varint(7) + varint((zlib.crc32(value) << 4) + offset & 0xFFFFFFF)
    out += varint(len(value)) + bytes([codec]) + (varint(stored) if codec else b"")
    # A reference contains a checksum, which no compressor can make smaller. Imitate it with bytes
    # that are as random, from any hash.
    return out + hashlib.blake2b(value, digest_size=8).digest()


class KeyPart:
    """Encodes one part of an index key."""

    def __init__(self, column: Column, prefix: int | None) -> None:
        self.column = column
        self._prefix = prefix
        self._text = is_text(column)
        self._fixed = None if is_variable(column) else encoder(column)

    def encode(self, value: Any) -> bytes:
        if value is None:
            return b"\0"
        marker = b"\x01" if self.column.nullable else b""
        return marker + self._value(value)

    def _value(self, value: Any) -> bytes:
        if self._fixed is None:
            return self._string(variable(value))
        stored = self._fixed(value)
        kind = self.column.kind
        if kind in _AS_STORED:
            return stored if self._prefix is None else stored[: self._prefix]
        if kind in ("float", "double"):
            bits = stored[::-1]
            if bits[0] & 0x80:
                return bytes(byte ^ 0xFF for byte in bits)
            return bytes([bits[0] | 0x80]) + bits[1:]
        key = bytearray(stored[::-1])
        if is_integer(self.column) and not self.column.unsigned:
            key[0] ^= 0x80
        return bytes(key)

    def _string(self, value: bytes) -> bytes:
        if not self._text:
            cut = value if self._prefix is None else value[: self._prefix]
            return cut.replace(b"\x01", b"\x01\x02").replace(b"\0", b"\x01\x01") + b"\0"
        text = value.decode("latin-1" if self._one_byte else "utf-8", "replace")
        if self._prefix is not None:
            text = text[: self._prefix]
        return weights(text.rstrip(" "), self.column.collation)

    @property
    def _one_byte(self) -> bool:
        return not self.column.charset.startswith(("utf", "ucs"))

    @property
    def gives_back(self) -> str:
        """The kind of information that the key loses: "nothing", "spaces", "sign" or "text"."""
        if self._prefix is not None:
            return "nothing"
        if self.column.kind in ("float", "double"):
            return "sign"
        if not self._text:
            return "nothing"
        if self.column.collation.endswith("_bin"):
            return "spaces" if self.column.kind != "char" else "nothing"
        return "text"

    def rest(self, value: Any) -> bytes:
        """Bytes in the value of a secondary entry that restore the original from the key."""
        if value is None or self.gives_back == "nothing":
            return b""
        if self.gives_back == "sign":
            return b"\0"
        text = variable(value)
        if self.gives_back == "spaces":
            return varint(len(text) - len(text.rstrip(b" ")))
        if self.column.kind == "char":
            text = text.rstrip(b" ")
        return varint(len(text)) + text


def weights(text: str, collation: str) -> bytes:
    """Imitates a PAD SPACE sort key: weights, with a marker after each space and at the end."""
    by_character = "_bin" in collation
    wide = any(name in collation for name in ("unicode", "uca", "_0900", "_520"))
    out = bytearray()
    for character in text if by_character else text.upper():
        code = ord(character)
        if wide and not by_character:
            # UCA weights have two bytes: the high byte takes few values, the low byte many.
            unit = bytes([0x8E if character.isalnum() else 0x82, code * 23 & 0xFF])
        elif code < 0x80:
            unit = bytes([code])
        else:
            low = code - 0x80
            unit = bytes([0x80 + (low >> 8 & 0x6C), low & 0xFF])
        out += unit
        if character == " ":
            out.append(3)
    return bytes(out) + b" \x02"


class SecondaryEncoder:
    """Encodes secondary entries. A row holds the index parts, then those of the primary key."""

    def __init__(self, table: Table, index: Index, index_id: int) -> None:
        primary = table.primary.parts if table.primary else ()
        self._parts = [KeyPart(column, prefix) for column, prefix in (*index.parts, *primary)]
        seen: set[str] = set()
        self._items: list[int] = []
        for n, part in enumerate(self._parts):
            if part.gives_back != "nothing" and part.column.name not in seen:
                seen.add(part.column.name)
                self._items.append(n)
        self._hidden = not primary
        self._prefix = index_id.to_bytes(4, "big")

    def entry(self, row: Sequence[Any], number: int) -> Entry:
        key = self._prefix + b"".join(
            part.encode(value) for part, value in zip(self._parts, row, strict=True)
        )
        if self._hidden:
            # Row ids follow the order of the inserts, so in the order of this index they are
            # effectively random.
            key += (zlib.crc32(key) ^ number).to_bytes(8, "big")
        value = b"".join(self._parts[n].rest(row[n]) for n in self._items)
        return Entry(key, value if any(value) else b"", b"")
