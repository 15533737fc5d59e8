"""Tables of many kinds, made by SQL in a few seconds: what the estimate is checked on."""

from __future__ import annotations

WORDS = (
    "ELT(1+FLOOR(RAND({0})*12),'alpine','river','stone','garden','paper','winter','signal',"
    "'copper','harbor','meadow','orchid','lantern')"
)


def words(seed: int, count: int) -> str:
    return "CONCAT_WS(' ', " + ", ".join(WORDS.format(seed + n) for n in range(count)) + ")"


# Name: what follows CREATE TABLE name, and what FIRN refuses of it, in words.
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("(id INT PRIMARY KEY, t TEXT, g POINT, KEY t (t(20)))", ()),
    "parent": (
        "(id INT PRIMARY KEY)",
        ("foreign key lines_fk of lab.child refers to it",),
    ),
    "child": (
        "(id INT PRIMARY KEY, p INT, CONSTRAINT lines_fk FOREIGN KEY (p) REFERENCES parent (id))",
        ("foreign key lines_fk to lab.parent",),
    ),
    "tree": (
        "(id INT PRIMARY KEY, up INT, CONSTRAINT up_fk FOREIGN KEY (up) REFERENCES tree (id))",
        ("foreign key up_fk to lab.tree",),
    ),
    "words": (
        "(id INT PRIMARY KEY, t TEXT, u TEXT, FULLTEXT KEY t_words (t), FULLTEXT KEY (u))",
        ("FULLTEXT index t_words", "FULLTEXT index u"),
    ),
    "places": (
        "(id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL KEY near (g))",
        ("SPATIAL index near",),
    ),
    "long_values": (
        "(id INT PRIMARY KEY, b LONGTEXT, UNIQUE KEY whole (b))",
        ("index whole: UNIQUE over more bytes than a key takes",),
    ),
    "thai": (
        "(id INT PRIMARY KEY, b VARCHAR(20), KEY b (b)) CHARSET tis620",
        ("index b: collation tis620_thai_ci",),
    ),
    "bookings": (
        "(id INT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE KEY once (id, p WITHOUT OVERLAPS))",
        ("index once: WITHOUT OVERLAPS",),
    ),
    "history": ("(id INT PRIMARY KEY) WITH SYSTEM VERSIONING", ("system versioning",)),
}

