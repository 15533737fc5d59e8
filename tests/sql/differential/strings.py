"""Strings that distinguish collations and encodings, by character set."""

from __future__ import annotations

from random import Random

# Strings that compare differently with and without padding: characters below a space, trailing
# spaces, the empty string, both cases.
ASCII = [
    "",
    " ",
    "  ",
    "a",
    "A",
    "a ",
    "a  ",
    "a\t",
    "a\0",
    "a\x01",
    "\0",
    "\t",
    "\x01",
    " a",
    "ab",
    "aB",
    "AB",
    "a b",
    "a\tb",
    "b",
    "B",
    "abc",
    "abc\n",
    "abcd",
    "z",
    "zz",
    "0",
    "10",
    "9",
    "-1",
    "_",
    "a_c",
    "%",
    "a%b",
    "\\",
    "'",
    '"',
    "~",
    "a~",
    "\x7f",
    "ch",
    "cz",
    "CH",
    "ll",
    "lz",
    "dz",
    "ae",
    "oe",
    "ue",
    "ss",
    "SS",
    "aa",
    "AA",
    "i",
    "I",
    "y",
    "v",
    "w",
    "fi",
]
LATIN1 = [
    "ä",
    "Ä",
    "ö",
    "Ö",
    "ü",
    "Ü",
    "ß",
    "aß",
    "ssa",
    "ÿ",
    "é",
    "É",
    "è",
    "e",
    "æ",
    "Æ",
    "ø",
    "å",
    "Å",
    "ñ",
    "n",
    "þ",
    "ð",
    "×",
    "\xa0",
    "a\xa0",
    "é ",
    "äb",
    "aeb",
    "\xad",
    "a\xadb",
    "µ",
    "ý",
]
UTF8MB3 = [
    "č",
    "Č",
    "c",
    "dž",
    "ǆ",
    "a\u0301",
    "á",
    "e\u0301\u0327",
    "\u0301",
    "\u200b",
    "a\u200d",
    "\u200da",
    "ﬁ",
    "ı",
    "İ",
    "i\u0307",
    "ſ",
    "\u212b",
    "A\u030a",
    "ﷺ",
    "中",
    "中国",
    "日本",
    "한글",
    "\u1112\u1161\u11ab",
    "เก",
    "กเ",
    "Ω",
    "ω",
    "ς",
    "σ",
    "я",
    "Я",
    "ё",
    "е",
    "א",
    "\uffff",
    "\ufeff",
    "a\u00ad",
    "ß\t",
    "ẞ",
    "\u3042",
    "\u30a2",
    "\u2028",
    "ł",
    "l",
    "đ",
    "d",
    "\ufffd",
]
UTF8MB4 = [
    "😀",
    "😁",
    "a😀",
    "😀 ",
    "😀\t",
    "\U00010437",
    "\U0001040f",
    "\U0001d482",
    "\U0010ffff",
    "\U00020000",
    "\U0001f1e9\U0001f1ea",
    "\U0001f468\u200d\U0001f469",
]

# By character set: strings to add to the ASCII ones.
EXTRA = {
    "ascii": [],
    "latin1": LATIN1,
    "utf8mb3": LATIN1 + UTF8MB3,
    "ucs2": LATIN1 + UTF8MB3,
    "utf8mb4": LATIN1 + UTF8MB3 + UTF8MB4,
    "utf16": LATIN1 + UTF8MB3 + UTF8MB4,
    "utf16le": LATIN1 + UTF8MB3 + UTF8MB4,
    "utf32": LATIN1 + UTF8MB3 + UTF8MB4,
}

_CODECS = {
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "greek": "iso8859_7",
    "hebrew": "iso8859_8", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256",
    "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8_r",
    "koi8u": "koi8_u", "tis620": "tis_620", "macce": "mac_latin2", "macroman": "mac_roman",
    "big5": "big5", "gbk": "gbk", "gb2312": "gb2312", "sjis": "shift_jis", "cp932": "cp932",
    "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr",
}  # fmt: skip


def _encodable(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def alphabet(charset: str) -> list[str]:
    """Interesting strings that a column of this character set can hold."""
    if charset in EXTRA:
        return ASCII + EXTRA[charset]
    codec = _CODECS.get(charset)
    if codec is None:
        return ASCII
    return ASCII + [text for text in LATIN1 + UTF8MB3 if _encodable(text, codec)]


def random_text(rng: Random, words: list[str], length_max: int) -> str:
    """A string of at most `length_max` characters: often short, sometimes of that length."""
    shape = rng.random()
    if shape < 0.5:
        text = rng.choice(words)
    elif shape < 0.85:
        text = "".join(rng.choice(words) for _ in range(rng.randrange(1, 5)))
    elif shape < 0.93:
        text = rng.choice(words) + " " * rng.randrange(1, 4)
    else:
        unit = rng.choice(words) or "x"
        text = (unit * (length_max // len(unit) + 1))[:length_max]
        if rng.random() < 0.5 and text:
            text = text[:-1] + rng.choice(["a", "b", " ", "\t"])
    return text[:length_max]


def random_bytes(rng: Random, length_max: int) -> bytes:
    """At most `length_max` bytes: zeros, ones, spaces and common prefixes are frequent."""
    pool = [0, 0, 1, 0x20, 0x41, 0x61, 0x7F, 0x80, 0xFE, 0xFF, 0xFF]
    shape = rng.random()
    if shape < 0.1:
        length = length_max
    elif shape < 0.3:
        length = rng.choice([0, 1, 7, 8, 9, 15, 16, 17])
    else:
        length = rng.randrange(0, 5)
    return bytes(rng.choice(pool) for _ in range(min(length, length_max)))


def text_literal(text: str) -> str:
    """A literal of the string that is safe with every client character set and log."""
    return f"_utf8mb4 x'{text.encode().hex()}'" if text else "''"


def bytes_literal(value: bytes) -> str:
    """The bytes as a binary literal."""
    return f"x'{value.hex()}'"
