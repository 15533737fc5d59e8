"""Intervals contain the truth as often as they promise, on simulated machines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from simulated_machine import MACHINES, blocks

from firn_lab.intervals import (
    BLOCKS_MIN,
    INTERVAL_MIN,
    Interval,
    paired,
    ratio,
    single,
    typical,
    whole,
)
from firn_lab.runner.blocks import Blocks

# Number of simulated runs for each machine. If the 95 % intervals are sound, almost never less than
# HELD_MIN of them contain the truth.
RUNS = 200
HELD_MIN = 0.90
# Number of blocks that fit into four minutes of rounds of 0.6 s.
BLOCKS = 200


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("effect", [1.0, 0.95])
def test_the_interval_holds_the_truth(name: str, effect: float) -> None:
    held, widths = 0, []
    for seed in range(RUNS):
        found = ratio(blocks(MACHINES[name], BLOCKS, np.random.default_rng(seed), effect))
        assert found is not None
        held += found.holds(effect)
        widths.append(found.half_width)
    assert held >= HELD_MIN * RUNS
    if name in ("calm", "shared", "drifting"):
        assert np.median(widths) <= 0.025
    if effect != 1.0 and name == "shared":
        # A difference of 5 % is detected.
        assert np.mean(np.asarray(widths) < 0.05) > 0.95


@pytest.mark.parametrize("name", ["calm", "shared", "restless"])
def test_stopping_early_costs_little_of_it(name: str) -> None:
    """A case ends as soon as its interval is narrow enough, which favours intervals that are too
    narrow by chance."""
    held = concluded = taken = 0
    for seed in range(RUNS):
        all_of_them = blocks(MACHINES[name], BLOCKS, np.random.default_rng(1000 + seed))
        case = Blocks(["a", "b"], "higher")
        for number, (one, other) in enumerate(all_of_them):
            case.add(number, "b", one)
            case.add(number, "a", other)
            case.close(number)
            if case.concluded(0.025):
                break
        found = case.ratios()["b"]
        concluded += found.concluded(0.025)
        taken += case.next
        held += found.holds(1.0)
    assert held >= (HELD_MIN - 0.02) * RUNS
    assert taken < RUNS * BLOCKS
    if name == "calm":
        assert concluded == RUNS and taken / RUNS < 50


@pytest.mark.parametrize("name", ["shared", "restless", "busy"])
def test_short_rounds_know_more_after_the_same_time(name: str) -> None:
    """Compares long rounds with short ones.

    The long rounds last 2 s after a lead of 1.25 s, in which a load driver starts; the short ones
    last 0.5 s, because their clients stay connected.
    """

    def width(count: int, measured: float, lead: float) -> float:
        widths = []
        for seed in range(RUNS // 4):
            rng = np.random.default_rng(seed)
            drawn = ratio(blocks(MACHINES[name], count, rng, measured=measured, lead=lead))
            assert drawn is not None
            widths.append(drawn.half_width)
        return float(np.median(widths))

    assert width(BLOCKS, 0.5, 0.1) < 0.7 * width(36, 2.0, 1.25)


def test_all_blocks_together_hold_the_truth_too() -> None:
    held = 0
    for seed in range(RUNS):
        drawn = blocks(MACHINES["calm"], BLOCKS, np.random.default_rng(seed), 0.95)
        found = whole([((one * 2, 2.0), (other * 2, 2.0)) for one, other in drawn])
        assert found is not None
        held += found.holds(0.95)
    assert held >= (HELD_MIN - 0.02) * RUNS


def test_a_typical_block_is_not_moved_by_one_of_ten() -> None:
    pairs = [(100.0 + n % 3, 100.0) for n in range(18)] + [(1.0, 100.0), (100.0, 3.0)]
    found = ratio(pairs)
    assert found is not None and 1.0 < found.value < 1.02
    everything = whole([((one, 1.0), (other, 1.0)) for one, other in pairs])
    assert everything is not None and everything.value == pytest.approx(
        sum(one for one, _ in pairs) / sum(other for _, other in pairs)
    )


def test_few_blocks_conclude_nothing() -> None:
    pairs = [(101.0, 100.0)] * (BLOCKS_MIN - 1)
    found = ratio(pairs)
    assert found is not None and found.half_width == pytest.approx(0)
    assert not found.concluded(0.025)
    more = ratio([*pairs, (101.0, 100.0)])
    assert more is not None and more.concluded(0.025)
    for count in range(1, INTERVAL_MIN):
        few = ratio(pairs[:count])
        assert few is not None and math.isinf(few.half_width) and few.low == few.high
    assert math.isinf(single(5.0).half_width)


def test_what_has_no_ratio_has_none() -> None:
    assert ratio([]) is None and ratio([(0.0, 5.0), (5.0, 0.0)]) is None
    assert whole([]) is None and whole([((1.0, 1.0), (0.0, 1.0))] * 5) is None
    assert typical([]) is None
    assert typical([3.0, 1.0]) == Interval(2.0, 2.0, 2.0, 2)
    assert paired({1: "a", 2: "b", 4: "d"}, {4: "D", 2: "B", 3: "C"}) == [("b", "B"), ("d", "D")]


def test_the_same_numbers_lead_to_the_same_interval() -> None:
    drawn = blocks(MACHINES["busy"], 20, np.random.default_rng(7))
    assert ratio(drawn) == ratio(list(drawn))
    middle = typical([one for one, _ in drawn])
    assert middle is not None and middle.low < middle.value < middle.high


def test_blocks_of_a_case() -> None:
    case = Blocks(["firn", "innodb", "rocksdb"], "lower", {"firn": {0: 2.0}, "innodb": {0: 4.0}})
    assert case.next == 1, "an earlier slice had one"
    for number in range(1, 15):
        for name, value in (("firn", 2.0), ("innodb", 4.0), ("rocksdb", 8.0)):
            if (name, number) != ("rocksdb", 3):
                case.add(number, name, value)
        case.close(number)
    found = case.ratios()
    assert {name: (each.value, each.count) for name, each in found.items()} == {
        "firn": (pytest.approx(2.0), 15),
        "rocksdb": (pytest.approx(0.5), 13),
    }
    assert case.concluded(0.025)
    case.leave_out("innodb")
    # Without InnoDB, the first of the remaining targets is the reference.
    assert {n: each.value for n, each in case.ratios().items()} == {"rocksdb": pytest.approx(0.25)}
    alone = Blocks(["firn"], "higher", {"firn": dict.fromkeys(range(12), 5.0)})
    assert alone.concluded(0.025) and alone.ratios() == {}
    assert not Blocks(["firn"], "higher").concluded(0.025)
