"""Clauses 2.1.6 and 4.3.2: the non-uniform distribution, its constants, names and strings."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from firn_lab.workloads.sql_session import text

SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
# Differences that clause 2.1.6.1 allows between the NURand constants for last names that load and
# run use.
DELTAS = tuple(delta for delta in range(65, 120) if delta not in (96, 112))


def nurand(random: Random, a: int, low: int, high: int, constant: int) -> int:
    """NURand(A, x, y): a value between `low` and `high`, some of which are much more frequent."""
    mixed = random.randint(0, a) | random.randint(low, high)
    return (mixed + constant) % (high - low + 1) + low


@dataclass(frozen=True)
class Constants:
    """The constant C of NURand for each use."""

    last_load: int
    last_run: int
    customer: int
    item: int


def constants(seed: int) -> Constants:
    """Constants from the seed, the same for the data and every session."""
    random = Random(f"tpcc constants {seed}")
    last_load = random.randint(0, 255)
    moves = [
        last_load + sign * delta
        for delta in DELTAS
        for sign in (1, -1)
        if 0 <= last_load + sign * delta <= 255
    ]
    return Constants(
        last_load, random.choice(moves), random.randint(0, 1023), random.randint(0, 8191)
    )


def last_name(number: int) -> str:
    """The last name of a number 0 to 999: a syllable for each digit."""
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


def string(random: Random, low: int, high: int) -> str:
    """A random a-string (clause 4.3.2.2)."""
    return text(random, random.randint(low, high))


def digits(random: Random, length: int) -> str:
    """A random n-string (clause 4.3.2.2)."""
    return f"{random.randrange(10**length):0{length}d}"


def zip_code(random: Random) -> str:
    return digits(random, 4) + "11111"


def with_original(random: Random) -> str:
    """I_DATA and S_DATA: one of ten contains ORIGINAL at a random position."""
    data = string(random, 26, 50)
    if random.randrange(10):
        return data
    at = random.randint(0, len(data) - 8)
    return data[:at] + "ORIGINAL" + data[at + 8 :]
