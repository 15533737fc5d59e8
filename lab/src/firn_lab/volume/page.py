"""Formats the phases of `volume` as a Markdown table, and its samples as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from firn_lab.report.colours import COLOURS
from firn_lab.report.markdown import table
from firn_lab.report.units import bytes_text
from firn_lab.volume.life import Phase
from firn_lab.volume.samples import Sample

matplotlib.use("Agg")
from matplotlib import pyplot

# Panels of the picture: axis, divisor, and the curves with the name of each in the legend.
_PANELS: tuple[tuple[str, float, Mapping[str, str]], ...] = (
    (
        "memory, MiB",
        2.0**20,
        {
            "resident_bytes": "resident",
            "memory_bytes": "FIRN_MEMORY",
            "memory_limit": "firn_memory_limit",
        },
    ),
    ("descriptors", 1.0, {"descriptors": "descriptors"}),
    ("threads", 1.0, {"threads": "threads"}),
    ("all files, GB", 1e9, {"files_bytes": "all files"}),
)
# A phase shorter than this fraction of all has no number in the picture.
NUMBERED_MIN = 0.015
_MOST = ("resident_bytes", "memory_bytes", "descriptors", "threads", "files_bytes")


def most(samples: Sequence[Sample], phase: str) -> dict[str, float]:
    """The largest sample of each kind within a phase."""
    own = [each for each in samples if each["phase"] == phase]
    found = {name: [each[name] for each in own if name in each] for name in _MOST}
    return {name: max(values) for name, values in found.items() if values}


def page(phases: Sequence[Phase], samples: Sequence[Sample]) -> str:
    """A row for each phase: time, what was done, and the most of each kind of sample."""
    rows = []
    for phase in phases:
        peak, notes = most(samples, phase.name), phase.notes
        rate = notes.get("rows", notes.get("updates", 0)) / max(phase.seconds, 1e-9)
        rows.append(
            [
                phase.name,
                f"{phase.seconds:,.1f}",
                f"{rate:,.0f}/s" if rate else "",
                f"{notes['cpu_seconds']:,.1f}" if "cpu_seconds" in notes else "",
                *(_size(peak, name) for name in ("resident_bytes", "memory_bytes")),
                *(f"{peak[n]:,.0f}" if n in peak else "" for n in ("descriptors", "threads")),
                _size(notes, "table_bytes"),
                _size(notes, "files_bytes"),
            ]
        )
    head = (
        "phase", "s", "rows or updates", "processor, s", "resident at most", "FIRN_MEMORY at most",
        "descriptors at most", "threads at most", "tables", "all files",
    )  # fmt: skip
    return "\n".join(table(head, rows))


def _size(values: Mapping[str, Any], name: str) -> str:
    return bytes_text(values[name]) if values.get(name) else ""


def draw(
    title: str,
    phases: Sequence[Phase],
    samples: Sequence[Sample],
    limits: Mapping[str, float],
    path: Path,
) -> None:
    """Draws the samples by time, as SVG or PNG. Phases are shaded in turn and numbered.

    `limits` are horizontal lines by name of the sample, such as the limit on descriptors.
    """
    figure, panels = pyplot.subplots(
        len(_PANELS), 1, figsize=(10, 9), sharex=True, layout="constrained"
    )
    for axes, (words, scale, curves) in zip(panels, _PANELS, strict=True):
        for colour, (name, label) in zip(COLOURS, curves.items(), strict=False):
            places = [each["at"] for each in samples if name in each]
            values = [each[name] / scale for each in samples if name in each]
            if values:
                axes.plot(places, values, "-", color=colour, linewidth=1, label=label)
            if name in limits:
                axes.axhline(limits[name] / scale, color="black", linestyle=":", label="limit")
        for number, phase in enumerate(phases):
            if number % 2 == 0:
                axes.axvspan(phase.began, phase.ended, color="black", alpha=0.05, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(words)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper left")
    shortest = NUMBERED_MIN * max((phase.ended for phase in phases), default=0.0)
    for number, phase in enumerate(phases, start=1):
        if phase.seconds < shortest:
            continue
        panels[0].annotate(
            str(number), ((phase.began + phase.ended) / 2, 1), xycoords=("data", "axes fraction"),
            fontsize=7, ha="center", va="bottom",
        )  # fmt: skip
    names = [f"{n} {p.name} ({p.seconds:,.0f} s)" for n, p in enumerate(phases, start=1)]
    panels[-1].set_xlabel("seconds\n" + _wrapped(names))
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _wrapped(parts: Sequence[str], each: int = 4) -> str:
    """The parts, some in each line."""
    return "\n".join(", ".join(parts[at : at + each]) for at in range(0, len(parts), each))
