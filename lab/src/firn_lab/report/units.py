"""Formats numbers for people."""

from __future__ import annotations

_SCALES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def bytes_text(value: float) -> str:
    for size, unit in _SCALES:
        if abs(value) >= size:
            return f"{number_text(value / size)} {unit}"
    return f"{number_text(value)} B"


def number_text(value: float) -> str:
    """A number with two or more significant digits; without decimals from 100 on."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def figure_text(value: float, unit: str) -> str:
    """A figure with its unit."""
    if unit == "B":
        return bytes_text(value)
    return f"{number_text(value)} {unit}".strip()
