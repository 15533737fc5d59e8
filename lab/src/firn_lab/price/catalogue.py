"""Prices from the command line, or from a small catalogue file.

A catalogue is TOML; an offer omits the items that it does not charge for:

    [[offer]]
    name = "small machine, network volume"
    hour = 0.10             # the machine
    gb_month = 0.08         # a GB (10^9 bytes) stored for a month
    million_ios = 0.20      # a million I/Os of the volume
    io_kib = 16             # the most that one I/O moves
    currency = "USD"
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firn_lab.errors import UsageError

_PRICES = ("hour", "gb_month", "million_ios")
_NUMBERS = (*_PRICES, "io_kib")


@dataclass(frozen=True)
class Prices:
    """Prices of one provider. `io_kib`: a larger request counts as several I/Os."""

    name: str = "prices as given"
    hour: float = 0.0
    gb_month: float = 0.0
    million_ios: float = 0.0
    io_kib: float = 16.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"{self.name}: {name} takes a number, not {value!r}")
            if not 0 <= value < math.inf:
                raise UsageError(f"{self.name}: {name} must be finite and not negative")
        if self.io_kib == 0:
            raise UsageError(f"{self.name}: io_kib must be above zero")


def load_catalogue(path: Path) -> list[Prices]:
    """All offers of a catalogue file."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    offers = content.get("offer")
    if not isinstance(offers, list) or not offers or set(content) != {"offer"}:
        raise UsageError(f"{path}: a catalogue consists of [[offer]] tables")
    found = [_offer(path, offer) for offer in offers]
    names = [offer.name for offer in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path}: two offers have the name {', '.join(twice)}")
    return found


def _offer(path: Path, offer: Any) -> Prices:
    if not isinstance(offer, dict):
        raise UsageError(f"{path}: a catalogue consists of [[offer]] tables")
    unknown = set(offer) - {"name", "currency", *_NUMBERS}
    if unknown:
        raise UsageError(f"{path}: unknown: {', '.join(sorted(unknown))}")
    for key in ("name", "currency"):
        value = offer.get(key, "USD" if key == "currency" else None)
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{path}: an offer needs a {key}, which is a text")
    if not set(offer) & set(_PRICES):
        raise UsageError(f"{path}: {offer['name']} has no price: {', '.join(_PRICES)}")
    try:
        return Prices(**offer)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
