"""Converts values from the client's form to the form of the server's record buffer.

Rows are selected with `expression`, so that every value arrives as text or bytes of a known form.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from firn_lab.estimate.schema import Column, quoted

_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
_TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
# Bytes of a DECIMAL group by its number of digits.
_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_FRACTION_BYTES = (0, 1, 1, 2, 2, 3, 3)

Encode = Callable[[Any], bytes]


def is_variable(column: Column) -> bool:
    """Whether FIRN stores the column in the tail of a row."""
    return column.kind in _TEXT or column.kind in _BYTES or column.kind not in _FIXED


def is_text(column: Column) -> bool:
    return column.kind in _TEXT


def is_integer(column: Column) -> bool:
    return column.kind in _INTEGERS


def expression(column: Column) -> str:
    """The SQL expression that selects a column."""
    name = quoted(column.name)
    if column.kind in ("enum", "set"):
        return f"{name} + 0"
    if column.kind == "timestamp":
        return f"UNIX_TIMESTAMP({name})"
    if column.kind == "float":
        # The text form of FLOAT has only six digits.
        return f"CAST({name} AS DOUBLE)"
    if column.kind in _TEXT:
        return f"CAST({name} AS BINARY)"
    if column.kind in _FIXED or column.kind in _BYTES:
        return name
    return f"CAST({name} AS BINARY)"  # GEOMETRY and unknown types.


def variable(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes) else str(value).encode()


def width(column: Column) -> int:
    """Bytes of a fixed-width column."""
    return len(encoder(column)(None))


def encoder(column: Column) -> Encode:
    """A function that encodes values of a fixed-width column; NULL becomes zeros."""
    return _FIXED[column.kind](column)


def _of(size: int, encode: Encode) -> Encode:
    zeros = bytes(size)
    return lambda value: zeros if value is None else encode(value)


def _integer(column: Column) -> Encode:
    size = _INTEGERS[column.kind]
    mask = (1 << 8 * size) - 1
    return _of(size, lambda value: (int(value) & mask).to_bytes(size, "little"))


def _float(form: str, column: Column) -> Encode:
    return _of(struct.calcsize(form), lambda value: struct.pack(form, float(value)))


def _decimal(column: Column) -> Encode:
    """An encoder of DECIMAL values in the server's form.

    The digits are big-endian numbers of up to nine digits each. A negative value has all bytes
    inverted; then the first bit of any value is flipped.
    """
    whole, scale = column.precision - column.scale, column.scale
    groups = [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9)
    groups += [9] * (scale // 9) + [scale % 9] * (scale % 9 > 0)
    size = sum(_DIGITS[group] for group in groups)

    def encode(value: Any) -> bytes:
        number = Decimal(value)
        digits = str(int(abs(number).scaleb(scale))).rjust(whole + scale, "0")
        out, at = bytearray(), 0
        for group in groups:
            out += int(digits[at : at + group]).to_bytes(_DIGITS[group], "big")
            at += group
        if number < 0:
            out = bytearray(byte ^ 0xFF for byte in out)
        out[0] ^= 0x80
        return bytes(out)

    return _of(size, encode)


def _numbers(value: Any) -> tuple[list[int], int]:
    """The numbers in the text of a date or time, and its microseconds."""
    text, _, fraction = str(value).partition(".")
    for separator in "-: ":
        text = text.replace(separator, " ")
    return [int(field) for field in text.split()], int(fraction.ljust(6, "0") or 0)


def _fraction(column: Column, micros: int) -> bytes:
    digits = column.fraction + column.fraction % 2
    unit = int(10 ** (6 - digits))
    return (micros // unit).to_bytes(_FRACTION_BYTES[column.fraction], "big")


def _date(column: Column) -> Encode:
    def encode(value: Any) -> bytes:
        (year, month, day), _ = _numbers(value)
        return (day + month * 32 + year * 512).to_bytes(3, "little")

    return _of(3, encode)


def _datetime(column: Column) -> Encode:
    def encode(value: Any) -> bytes:
        (year, month, day, *clock), micros = _numbers(value)
        hour, minute, second = [*clock, 0, 0, 0][:3]
        days = (year * 13 + month) << 5 | day
        packed = days << 17 | hour << 12 | minute << 6 | second
        return (packed + (1 << 39)).to_bytes(5, "big") + _fraction(column, micros)

    return _of(5 + _FRACTION_BYTES[column.fraction], encode)


def _timestamp(column: Column) -> Encode:
    def encode(value: Any) -> bytes:
        seconds, _, fraction = str(value).partition(".")
        micros = int(fraction[:6].ljust(6, "0"))
        return max(0, int(seconds)).to_bytes(4, "big") + _fraction(column, micros)

    return _of(4 + _FRACTION_BYTES[column.fraction], encode)


def _time(column: Column) -> Encode:
    def encode(value: Any) -> bytes:
        negative = str(value).startswith("-")
        (hour, minute, second), micros = _numbers(str(value).lstrip("-"))
        packed = hour << 12 | minute << 6 | second
        packed = (1 << 23) + (-packed if negative else packed)
        return packed.to_bytes(3, "big") + _fraction(column, micros)

    return _of(3 + _FRACTION_BYTES[column.fraction], encode)


def _year(column: Column) -> Encode:
    return _of(1, lambda value: bytes([max(0, int(value) - 1900) & 0xFF]))


def _choice(column: Column) -> Encode:
    """An encoder of ENUM and SET values, whose width follows from the number of members."""
    members = column.type_text.count("','") + 1
    if column.kind == "enum":
        size = 1 if members < 256 else 2
    else:
        size = next(bytes_ for bytes_ in (1, 2, 3, 4, 8) if members <= 8 * bytes_)
    return _of(size, lambda value: int(float(value)).to_bytes(size, "little"))


def _bit(column: Column) -> Encode:
    size = (max(1, column.precision) + 7) // 8
    return _of(size, lambda value: variable(value)[-size:].rjust(size, b"\0"))


def _binary(column: Column) -> Encode:
    return _of(column.octets, lambda value: variable(value).ljust(column.octets, b"\0"))


def _uuid(column: Column) -> Encode:
    """An encoder of UUIDs in the server's form.

    The groups stand in reverse order, so that version 1 ids sort by time.
    """

    def encode(value: Any) -> bytes:
        parts = [bytes.fromhex(part) for part in str(value).split("-")]
        return b"".join(reversed(parts))

    return _of(16, encode)


def _address(column: Column) -> Encode:
    return _of(
        16 if column.kind == "inet6" else 4, lambda value: ipaddress.ip_address(str(value)).packed
    )


_FIXED: dict[str, Callable[[Column], Encode]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "float": partial(_float, "<f"),
    "double": partial(_float, "<d"),
    "decimal": _decimal,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "year": _year,
    "enum": _choice,
    "set": _choice,
    "bit": _bit,
    "binary": _binary,
    "uuid": _uuid,
    "inet6": _address,
    "inet4": _address,
}
