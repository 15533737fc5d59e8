"""Size of the rows alone: a CSV export of every table, plain and compressed with lz4, gzip, zstd.

It is taken once, after the load. Of a large table only the first ROWS_MAX rows of a full scan are
exported, and the result is scaled up by the number of rows.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import lz4.frame
import pymysql.cursors
import zstandard

from firn_lab.measures.measure import STATE_MEASURES, Moment, StateMeasure
from firn_lab.targets.target import DATABASE, Target
from firn_lab.workloads.workload import FigureKind

ROWS_MAX = 200_000
NAMES = ("csv_bytes", "csv_lz4_bytes", "csv_gzip_bytes", "csv_zstd_bytes")


def compressed_sizes(pieces: Iterator[bytes]) -> dict[str, float]:
    """Sizes of a stream: plain and compressed, keyed by NAMES."""
    plain = lz4_bytes = gzip_bytes = zstd_bytes = 0
    lz4_stream = lz4.frame.LZ4FrameCompressor()
    # 31 = 16 (gzip header) + 15 (largest window).
    gzip_stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    zstd_stream = zstandard.ZstdCompressor(level=3).compressobj()
    lz4_bytes += len(lz4_stream.begin())
    for piece in pieces:
        plain += len(piece)
        lz4_bytes += len(lz4_stream.compress(piece))
        gzip_bytes += len(gzip_stream.compress(piece))
        zstd_bytes += len(zstd_stream.compress(piece))
    lz4_bytes += len(lz4_stream.flush())
    gzip_bytes += len(gzip_stream.flush())
    zstd_bytes += len(zstd_stream.flush())
    return dict(zip(NAMES, map(float, (plain, lz4_bytes, gzip_bytes, zstd_bytes)), strict=True))


def _mysql_rows(target: Target, table: str, limit: int) -> Iterator[bytes]:
    with (
        target.connect(cursorclass=pymysql.cursors.SSCursor) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT * FROM `{table}` LIMIT {limit}")
        while rows := cursor.fetchmany(1000):
            text = io.StringIO()
            csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
            yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _postgresql_rows(target: Target, table: str, limit: int) -> Iterator[bytes]:
    with target.connect() as connection, connection.cursor() as cursor:
        statement = f'COPY (SELECT * FROM "{table}" LIMIT {limit}) TO STDOUT (FORMAT csv)'
        with cursor.copy(statement) as copy:
            for piece in copy:
                yield bytes(piece)


@STATE_MEASURES.register("csv")
class Csv(StateMeasure):
    figures = {name: FigureKind("B") for name in NAMES}
    costly = True

    def supports(self, target: Target) -> bool:
        return True

    def take(self, target: Target, moment: Moment) -> Mapping[str, float]:
        if moment != "load":
            return {}
        export = _mysql_rows if target.dialect == "mysql" else _postgresql_rows
        quote = "`" if target.dialect == "mysql" else '"'
        totals = dict.fromkeys(NAMES, 0.0)
        for table in target.table_bytes(DATABASE):
            rows = int(target.query(f"SELECT COUNT(*) FROM {quote}{table}{quote}")[0][0])
            scale = max(1.0, rows / ROWS_MAX)
            for name, size in compressed_sizes(export(target, table, ROWS_MAX)).items():
                totals[name] += size * scale
        return totals
