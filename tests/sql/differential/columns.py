"""Random column types, and values at their limits and close to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .strings import alphabet, bytes_literal, random_bytes, random_text, text_literal

# The most common collations; `Types.other_collations` covers all others of the server.
COLLATIONS = [
    "latin1_swedish_ci", "latin1_bin", "latin1_general_ci", "latin1_general_cs",
    "latin1_german2_ci", "latin1_nopad_bin", "latin1_swedish_nopad_ci", "ascii_general_ci",
    "utf8mb3_general_ci", "utf8mb3_bin", "utf8mb3_unicode_ci", "utf8mb3_general_nopad_ci",
    "utf8mb3_unicode_520_ci", "utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci", "utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_nopad_ci", "utf8mb4_unicode_520_nopad_ci", "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_as_cs", "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_czech_ci",
    "utf8mb4_danish_ci", "utf8mb4_german2_ci", "utf8mb4_turkish_ci", "utf8mb4_hungarian_ci",
]  # fmt: skip

Maker = Callable[[Random], str]


@dataclass
class Column:
    """A column's definition and the source of its values.

    `family` groups columns that compare without conversion (for joins). `key_bytes` is the size of
    a whole value in an index; 0 means that an index needs a prefix, of `prefix_unit` bytes per
    character. `sortable` columns have one spelling for equal values (no case, no -0), so that MIN
    and MAX are determined. `opaque` columns must not be in a prefix index that the server uses for
    ranges: it reads wrong ranges, because the collation does not compare character by character.
    """

    name: str
    type: str
    family: str
    make: Maker
    nullable: bool = True
    key_bytes: int = 8
    prefix_unit: int = 0
    length_max: int = 0
    sortable: bool = True
    numeric: bool = False
    generated: str = ""
    auto_increment: bool = False
    opaque: bool = False
    pool: list[str] = field(default_factory=list)

    @property
    def text(self) -> bool:
        """Whether it holds characters with a collation."""
        return self.family.startswith("text:")

    @property
    def plain_collation(self) -> bool:
        """Whether each character has a weight of its own (no contractions, no ignorables)."""
        if not self.text:
            return True
        plain = ("_bin", "_general_ci", "_general_cs", "_swedish_ci", "_general_nopad_ci",
                 "_swedish_nopad_ci")  # fmt: skip
        return self.family.endswith(plain)

    @property
    def definition(self) -> str:
        """The column's definition in CREATE TABLE."""
        if self.generated:
            return f"{self.name} {self.type} {self.generated}"
        null = "" if self.nullable else " NOT NULL"
        auto = " AUTO_INCREMENT" if self.auto_increment else ""
        return f"{self.name} {self.type}{null}{auto}"

    def literal(self, rng: Random, fresh: float = 0.3) -> str:
        """A value as SQL, mostly one that was used before, so that statements find rows."""
        if self.nullable and rng.random() < 0.12:
            return "NULL"
        if self.pool and rng.random() > fresh:
            return rng.choice(self.pool)
        value = self.make(rng)
        if len(self.pool) < 24:
            self.pool.append(value)
        return value


def _integer(low: int, high: int) -> Maker:
    edges = [low, low + 1, high, high - 1, 0, 1, max(low, -1)]

    def make(rng: Random) -> str:
        shape = rng.random()
        if shape < 0.6:
            return str(rng.randrange(max(low, -5), min(high, 30)))
        if shape < 0.8:
            return str(rng.choice(edges))
        return str(rng.randrange(low, high + 1))

    return make


