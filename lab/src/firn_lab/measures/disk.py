"""Bytes on disk: all tables with their indexes, each table, and all files with logs."""

from __future__ import annotations

from collections.abc import Mapping

from firn_lab.measures.measure import STATE_MEASURES, Moment, StateMeasure
from firn_lab.targets.private import allocated_bytes
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind


@STATE_MEASURES.register("disk")
class Disk(StateMeasure):
    """Takes sizes from information_schema, and the size of all files if the lab owns the server."""

    figures = {
        "data_bytes": FigureKind("B"),
        "table_bytes": FigureKind("B"),
        "files_bytes": FigureKind("B"),
    }

    def supports(self, target: Target) -> bool:
        return True

    def take(self, target: Target, moment: Moment) -> Mapping[str, float]:
        figures: dict[str, float] = {
            f"table_bytes.{name}": size for name, size in target.table_bytes().items()
        }
        data = target.data_bytes()
        if data is not None:
            figures["data_bytes"] = data
        if target.data_dir is not None:
            figures["files_bytes"] = allocated_bytes(target.data_dir)
        return figures
