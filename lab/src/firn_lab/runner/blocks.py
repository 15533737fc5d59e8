"""The blocks of a case while it is measured, with the ratios so far and their precision.

A block is one round on each target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from firn_lab.intervals import Interval, paired, ratio, typical


def reference_of(names: Iterable[str]) -> str | None:
    """The target that the others are compared with: InnoDB, else the first one."""
    listed = list(names)
    return "innodb" if "innodb" in listed else next(iter(listed), None)


def order(names: Sequence[str], seed: int, label: str, number: int) -> list[str]:
    """A random order of the targets for one block, reproducible from the seed."""
    drawn = list(names)
    Random(f"{seed} {label} {number}").shuffle(drawn)
    return drawn


class Blocks:
    """Headline figures of one case by target and block number, and the ratios between targets."""

    def __init__(
        self, names: Sequence[str], better: str, before: Mapping[str, Mapping[int, float]] = {}
    ) -> None:
        """`before`: the figures that the run measured before it was resumed.

        Its keys are target names, then block numbers.
        """
        self._reference = reference_of(names)
        self._better = better
        self._values = {name: dict(before.get(name, {})) for name in names}
        self._known: tuple[int, dict[str, Interval]] = (0, {})
        # The new block follows the highest block number in `before`. A block in which all rounds
        # failed has no figures and so is missing in `before`. If it was the last block of the
        # earlier slices, the new block gets the same number.
        self._next = max((max(each, default=-1) for each in before.values()), default=-1) + 1

    @property
    def next(self) -> int:
        """Number of the next block. A block whose rounds all failed has used up its number, too."""
        return self._next

    def close(self, number: int) -> None:
        """Ends a block, whether or not its rounds gave figures."""
        self._next = number + 1

    def add(self, number: int, name: str, value: float) -> None:
        self._values[name][number] = value

    def leave_out(self, name: str) -> None:
        """Removes a failed target, so that the conclusion does not wait for it."""
        self._values.pop(name, None)
        self._known = (0, {})
        self._reference = reference_of(self._values)

    def ratios(self) -> dict[str, Interval]:
        """Ratio of each target to the reference, oriented so that more is better.

        The bootstrap is slow, so the ratios are computed again only when the number of figures has
        grown by 5 %.
        """
        at, known = self._known
        now = sum(map(len, self._values.values()))
        if not known or now >= at + max(1, at // 20):
            known = self._computed()
            self._known = (now, known)
        return known

    def _computed(self) -> dict[str, Interval]:
        base = self._values.get(self._reference or "", {})
        found = {}
        for name, values in self._values.items():
            if name != self._reference:
                pairs = paired(values, base)
                if self._better == "lower":
                    pairs = [(other, one) for one, other in pairs]
                each = ratio(pairs)
                if each is not None:
                    found[name] = each
        return found

    def concluded(self, within: float) -> bool:
        """Whether every ratio is known to plus or minus this fraction.

        With a single target there is no ratio, and the precision of its figure decides.
        """
        if len(self._values) > 1:
            found: list[Interval | None] = list(self.ratios().values())
            if len(found) < len(self._values) - 1:
                return False
        else:
            found = [typical(list(values.values())) for values in self._values.values()]
        return bool(found) and all(each is not None and each.concluded(within) for each in found)