# Name: what follows CREATE TABLE name, and the SELECT of its rows; {n} is their number.
TABLES: dict[str, tuple[str, str]] = {
    "sbtest": (
        "(id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL,"
        " KEY k (k))",
        "SELECT seq, FLOOR(RAND(1)*{n}), CONCAT_WS('-', LPAD(FLOOR(RAND(2)*1e11),11,'0'),"
        " LPAD(FLOOR(RAND(3)*1e11),11,'0'), LPAD(FLOOR(RAND(4)*1e11),11,'0'),"
        " LPAD(FLOOR(RAND(5)*1e11),11,'0'), LPAD(FLOOR(RAND(6)*1e11),11,'0')),"
        " CONCAT_WS('-', LPAD(FLOOR(RAND(7)*1e11),11,'0'), LPAD(FLOOR(RAND(8)*1e11),11,'0'))"
        " FROM seq_1_to_{n}",
    ),
    "users": (
        "(id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, email VARCHAR(100) NOT NULL,"
        " name VARCHAR(60), hash BINARY(32), created DATETIME NOT NULL, active TINYINT NOT NULL,"
        " UNIQUE KEY (email), KEY (created))",
        "SELECT seq, CONCAT(MD5(seq), '@example.org'), " + words(1, 2) + ", UNHEX(SHA2(seq, 256)),"
        " '2020-01-01' + INTERVAL seq*37 SECOND, RAND(3) < 0.9 FROM seq_1_to_{n}",
    ),
    "orders": (
        "(customer INT NOT NULL, number INT NOT NULL, amount DECIMAL(12,2) NOT NULL,"
        " state ENUM('new','paid','sent','back') NOT NULL, day DATE NOT NULL, note VARCHAR(200),"
        " PRIMARY KEY (customer, number), KEY (day), KEY (state, day))",
        "SELECT seq DIV 7, seq % 7, ROUND(RAND(1)*900, 2), 1 + FLOOR(RAND(2)*4),"
        " '2021-01-01' + INTERVAL FLOOR(RAND(3)*900) DAY, IF(RAND(4) < 0.3, " + words(5, 6)
        + ", NULL) FROM seq_1_to_{n}",
    ),
    "events": (
        "(at TIMESTAMP(3) NOT NULL, source SMALLINT UNSIGNED NOT NULL, value DOUBLE NOT NULL,"
        " quality FLOAT, PRIMARY KEY (source, at))",
        "SELECT '2022-01-01' + INTERVAL seq*250000 MICROSECOND, seq % 20, ROUND(20+5*SIN(seq/900)+"
        "RAND(1), 2), RAND(2) FROM seq_1_to_{n}",
    ),
    "articles": (
        "(id INT NOT NULL PRIMARY KEY, title VARCHAR(120) NOT NULL, body TEXT NOT NULL,"
        " KEY (title(20)))",
        "SELECT seq, " + words(1, 5) + ", CONCAT_WS('. ', " + words(10, 12) + ", " + words(30, 20)
        + ", " + words(60, 15) + ") FROM seq_1_to_{n}",
    ),
    "sessions": (
        "(id CHAR(36) NOT NULL PRIMARY KEY, user INT NOT NULL, seen DATETIME(6) NOT NULL,"
        " data VARBINARY(300), KEY (user))",
        "SELECT INSERT(INSERT(MD5(seq), 9, 0, '-'), 14, 0, '-'), FLOOR(RAND(1)*{n}/4),"
        " '2023-05-01' + INTERVAL RAND(2)*1e9 MICROSECOND, UNHEX(SHA2(seq, 512)) FROM seq_1_to_{n}",
    ),
    "links": (
        "(a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b), KEY (b))",
        "SELECT FLOOR(POW(RAND(1), 3)*{n}), seq FROM seq_1_to_{n}",
    ),
    "logs": (
        "(host VARCHAR(20), line VARCHAR(255), level TINYINT)",
        "SELECT CONCAT('web-', seq % 9), CONCAT('GET /', " + WORDS.format(1) + ", '/', "
        + "FLOOR(RAND(2)*1000), ' HTTP/1.1 ', ELT(1+FLOOR(RAND(3)*3), 200, 304, 404), ' ',"
        " FLOOR(RAND(4)*100000)), seq % 5 FROM seq_1_to_{n}",
    ),
    "products": (
        "(sku VARCHAR(16) NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, price DECIMAL(8,2),"
        " stock MEDIUMINT, tags SET('a','b','c','d','e'), made YEAR, weight FLOAT, KEY (name),"
        " KEY (price)) CHARSET latin1",
        "SELECT CONCAT('SKU-', LPAD(seq*7, 9, '0')), CONCAT(" + words(1, 3) + ", ' ', seq),"
        " ROUND(RAND(4)*500, 2), FLOOR(RAND(5)*1000), FLOOR(RAND(6)*32), 1990 + seq % 30,"
        " ROUND(RAND(7)*10, 1) FROM seq_1_to_{n}",
    ),
    "sparse": (
        "(id INT NOT NULL PRIMARY KEY, a INT, b INT, c BIGINT, d DATETIME, e VARCHAR(50), f DOUBLE,"
        " g VARCHAR(50), h TIME, KEY (a), KEY (e))",
        "SELECT seq*3, IF(RAND(1)<0.1, seq, NULL), IF(RAND(2)<0.5, FLOOR(RAND(3)*9), NULL), NULL,"
        " IF(RAND(4)<0.2, '2024-01-01' + INTERVAL seq MINUTE, NULL), IF(RAND(5)<0.2, " + words(6, 1)
        + ", NULL), IF(RAND(7)<0.3, RAND(8), NULL), NULL, SEC_TO_TIME(seq % 80000)"
        " FROM seq_1_to_{n}",
    ),
    "documents": (
        "(id INT NOT NULL PRIMARY KEY, doc JSON NOT NULL)",
        "SELECT seq, JSON_OBJECT('id', seq, 'name', " + words(1, 2) + ", 'score',"
        " ROUND(RAND(4)*100, 1), 'tags', JSON_ARRAY(" + WORDS.format(5) + ", " + WORDS.format(6)
        + "), 'hash', MD5(seq)) FROM seq_1_to_{n}",
    ),
    "files": (
        "(id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, content MEDIUMBLOB NOT NULL)",
        "SELECT seq, MD5(seq), IF(seq % 80, REPEAT(SHA2(seq, 512), 50),"
        " REPEAT(MD5(RAND(1)), 1 + seq % 200)) FROM seq_1_to_{n} WHERE seq % 40 = 0",
    ),
}  # fmt: skip
