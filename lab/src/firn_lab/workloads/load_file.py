"""Loads a file of rows with fields separated by `|`: LOAD DATA LOCAL INFILE, or COPY."""

from __future__ import annotations

from pathlib import Path

from firn_lab.errors import LabError
from firn_lab.targets.target import Target

CHUNK = 1 << 20


def load_file(target: Target, table: str, path: Path, line_end: str = "\n") -> None:
    """Loads a file; TPC-H's files end each line with `|` and a newline."""
    with target.connect() as connection, connection.cursor() as cursor:
        if target.dialect == "mysql":
            cursor.execute(
                f"LOAD DATA LOCAL INFILE %s INTO TABLE {table} FIELDS TERMINATED BY '|' "
                "LINES TERMINATED BY %s",
                (str(path), line_end),
            )
            # LOAD DATA LOCAL skips rejected rows with only a warning.
            cursor.execute("SHOW WARNINGS LIMIT 1")
            for _, _, message in cursor.fetchall():
                raise LabError(f"{target.name}: {path.name} into {table}: {message}")
            return
        with cursor.copy(f"COPY {table} FROM STDIN (DELIMITER '|')") as copy, path.open() as file:
            while lines := file.readlines(CHUNK):
                copy.write("".join(line.removesuffix(line_end) + "\n" for line in lines))
