# ruff: noqa: E501 (a clause a line)
"""Tables with all kinds of columns and indexes, and clauses of ALTER TABLE for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Base:
    """A table to alter: its definition, the options after the engine, its columns and rows."""

    definition: str
    options: str
    columns: str
    rows: tuple[str, ...]

    def create(self, name: str) -> str:
        """CREATE TABLE with the placeholder {engine}."""
        return f"CREATE TABLE {name} ({self.definition}) ENGINE={{engine}} {self.options}"

    def fill(self, name: str) -> str:
        """One INSERT of all rows."""
        return f"INSERT INTO {name} ({self.columns}) VALUES {', '.join(self.rows)}"


def _wide(n: int) -> str:
    null = n % 11 == 5
    values = [
        str(n),
        "NULL" if n % 7 == 0 else str(n * 5 % 127 - 60),
        str(n * 977 % 65536),
        str(n * 31 - 900),
        "NULL" if n % 13 == 12 else str(n * 37 % 1000),
        str(n * 1_000_000_007 - 20_000_000_000),
        f"{n * 17 - 300}.{n % 1000:03}",
        f"{n}.5",
        f"-{n}.125e3",
        f"b'{n * 3 % 2048:b}'",
        str(1970 + n),
        f"'20{n % 30:02}-0{n % 9 + 1}-1{n % 10}'",
        f"'{n % 24:02}:{n % 60:02}:07.{n % 1000:03}'",
        f"'2001-02-0{n % 9 + 1} 10:11:12.{n * 13:06}'",
        f"'2019-06-0{n % 9 + 1} 01:02:03'",
        "NULL" if null else f"'{'cde'[n % 3] * (n % 9)}'",
        f"'{'Straße Øre äb'[: n % 13]}{n}'",
        "NULL" if null else f"'{'Ünïcödé € 漢字'[: n % 13]} {n % 20}'",
        f"REPEAT('{'lm'[n % 2]}', {n * 4})",
        f"X'{n:012x}'",
        "NULL" if null else f"X'00{n:02x}ff'",
        f"CONCAT('text ', {n % 30}, REPEAT(' long', {n % 40}))",
        "NULL" if n % 17 == 3 else f"REPEAT(X'00{n:02x}', {1 + n * 150 % 4000})",
        f'\'{{"n": {n}, "a": [1, 2]}}\'',
        "NULL" if null else f"'{'abc'[n % 3]}'",
        f"'{['', 'x', 'y,z', 'x,z'][n % 4]}'",
        f"'123e4567-e89b-12d3-a456-4266141740{n % 100:02}'",
        f"'2001:db8::{n:x}'",
    ]
    return f"({', '.join(values)})"


WIDE = Base(
    """id INT NOT NULL AUTO_INCREMENT,
    ti TINYINT, si SMALLINT UNSIGNED NOT NULL DEFAULT 3, mi MEDIUMINT, i INT DEFAULT 7, bi BIGINT NOT NULL,
    de DECIMAL(12,3), fl FLOAT, db DOUBLE DEFAULT 1.5, bt BIT(11), yr YEAR, da DATE, tm TIME(3), dt DATETIME(6) DEFAULT '2020-01-01',
    ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    ch CHAR(9), vc VARCHAR(20) NOT NULL DEFAULT 'x', vu VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci,
    vl VARCHAR(300), bn BINARY(6), vb VARBINARY(20) DEFAULT 'bytes', tx TEXT, bl BLOB, js JSON,
    en ENUM('a','b','c') DEFAULT 'b', st SET('x','y','z'), uu UUID, ip INET6 DEFAULT '::1',
    gs INT AS (i * 2) STORED, gv INT AS (i + 1) VIRTUAL, gt VARCHAR(40) AS (CONCAT(vc, '!')) PERSISTENT,
    PRIMARY KEY (id), UNIQUE KEY u1 (bi), UNIQUE KEY u2 (vc, id), KEY k1 (i), KEY k2 (vu(5), da DESC), KEY k3 (tx(10)),
    KEY k4 (gs, ti), KEY k5 (en, st, yr), KEY k6 (uu), KEY k7 (fl, de), CONSTRAINT c1 CHECK (i < 100000)""",
    "DEFAULT CHARSET=latin1 COMMENT='wide'",
    "id, ti, si, mi, i, bi, de, fl, db, bt, yr, da, tm, dt, ts, ch, vc, vu, vl, bn, vb, tx, bl, js, en, st, uu, ip",
    tuple(_wide(n) for n in range(1, 61)),
)

# A table without a primary key, so with a hidden row id.
HIDDEN = Base(
    "a INT, b INT NOT NULL, c VARCHAR(12) CHARACTER SET utf8mb4, d INT DEFAULT 5, KEY (a), KEY kc (c, b)",
    "",
    "a, b, c, d",
    tuple(
        f"({'NULL' if n % 9 == 4 else n % 20}, {n * 7}, '{'ab Cd'[: n % 5]}{n % 12}', {n % 3})"
        for n in range(1, 61)
    ),
)

# A descending AUTO_INCREMENT index, and a primary key of several parts.
PARTS = Base(
    """a VARCHAR(10) COLLATE latin1_general_ci NOT NULL, n BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, id INT NOT NULL, v INT,
    PRIMARY KEY (a, id DESC), UNIQUE KEY (n DESC), KEY (v DESC, a)""",
    "AUTO_INCREMENT=500",
    "a, id, v",
    tuple(f"('{'kLm'[n % 3]}', {n}, {n % 4})" for n in range(1, 61)),
)

PARTITIONED = Base(
    "id INT NOT NULL AUTO_INCREMENT, h INT NOT NULL DEFAULT 1, v VARCHAR(20) DEFAULT 'p', w INT, PRIMARY KEY (id, h), KEY kv (v)",
    "PARTITION BY RANGE (h) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), "
    "PARTITION p2 VALUES LESS THAN (100))",
    "h, v, w",
    tuple(f"({n * 3 % 40}, 'value {n % 8}', {n})" for n in range(1, 61)),
)

VERSIONED = Base(
    "id INT PRIMARY KEY, v VARCHAR(20), w INT, KEY (w)",
    "WITH SYSTEM VERSIONING",
    "id, v, w",
    tuple(f"({n}, 'v{n % 7}', {n % 5})" for n in range(1, 31)),
)

BASES = {
    "wide": WIDE,
    "hidden": HIDDEN,
    "parts": PARTS,
    "partitioned": PARTITIONED,
    "versioned": VERSIONED,
}

# Clauses of ALTER TABLE by table.
CLAUSES = {
    "wide": """
        ADD COLUMN n1 INT
        ADD COLUMN n1 INT NOT NULL DEFAULT 5 FIRST
        ADD COLUMN n1 VARCHAR(10) NOT NULL DEFAULT 'new' AFTER ti
        ADD COLUMN n1 VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'ä€'
        ADD COLUMN n1 TEXT NOT NULL DEFAULT 'long'
        ADD COLUMN n1 DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
        ADD COLUMN n1 DATE NOT NULL
        ADD COLUMN n1 INT NOT NULL
        ADD COLUMN n1 INT DEFAULT (id + 3)
        ADD COLUMN n1 BIT(3) DEFAULT b'101', ADD COLUMN n2 ENUM('q','r') NOT NULL
        ADD COLUMN n1 INT AS (id * 3) VIRTUAL
        ADD COLUMN n1 INT AS (id * 3) STORED
        ADD COLUMN n1 INT, ADD KEY (n1)
        ADD COLUMN n1 INT INVISIBLE DEFAULT 4
        ADD COLUMN ti INT
        ADD COLUMN IF NOT EXISTS ti INT
        ADD COLUMN n1 UUID DEFAULT '123e4567-e89b-12d3-a456-426614174000'
        DROP COLUMN vl
        DROP COLUMN ti
        DROP COLUMN bl, DROP COLUMN js
        DROP COLUMN gv
        DROP COLUMN gt
        DROP COLUMN gs
        DROP COLUMN i
        DROP COLUMN id
        DROP COLUMN nope
        DROP COLUMN IF EXISTS nope
        DROP COLUMN mi, ADD COLUMN mi INT
        DROP COLUMN vl, ADD COLUMN n1 TEXT DEFAULT 'n' FIRST, MODIFY vb VARBINARY(90)
        CHANGE COLUMN mi mm MEDIUMINT FIRST, ADD COLUMN mi BLOB, RENAME KEY k1 TO kk
        ADD COLUMN n1 VARCHAR(20) DEFAULT CONCAT('a', 'b')
        ADD COLUMN n1 VARCHAR(90) DEFAULT CURRENT_USER()
        ADD COLUMN n1 VARCHAR(2) DEFAULT CONCAT('a', 'bc')
        ADD COLUMN n1 INT NOT NULL DEFAULT 3, ADD UNIQUE KEY (n1)
        ADD COLUMN n1 GEOMETRY
        RENAME COLUMN mi TO mm
        RENAME COLUMN i TO ii
        RENAME COLUMN vc TO vv
        RENAME COLUMN id TO ident
        RENAME COLUMN ti TO mi
        RENAME COLUMN ti TO mi, RENAME COLUMN mi TO ti
        CHANGE COLUMN mi mm MEDIUMINT
        CHANGE COLUMN mi mm BIGINT
        MODIFY mi MEDIUMINT FIRST
        MODIFY mi MEDIUMINT AFTER ip
        MODIFY gv INT AS (i + 1) VIRTUAL AFTER id
        MODIFY id INT NOT NULL
        MODIFY id BIGINT NOT NULL AUTO_INCREMENT
        MODIFY id INT UNSIGNED NOT NULL AUTO_INCREMENT
        MODIFY id INT NOT NULL AUTO_INCREMENT
        MODIFY ti INT
        MODIFY ti TINYINT UNSIGNED
        MODIFY ti TINYINT NOT NULL
        MODIFY si SMALLINT UNSIGNED
        MODIFY si SMALLINT UNSIGNED FIRST
        MODIFY si SMALLINT UNSIGNED NOT NULL DEFAULT 4
        MODIFY mi MEDIUMINT NOT NULL
        MODIFY mi MEDIUMINT NOT NULL DEFAULT 8
        MODIFY mi TINYINT
        MODIFY i INT DEFAULT NULL
        MODIFY i BIGINT DEFAULT 7
        MODIFY i INT DEFAULT 7 COMMENT 'comment'
        MODIFY bi BIGINT
        MODIFY bi INT NOT NULL
        MODIFY bi DECIMAL(30,0) NOT NULL
        MODIFY de DECIMAL(14,3)
        MODIFY de DECIMAL(12,1)
        MODIFY fl DOUBLE
        MODIFY db FLOAT
        MODIFY bt BIT(20)
        MODIFY bt BIGINT
        MODIFY yr INT
        MODIFY da DATETIME
        MODIFY tm TIME(6)
        MODIFY tm TIME
        MODIFY dt DATETIME(3) DEFAULT '2020-01-01'
        MODIFY dt VARCHAR(40)
        MODIFY ts TIMESTAMP NOT NULL DEFAULT '2021-01-01'
        MODIFY ts TIMESTAMP(3) NULL
        MODIFY ch CHAR(12)
        MODIFY ch VARCHAR(9)
        MODIFY ch CHAR(3)
        MODIFY vc VARCHAR(40) NOT NULL DEFAULT 'x'
        MODIFY vc VARCHAR(300) NOT NULL DEFAULT 'x'
        MODIFY vc VARCHAR(16) NOT NULL DEFAULT 'x'
        MODIFY vc VARCHAR(5) NOT NULL DEFAULT 'x'
        MODIFY vc VARCHAR(20) DEFAULT 'x'
        MODIFY vc VARCHAR(20) COLLATE latin1_bin NOT NULL DEFAULT 'x'
        MODIFY vc VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'x'
        MODIFY vu VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
        MODIFY vu VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
        MODIFY vu VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
        MODIFY vu VARCHAR(30) CHARACTER SET latin1
        MODIFY vl VARCHAR(350)
        MODIFY vl VARCHAR(250)
        MODIFY vl TEXT
        MODIFY bn BINARY(9)
        MODIFY vb VARBINARY(200) DEFAULT 'bytes'
        MODIFY vb VARBINARY(400) DEFAULT 'bytes'
        MODIFY vb VARCHAR(20)
        MODIFY tx MEDIUMTEXT
        MODIFY tx VARCHAR(250)
        MODIFY tx TEXT CHARACTER SET utf8mb4
        MODIFY bl LONGBLOB
        MODIFY bl TEXT
        MODIFY js LONGTEXT
        MODIFY en ENUM('a','b','c','d') DEFAULT 'b'
        MODIFY en ENUM('c','b','a') DEFAULT 'b'
        MODIFY en ENUM('a','b') DEFAULT 'b'
        MODIFY st SET('x','y','z','zz')
        MODIFY uu CHAR(36)
        MODIFY ip VARBINARY(16)
        MODIFY gs INT AS (i * 3) STORED
        MODIFY gs INT
        MODIFY gv INT AS (i + 2) VIRTUAL
        MODIFY gv INT AS (i + 1) STORED
        MODIFY gv BIGINT AS (i + 1) VIRTUAL
        MODIFY i INT AS (id) VIRTUAL
        MODIFY mi MEDIUMINT INVISIBLE
        MODIFY nope INT
        ALTER i SET DEFAULT 9
        ALTER i DROP DEFAULT
        ALTER ti SET DEFAULT (1 + 1)
        ALTER bi SET DEFAULT 12
        ALTER ts SET DEFAULT '2022-01-01 00:00:00'
        ADD KEY n1 (mi)
        ADD KEY n1 (vl(20), dt DESC)
        ADD KEY n1 (vl)
        ADD KEY n1 (bl(50) DESC)
        ADD KEY n1 (gv)
        ADD KEY n1 (gt(5))
        ADD KEY n1 (ip, bn, bt)
        ADD KEY n1 (tm), ADD UNIQUE KEY n2 (dt)
        ADD UNIQUE KEY n1 (mi)
        ADD UNIQUE KEY n1 (ti)
        ADD UNIQUE KEY n1 (tx(30))
        ADD UNIQUE KEY n1 (vc, bi)
        ADD UNIQUE KEY IF NOT EXISTS u1 (mi)
        ADD KEY k1 (mi)
        ADD KEY n1 (i) IGNORED
        ADD KEY n1 (nope)
        ADD KEY n1 (mi) COMMENT 'of the index'
        ADD FULLTEXT KEY n1 (tx)
        DROP KEY k1
        DROP KEY u2
        DROP KEY k2, DROP KEY k3, ADD KEY n1 (da)
        DROP KEY k1, ADD KEY k1 (i)
        DROP KEY k1, ADD KEY k1 (i DESC)
        DROP KEY nope
        DROP KEY IF EXISTS nope
        RENAME KEY k1 TO kk
        RENAME KEY k1 TO k2, RENAME KEY k2 TO k1
        RENAME KEY k1 TO u1
        RENAME KEY nope TO kk
        ALTER KEY k1 IGNORED
        ALTER KEY u1 NOT IGNORED
        DROP PRIMARY KEY
        DROP PRIMARY KEY, ADD PRIMARY KEY (bi), ADD KEY (id)
        DROP PRIMARY KEY, ADD PRIMARY KEY (id, bi)
        DROP PRIMARY KEY, ADD PRIMARY KEY (id DESC)
        MODIFY id INT NOT NULL, DROP PRIMARY KEY
        ADD PRIMARY KEY (bi)
        ADD CONSTRAINT c2 CHECK (ti < 100)
        ADD CONSTRAINT c2 CHECK (ti < 0)
        DROP CONSTRAINT c1
        DROP CONSTRAINT nope
        DROP CONSTRAINT IF EXISTS nope
        ADD CONSTRAINT FOREIGN KEY (i) REFERENCES base_wide (id)
        COMMENT 'other words'
        AUTO_INCREMENT 1000
        AUTO_INCREMENT 1
        AUTO_INCREMENT 30
        ROW_FORMAT=DYNAMIC
        MAX_ROWS=10 AVG_ROW_LENGTH=100
        CHECKSUM=1
        STATS_PERSISTENT=0
        CHARSET utf8mb4
        CONVERT TO CHARACTER SET utf8mb4
        CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin
        FORCE
        ORDER BY bi
        ENGINE={engine}
        RENAME TO {db}.renamed
        RENAME TO {db}.renamed, COMMENT 'also'
        DISABLE KEYS
        ADD COLUMN n1 INT, DROP COLUMN vl, ADD KEY n2 (mi)
        ADD SYSTEM VERSIONING
        ADD PERIOD FOR p (da, dt)
        PARTITION BY HASH (id) PARTITIONS 3""",
    "hidden": """
        ADD PRIMARY KEY (b)
        ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY
        ADD COLUMN id BIGINT AUTO_INCREMENT UNIQUE FIRST
        ADD UNIQUE KEY n1 (b)
        ADD UNIQUE KEY n1 (b), ADD PRIMARY KEY (b, d)
        ADD UNIQUE KEY n1 (a)
        MODIFY b INT
        MODIFY b BIGINT NOT NULL
        MODIFY b INT NOT NULL AUTO_INCREMENT, ADD KEY (b)
        MODIFY a INT NOT NULL
        ADD COLUMN z INT DEFAULT 9
        ADD COLUMN z INT AUTO_INCREMENT
        DROP KEY a
        DROP COLUMN c
        MODIFY d INT FIRST
        DROP COLUMN d, ADD COLUMN e INT NOT NULL DEFAULT 8
        ADD KEY n1 (c(3)), DROP KEY kc
        RENAME KEY kc TO ck
        ALTER d SET DEFAULT 6
        CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
        FORCE""",
    "parts": """
        AUTO_INCREMENT=100
        AUTO_INCREMENT=540
        AUTO_INCREMENT=9000
        MODIFY n BIGINT UNSIGNED NOT NULL
        MODIFY n BIGINT NOT NULL AUTO_INCREMENT
        MODIFY n INT UNSIGNED NOT NULL AUTO_INCREMENT
        MODIFY a VARCHAR(30) COLLATE latin1_general_ci NOT NULL
        MODIFY a VARCHAR(10) COLLATE latin1_general_cs NOT NULL
        DROP KEY n
        MODIFY n BIGINT UNSIGNED NOT NULL, DROP KEY n
        DROP PRIMARY KEY
        DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)
        DROP PRIMARY KEY, ADD PRIMARY KEY (a)
        ADD KEY n1 (id, v)
        RENAME COLUMN id TO i2
        DROP COLUMN v
        DROP COLUMN id
        ADD COLUMN z INT FIRST
        MODIFY v INT FIRST""",
    "partitioned": """
        ADD COLUMN z INT NOT NULL DEFAULT 4
        ADD COLUMN z TEXT NOT NULL DEFAULT 'z' FIRST, ADD KEY n1 (w, z(3))
        ADD COLUMN z INT FIRST, DROP COLUMN w
        DROP COLUMN w
        RENAME COLUMN w TO ww
        MODIFY v VARCHAR(60) DEFAULT 'p'
        MODIFY id INT NOT NULL
        ADD KEY n1 (w, v DESC)
        ADD UNIQUE KEY n1 (w)
        ADD UNIQUE KEY n1 (w, h)
        DROP KEY kv
        RENAME KEY kv TO k2
        ALTER w SET DEFAULT 3
        AUTO_INCREMENT=1000
        AUTO_INCREMENT=2
        COMMENT 'p'
        ADD PARTITION (PARTITION p3 VALUES LESS THAN (200))
        DROP PARTITION p1
        TRUNCATE PARTITION p1
        REORGANIZE PARTITION p0 INTO (PARTITION q0 VALUES LESS THAN (5), PARTITION q1 VALUES LESS THAN (10))
        REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (20))
        REBUILD PARTITION p2
        COALESCE PARTITION 1
        REMOVE PARTITIONING
        PARTITION BY HASH (id) PARTITIONS 4
        FORCE""",
    "versioned": """
        DROP SYSTEM VERSIONING
        ADD COLUMN z INT
        ADD COLUMN z INT, DROP COLUMN v
        ADD KEY n1 (v)
        DROP KEY w
        ALTER v SET DEFAULT 'q'
        COMMENT 'v'
        AUTO_INCREMENT=7
        MODIFY v VARCHAR(20) WITHOUT SYSTEM VERSIONING""",
}

# Clauses for which FIRN and InnoDB support different algorithms, by the cheapest algorithm of
# InnoDB and of FIRN. DROP KEY changes only FIRN's catalog. An index over a new column, or one that
# has lost a column, is filled without a copy of the rows.
ALGORITHMS_DIFFER = {
    ("INSTANT", "COPY"): {
        "wide": """
            MODIFY gv INT AS (i + 2) VIRTUAL""",
        "partitioned": """
            AUTO_INCREMENT=1000
            AUTO_INCREMENT=2""",
    },
    ("INPLACE", "COPY"): {
        "wide": """
            MODIFY bi BIGINT
            MODIFY vc VARCHAR(20) DEFAULT 'x'
            DROP PRIMARY KEY, ADD PRIMARY KEY (bi), ADD KEY (id)
            DROP PRIMARY KEY, ADD PRIMARY KEY (id, bi)
            DROP PRIMARY KEY, ADD PRIMARY KEY (id DESC)
            MODIFY id INT NOT NULL, DROP PRIMARY KEY
            FORCE
            ENGINE={engine}""",
        "hidden": """
            ADD PRIMARY KEY (b)
            ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY
            ADD COLUMN id BIGINT AUTO_INCREMENT UNIQUE FIRST
            ADD UNIQUE KEY n1 (b)
            ADD UNIQUE KEY n1 (b), ADD PRIMARY KEY (b, d)
            MODIFY b INT
            MODIFY a INT NOT NULL
            FORCE""",
        "parts": """
            DROP PRIMARY KEY
            DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)
            DROP PRIMARY KEY, ADD PRIMARY KEY (a)""",
        "partitioned": """
            FORCE""",
        "versioned": """
            DROP SYSTEM VERSIONING""",
    },
    ("INPLACE", "NOCOPY"): {
        "wide": """
            ADD COLUMN n1 INT, ADD KEY (n1)
            ADD COLUMN n1 INT NOT NULL DEFAULT 3, ADD UNIQUE KEY (n1)""",
        "hidden": """
            DROP COLUMN c""",
        "parts": """
            DROP COLUMN v""",
        "partitioned": """
            ADD COLUMN z TEXT NOT NULL DEFAULT 'z' FIRST, ADD KEY n1 (w, z(3))""",
    },
    ("COPY", "NOCOPY"): {
        "wide": """
            DROP COLUMN ti
            DROP COLUMN gs
            ADD COLUMN n1 INT, DROP COLUMN vl, ADD KEY n2 (mi)""",
    },
    ("COPY", "INSTANT"): {
        "wide": """
            ADD COLUMN n1 INT NOT NULL DEFAULT 5 FIRST
            ADD COLUMN n1 VARCHAR(10) NOT NULL DEFAULT 'new' AFTER ti""",
    },
    ("INPLACE", "INSTANT"): {
        "wide": """
            MODIFY si SMALLINT UNSIGNED
            MODIFY si SMALLINT UNSIGNED FIRST
            ROW_FORMAT=DYNAMIC""",
    },
    ("NOCOPY", "COPY"): {
        "wide": """
            MODIFY vc VARCHAR(20) COLLATE latin1_bin NOT NULL DEFAULT 'x'
            MODIFY vu VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
            ADD KEY n1 (gv)""",
        "hidden": """
            CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin""",
    },
    ("NOCOPY", "INSTANT"): {
        "wide": """
            DROP KEY k1
            DROP KEY u2""",
        "hidden": """
            DROP KEY a""",
        "parts": """
            MODIFY n BIGINT UNSIGNED NOT NULL, DROP KEY n""",
        "partitioned": """
            DROP KEY kv""",
        "versioned": """
            DROP KEY w""",
    },
}

# By table and clause: the error with which FIRN refuses the clause under every algorithm.
REFUSED = {
    ("wide", "ADD FULLTEXT KEY n1 (tx)"): 1214,
}

# Clauses that do not take ALGORITHM.
ALONE = (
    "ADD PARTITION",
    "DROP PARTITION",
    "TRUNCATE PARTITION",
    "REORGANIZE",
    "REBUILD",
    "COALESCE",
)
# Clauses that need no comma before them.
UNSEPARATED = ("PARTITION BY", "REMOVE PARTITIONING")


def _split(text: str) -> list[str]:
    return [clause.strip() for clause in text.strip().splitlines()]


def cases() -> list[tuple[str, str]]:
    """All clauses, with the name of their table."""
    return [(base, clause) for base, text in CLAUSES.items() for clause in _split(text)]


def differences() -> dict[tuple[str, str], tuple[str, str]]:
    """By table and clause: the cheapest algorithms of InnoDB and of FIRN, where they differ."""
    return {
        (base, clause): algorithms
        for algorithms, bases in ALGORITHMS_DIFFER.items()
        for base, text in bases.items()
        for clause in _split(text)
    }


def statement(table: str, clause: str, algorithm: str) -> str:
    """ALTER TABLE with this clause and algorithm."""
    if clause.startswith(ALONE):
        return f"ALTER TABLE {table} {clause}"
    comma = "" if clause.startswith(UNSEPARATED) else ","
    return f"ALTER TABLE {table} ALGORITHM={algorithm}{comma} {clause}"
