"""Cost of a result: prices, and the cost of work and of space at these prices.

Also the break-evens of memory pool, memory and object store, which need no result.
"""

from firn_lab.price.catalogue import NUMBERS, PRICES, Prices, load_catalogue
from firn_lab.price.cost import BreakEven, Cost, break_even, cost, ios
from firn_lab.price.keeping import Choice, Sizes, choices

__all__ = [
    "NUMBERS",
    "PRICES",
    "BreakEven",
    "Choice",
    "Cost",
    "Prices",
    "Sizes",
    "break_even",
    "choices",
    "cost",
    "ios",
    "load_catalogue",
]
