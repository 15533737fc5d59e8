"""Schemas of applications: small ones of our own, and those of installed packages that are fetched.

FIRN_APPLICATIONS names the directory of unpacked packages (scripts/frameworks.sh applications).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from server import Server

OWN = Path(__file__).resolve().parent / "applications"
ROWS_EACH = 60


def schemas() -> dict[str, str]:
    """The SQL of each application."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(OWN.glob("*.sql"))}
    fetched = os.environ.get("FIRN_APPLICATIONS")
    if fetched:
        found["wordpress"] = wordpress(Path(fetched))
        found["mediawiki"] = mediawiki(Path(fetched))
    return found


def wordpress(packages: Path) -> str:
    """The tables that WordPress's installer makes, with the values of its variables."""
    source = packages / "usr/share/wordpress/wp-admin/includes/schema.php"
    text = source.read_text(encoding="utf-8")
    tables = re.findall(r"CREATE TABLE \$wpdb->(\w+) \((.*?)\n\) \$charset_collate;", text, re.S)
    # Tables of one site and of several are defined twice.
    bodies = {name: body.replace("$max_index_length", "191") for name, body in tables}
    return "\n".join(
        f"CREATE TABLE {name} ({body}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        " COLLATE=utf8mb4_unicode_520_ci;"
        for name, body in bodies.items()
    )


def mediawiki(packages: Path) -> str:
    """MediaWiki's own SQL; its placeholders are comments."""
    folder = packages / "usr/share/mediawiki/maintenance"
    paths = [folder / "tables-generated.sql", folder / "tables.sql"]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    options = "ENGINE=InnoDB, DEFAULT CHARSET=binary"
    return "\n".join(text.replace("/*$wgDBTableOptions*/", options) for text in texts)


def install(server: Server, schema: str, sql: str) -> None:
    """Makes the tables and fills each one. Every column gets the row's number, so keys match."""
    # As the applications: no strict mode, because some have zero dates as defaults.
    server.query(f"CREATE DATABASE `{schema}`")
    command = ["mariadb", "--no-defaults", f"--socket={server.socket}", "-uroot", schema]
    script = "SET sql_mode='';\n" + sql
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    columns = server.query(
        "SELECT c.TABLE_NAME, c.COLUMN_NAME FROM information_schema.COLUMNS c"
        " JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)"
        " WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE'"
        " AND c.EXTRA NOT LIKE '%%GENERATED%%'"
        " ORDER BY 1, c.ORDINAL_POSITION",
        (schema,),
    )
    tables: dict[str, list[str]] = {}
    for table, column in columns:
        tables.setdefault(table, []).append(column)
    with server.connect(schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', foreign_key_checks = 0")
        for table, names in tables.items():
            quoted = ", ".join(f"`{name}`" for name in names)
            values = ", ".join("seq" for _ in names)
            cursor.execute(
                f"INSERT IGNORE INTO `{table}` ({quoted}) SELECT {values} FROM seq_1_to_{ROWS_EACH}"
            )
        connection.commit()
