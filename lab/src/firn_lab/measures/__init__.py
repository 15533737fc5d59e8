"""Measures of a server beside throughput: one file per measure. See `measure`."""

from firn_lab.measures.measure import (
    ROUND_MEASURES,
    STATE_MEASURES,
    Probe,
    RoundMeasure,
    StateMeasure,
)

__all__ = ["ROUND_MEASURES", "STATE_MEASURES", "Probe", "RoundMeasure", "StateMeasure"]
