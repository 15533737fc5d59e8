"""Formats the rounds of `hot_row` as a Markdown table and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

from firn_lab.hot_row.record import Result
from firn_lab.intervals import paired, ratio
from firn_lab.report.colours import COLOURS
from firn_lab.report.conclusions import ratio_text
from firn_lab.report.markdown import table
from firn_lab.report.units import bytes_text, number_text
from firn_lab.runner.blocks import reference_of

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import NullLocator

_HEAD = (
    "sessions", "engine", "commits/s", "× {reference}", "server, µs/commit",
    "99 %, ms", "99.9 %, ms", "longest, ms", "timed out/s", "killed/s", "resident", "drain, s",
)  # fmt: skip


def median(results: Sequence[Result], value: Callable[[Result], float]) -> float:
    return statistics.median(map(value, results))


def rates(results: Sequence[Result]) -> dict[int, float]:
    """Commits per second by block."""
    return {each.block: each.commits_per_second for each in results}


def growth(results: Sequence[Result]) -> float:
    """Processor time per commit with the most sessions, relative to that with the fewest."""
    counts = sorted({each.sessions for each in results})
    few, many = (
        median([r for r in results if r.sessions == count], lambda r: r.cpu_us_per_commit)
        for count in (counts[0], counts[-1])
    )
    return many / few if few else 0.0


def page(results: Sequence[Result]) -> str:
    """A row for each number of sessions and target: medians of its rounds."""
    names = list(dict.fromkeys(each.target for each in results))
    reference = reference_of(names) or ""
    rows = []
    for sessions in sorted({each.sessions for each in results}):
        of = {n: [r for r in results if (r.target, r.sessions) == (n, sessions)] for n in names}
        for name, found in of.items():
            if found:
                beside = ratio(paired(rates(found), rates(of[reference])))
                other = name != reference and beside is not None
                rows.append(
                    [
                        f"{sessions:,}",
                        name,
                        number_text(median(found, lambda r: r.commits_per_second)),
                        ratio_text(beside) if other and beside is not None else "",
                        number_text(median(found, lambda r: r.cpu_us_per_commit)),
                        number_text(median(found, lambda r: r.latency_p99_ms)),
                        number_text(median(found, lambda r: r.latency_p999_ms)),
                        number_text(max(r.latency_max_ms for r in found)),
                        number_text(median(found, lambda r: r.timed_out / r.seconds)),
                        number_text(median(found, lambda r: r.killed / r.seconds)),
                        bytes_text(median(found, lambda r: r.resident_bytes)),
                        number_text(median(found, lambda r: r.drain_seconds)),
                    ]
                )
    head = [text.format(reference=reference) for text in _HEAD]
    lines = table(head, rows)
    for name in names:
        own = [each for each in results if each.target == name]
        lines.append(
            f"Processor time of a commit on {name}, most sessions by fewest: ×{growth(own):.2f}"
        )
    return "\n".join(lines) + "\n"


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws commits and processor time by sessions, as SVG or PNG; points are rounds."""
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    values: tuple[tuple[str, Callable[[Result], float]], ...] = (
        ("commits/s", lambda r: r.commits_per_second),
        ("processor time of the server, µs/commit", lambda r: r.cpu_us_per_commit),
    )
    names = list(dict.fromkeys(each.target for each in results))
    counts = sorted({each.sessions for each in results})
    for axes, (words, value) in zip(panels, values, strict=True):
        for colour, name in zip(COLOURS, names, strict=False):
            own = [each for each in results if each.target == name]
            axes.plot([r.sessions for r in own], [value(r) for r in own], ".", color=colour)
            by_count = [[r for r in own if r.sessions == count] for count in counts]
            axes.plot(
                [each[0].sessions for each in by_count if each],
                [median(each, value) for each in by_count if each],
                "-", color=colour, label=name if axes is panels[0] else None,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("sessions that update one row")
        axes.set_ylabel(words)
        axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
