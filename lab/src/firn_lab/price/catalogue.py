"""Prices from the command line, or from a small catalogue file.

A catalogue is TOML; an offer omits the items that it does not charge for:

    [[offer]]
    name = "small machine, network volume"
    hour = 0.10             # the machine
    cores = 2               # its cores, if their time counts in break-evens
    gb_month = 0.08         # a GB (10^9 bytes) stored for a month
    million_ios = 0.20      # a million I/Os of the volume
    iops_month = 0.005      # one I/O a second of the volume, provisioned for a month
    io_kib = 16             # the most that one I/O moves
    currency = "USD"

    # For break-evens alone, see `keeping`:
    more_hour = 0.03        # how much more a machine with more memory costs an hour
    more_gib = 8            # how much more memory it has
    node_hour = 0.06        # a node of the memory pool; or memory_gb_month, of a GB of nodes
    node_gib = 8            # the memory of this node, as memcached's option -m has it
    node_traffic_gb = 0.01  # a GB between the server and the nodes
    bucket_gb_month = 0.023 # a GB stored in the object store for a month
    million_gets = 0.40     # a million reads of the object store
    million_puts = 5.00     # a million writes
    traffic_gb = 0.01       # a GB read from the object store
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firn_lab.errors import UsageError

HOUR_SECONDS = 3600
MONTH_SECONDS = 730 * HOUR_SECONDS

# Each offer has one of these prices at least: of the machine or of its volume.
PRICES = ("hour", "gb_month", "million_ios", "iops_month")
# The largest number, as of options, and the smallest one by which the command divides: products
# and quotients of numbers stay finite.
_MOST = 1e15
LEAST = 1e-6
_ABOVE_ZERO = ("io_kib", "cores", "more_gib", "node_gib")
# Numbers that mean nothing unless another one is given.
_NEEDS = {
    "cores": ("hour",),
    "more_hour": ("more_gib",),
    "more_gib": ("more_hour",),
    "node_hour": ("node_gib",),
    "node_gib": ("node_hour",),
    "node_traffic_gb": ("node_hour", "memory_gb_month"),
    "bucket_gb_month": ("gb_month",),
    "million_gets": ("bucket_gb_month",),
    "million_puts": ("bucket_gb_month",),
    "traffic_gb": ("bucket_gb_month",),
}


@dataclass(frozen=True)
class Prices:
    """Prices of one provider. `io_kib`: a larger request counts as several I/Os.

    None is a thing that the offer does not have, 0 is one that costs nothing.
    """

    name: str = "prices as given"
    hour: float = 0.0
    gb_month: float = 0.0
    million_ios: float = 0.0
    iops_month: float = 0.0
    io_kib: float = 16.0
    cores: float | None = None
    more_hour: float | None = None
    more_gib: float | None = None
    memory_gb_month: float | None = None
    node_hour: float | None = None
    node_gib: float | None = None
    node_traffic_gb: float = 0.0
    bucket_gb_month: float | None = None
    million_gets: float = 0.0
    million_puts: float = 0.0
    traffic_gb: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in NUMBERS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"{self.name}: {name} takes a number, not {value!r}")
            if not 0 <= value < math.inf:
                raise UsageError(f"{self.name}: {name} must be finite and not negative")
            if value > _MOST:
                raise UsageError(f"{self.name}: {name} must be {_MOST:g} at most")
            if name in _ABOVE_ZERO and value < LEAST:
                raise UsageError(f"{self.name}: {name} must be above zero, {LEAST:g} at least")
        for name, needed in _NEEDS.items():
            if self._has(name) and not any(self._has(other) for other in needed):
                raise UsageError(f"{self.name}: {name} needs {' or '.join(needed)}")
        if self.memory_gb_month is not None and self.node_hour is not None:
            raise UsageError(
                f"{self.name}: node_hour and memory_gb_month are two prices for one memory"
            )

    def _has(self, name: str) -> bool:
        """Whether the number is given. Zero is as good as none where it is the default."""
        value = getattr(self, name)
        return value is not None and (value != 0 or _DEFAULTS[name] is None)

    @property
    def io(self) -> float:
        """The price of an I/O. Provisioned ones count as used all the time."""
        return self.million_ios / 1e6 + self.iops_month / MONTH_SECONDS


_DEFAULTS: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(Prices)}
NUMBERS = tuple(name for name in _DEFAULTS if name not in ("name", "currency"))


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
    unknown = set(offer) - {"name", "currency", *NUMBERS}
    if unknown:
        raise UsageError(f"{path}: unknown: {', '.join(sorted(unknown))}")
    for key in ("name", "currency"):
        value = offer.get(key, "USD" if key == "currency" else None)
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{path}: an offer needs a {key}, which is a text")
    if not set(offer) & set(PRICES):
        raise UsageError(f"{path}: {offer['name']} has no price: {', '.join(PRICES)}")
    try:
        return Prices(**offer)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
