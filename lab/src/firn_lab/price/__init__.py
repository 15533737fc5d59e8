"""Cost of a result: prices, and the cost of work and of space at these prices."""

from firn_lab.price.catalogue import Prices, load_catalogue
from firn_lab.price.cost import BreakEven, Cost, break_even, cost, ios

__all__ = ["BreakEven", "Cost", "Prices", "break_even", "cost", "ios", "load_catalogue"]
