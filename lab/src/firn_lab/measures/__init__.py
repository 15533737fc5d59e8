"""Measures of a server beside throughput: one file per measure. See `base`."""

from firn_lab.measures.base import ROUND_MEASURES, STATE_MEASURES, Probe, RoundMeasure, StateMeasure

__all__ = ["ROUND_MEASURES", "STATE_MEASURES", "Probe", "RoundMeasure", "StateMeasure"]