def _floating(single: bool) -> Maker:
    edges = ["0e0", "-0e0", "1.5e0", "-1.5e0", "1e-30", "-1e-30", "1e30", "-1e30", "0.1e0"]
    if not single:
        edges += ["1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "1e-310"]

    def make(rng: Random) -> str:
        if rng.random() < 0.5:
            return rng.choice(edges)
        return f"{rng.randrange(-2000, 2000) / 8}e0"

    return make


def _decimal(precision: int, scale: int) -> Maker:
    def make(rng: Random) -> str:
        digits = rng.choice([0, 1, scale, precision, rng.randrange(0, precision + 1)])
        number = rng.randrange(0, 10**digits) if digits else 0
        if rng.random() < 0.1:
            number = 10**precision - 1
        sign = "-" if rng.random() < 0.4 and number else ""
        text = str(number).rjust(scale + 1, "0")
        return f"{sign}{text[: len(text) - scale]}" + (f".{text[-scale:]}" if scale else "")

    return make


def _bits(width: int) -> Maker:
    def make(rng: Random) -> str:
        value = rng.choice([0, 1, 2**width - 1, rng.randrange(2**width), 2 ** (width - 1)])
        return f"b'{value:b}'"

    return make


def _fraction(rng: Random, digits: int) -> str:
    return f".{rng.randrange(10**digits):0{digits}d}" if digits else ""


def _date(rng: Random) -> str:
    year = rng.choice([1000, 1970, 1999, 2000, 2024, 2038, 9999, rng.randrange(1000, 9999)])
    return f"{year:04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def _clock(rng: Random, digits: int) -> str:
    hour, minute, second = rng.randrange(24), rng.randrange(60), rng.randrange(60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{_fraction(rng, digits)}"


def _temporal(kind: str, digits: int) -> Maker:
    def make(rng: Random) -> str:
        if kind == "DATE":
            return f"'{_date(rng)}'"
        if kind == "TIME":
            sign = rng.choice(["", "-"])
            hours = rng.choice([0, 0, 1, 23, 100, 838])
            fraction = "" if hours == 838 else _fraction(rng, digits)
            return f"'{sign}{hours:02d}:{rng.randrange(60):02d}:{rng.randrange(59):02d}{fraction}'"
        if kind == "TIMESTAMP":
            year = rng.choice([1971, 1999, 2000, 2024, 2037])
            return f"'{year}-{rng.randrange(1, 13):02d}-02 {_clock(rng, digits)}'"
        return f"'{_date(rng)} {_clock(rng, digits)}'"

    return make


def _json(rng: Random) -> str:
    values = ["{}", "[]", "null", "1", '"a"', '{"a": 1}', '{"a": [1, 2, {"b": "x"}]}', "[1,2,3]"]
    return text_literal(rng.choice(values))


class Types:
    """Generates random columns. `other_collations` are all collations of the server."""

    def __init__(self, rng: Random, other_collations: list[str]) -> None:
        self.rng = rng
        self.other_collations = other_collations

    def column(self, name: str) -> Column:
        """A column of a random type."""
        rng = self.rng
        family = rng.random()
        if family < 0.26:
            column = self._integer_column(name)
        elif family < 0.38:
            column = self._number_column(name)
        elif family < 0.52:
            column = self._temporal_column(name)
        elif family < 0.84:
            column = self._text_column(name)
        elif family < 0.94:
            column = self._binary_column(name)
        else:
            column = self._other_column(name)
        column.nullable = rng.random() < 0.65
        return column

    def integer(self, name: str) -> Column:
        """An integer column, for tables that need a cheap key."""
        return Column(name, "INT", "int", _integer(-(2**31), 2**31 - 1), numeric=True)

    def _integer_column(self, name: str) -> Column:
        word, bits = self.rng.choice(
            [("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("INT", 32),
             ("BIGINT", 64)]
        )  # fmt: skip
        if self.rng.random() < 0.4:
            make = _integer(0, 2**bits - 1)
            return Column(name, f"{word} UNSIGNED", "int", make, numeric=True)
        make = _integer(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return Column(name, word, "int", make, numeric=True)

    def _number_column(self, name: str) -> Column:
        rng = self.rng
        kind = rng.choice(["FLOAT", "DOUBLE", "DECIMAL", "DECIMAL", "BIT"])
        if kind == "DECIMAL":
            precision = rng.choice([1, 5, 9, 10, 18, 20, 38, 65])
            scale = rng.choice([0, min(precision, 2), min(precision, 38)])
            make = _decimal(precision, scale)
            sql = f"DECIMAL({precision},{scale})"
            return Column(name, sql, f"decimal:{precision}", make, key_bytes=30, numeric=True)
        if kind == "BIT":
            width = rng.choice([1, 2, 7, 8, 9, 16, 31, 33, 63, 64])
            return Column(name, f"BIT({width})", "bit", _bits(width), sortable=False)
        return Column(name, kind, kind.lower(), _floating(kind == "FLOAT"), sortable=False)

    def _temporal_column(self, name: str) -> Column:
        rng = self.rng
        kind = rng.choice(["DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR"])
        if kind == "YEAR":
            years = ["0", "1901", "1970", "1999", "2000", "2024", "2155"]
            return Column(name, "YEAR", "year", lambda r: r.choice(years), sortable=False)
        digits = 0 if kind == "DATE" else rng.choice([0, 0, 1, 2, 3, 4, 5, 6])
        sql = kind if kind == "DATE" or not digits else f"{kind}({digits})"
        return Column(name, sql, kind.lower(), _temporal(kind, digits))

    def _collation(self) -> str:
        if self.other_collations and self.rng.random() < 0.2:
            return self.rng.choice(self.other_collations)
        return self.rng.choice(COLLATIONS)

    def _text_column(self, name: str) -> Column:
        rng = self.rng
        collation = self._collation()
        charset = collation.split("_", 1)[0]
        words = alphabet(charset)
        width = {"latin1": 1, "ascii": 1, "utf8mb3": 3, "ucs2": 2}.get(charset, 4)
        suffix = f"CHARACTER SET {charset} COLLATE {collation}"
        kind = rng.choice(["CHAR", "VARCHAR", "VARCHAR", "TEXT", "ENUM", "SET"])
        family = f"text:{collation}"
        if kind == "CHAR" and ("nopad" in collation or charset in ("ucs2", "utf16", "utf32")):
            # Take no CHAR here. The server compares NOPAD values padded or stripped, depending on
            # the plan. In the character sets ucs2, utf16 and utf32, InnoDB misses rows of ranges if
            # a value has only ignorable characters.
            kind = "VARCHAR"
        if kind in ("ENUM", "SET"):
            # Members of an ENUM or SET must differ from each other under every collation.
            members = ["a", "b", "cd", "x y", "zz"] if kind == "ENUM" else ["a", "b", "cd", "z"]
            sql = f"{kind}({','.join(repr(m) for m in members)}) {suffix}"
            if kind == "ENUM":
                return Column(name, sql, "enum", lambda r: f"'{r.choice(members)}'", sortable=False)
            return Column(
                name, sql, "set",
                lambda r: "'" + ",".join(m for m in members if r.random() < 0.4) + "'",
                sortable=False,
            )  # fmt: skip
        if kind == "TEXT":
            size = rng.choice(["TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
            length = 60 if size == "TINYTEXT" else rng.choice([300, 3000, 9000])
            sql, whole = f"{size} {suffix}", 0
        else:
            length = rng.choice([1, 3, 10, 30, 60, 255])
            if kind == "VARCHAR" and rng.random() < 0.3:
                length = rng.choice([63, 64, 85, 86, 255, 256, 300, 700])
            sql, whole = f"{kind}({length}) {suffix}", length * width + 2
        return Column(
            name, sql, family, lambda r: text_literal(random_text(r, words, length)),
            key_bytes=whole, prefix_unit=width, length_max=length, sortable=False,
        )  # fmt: skip

    def _binary_column(self, name: str) -> Column:
        rng = self.rng
        kind = rng.choice(["BINARY", "VARBINARY", "VARBINARY", "BLOB"])
        if kind == "BLOB":
            size = rng.choice(["TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"])
            length = 255 if size == "TINYBLOB" else rng.choice([300, 5000, 20000])
            sql, whole = size, 0
        else:
            length = rng.choice([1, 4, 8, 9, 16, 100, 255])
            if kind == "VARBINARY" and rng.random() < 0.3:
                length = rng.choice([256, 1000])
            sql, whole = f"{kind}({length})", length + 2
        return Column(
            name, sql, "binary", lambda r: bytes_literal(random_bytes(r, length)),
            key_bytes=whole, prefix_unit=1, length_max=length, sortable=kind != "BLOB",
        )  # fmt: skip

    def _other_column(self, name: str) -> Column:
        rng = self.rng
        kind = rng.choice(["JSON", "UUID", "INET4", "INET6", "COMPRESSED", "POINT"])
        if kind == "UUID":

            def uuid(r: Random) -> str:
                tail = r.choice(["000000000000", "ffffffffffff", f"{r.randrange(2**48):012x}"])
                return f"'{r.randrange(4):08x}-0000-{r.choice([1, 4])}000-8000-{tail}'"

            return Column(name, "UUID", "uuid", uuid, key_bytes=16)
        if kind == "INET4":
            return Column(
                name, "INET4", "inet4", lambda r: f"'10.{r.randrange(3)}.255.{r.randrange(5)}'"
            )
        if kind == "INET6":
            addresses = ["::", "::1", "ff02::1", "2001:db8::1", "::ffff:1.2.3.4"]
            return Column(
                name, "INET6", "inet6", lambda r: f"'{r.choice(addresses)}'", key_bytes=16
            )
        if kind == "JSON":
            return Column(name, "JSON", "json", _json, key_bytes=-1, sortable=False)
        if kind == "POINT":
            return Column(
                name, "POINT", "point", lambda r: f"POINT({r.randrange(3)},{r.randrange(3)})",
                key_bytes=-1, sortable=False,
            )  # fmt: skip
        words = alphabet("utf8mb4")
        return Column(
            name, "VARCHAR(500) CHARACTER SET utf8mb4 COMPRESSED", "text:utf8mb4_general_ci",
            lambda r: text_literal(random_text(r, words, 500)), key_bytes=-1, sortable=False,
        )  # fmt: skip
