"""Statements beyond plain reads and writes behave as on InnoDB."""

from __future__ import annotations

import pytest
from scenario import same_as_innodb
from server import Server

SCRIPTS = {
    # The files of the rebuilt table overlap in their ranges of keys.
    "ranges_one_after_the_other": """
        CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, UNIQUE KEY k (id, b), KEY a (a))
        INSERT INTO t SELECT seq * 3, seq, seq % 7 FROM seq_1_to_5000
        ALTER TABLE t FORCE
        SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (k) WHERE id <= 0 OR id > 1
        SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (k) WHERE id <= 1 OR id > 9000
        SELECT id FROM t FORCE INDEX (a) WHERE a < 0 OR a BETWEEN 7 AND 9 OR a > 4998 ORDER BY id
        SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id < 2 OR id > 14990 ORDER BY id
        UPDATE t FORCE INDEX (k) SET a = -a WHERE id <= 0 OR id > 14994
        DELETE FROM t WHERE id < 1 OR id = 30 OR id > 14997
        SELECT COUNT(*), SUM(a), SUM(id) FROM t
        HANDLER t OPEN
        HANDLER t READ k > (14990) LIMIT 2
        HANDLER t READ k NEXT LIMIT 3
        HANDLER t CLOSE
    """,
    "lock_tables": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT)
        CREATE TABLE u (id INT PRIMARY KEY, v INT)
        LOCK TABLES t WRITE, u READ
        INSERT INTO t VALUES (1, 1), (2, 2)
        UPDATE t SET v = v + 1
        SELECT * FROM t ORDER BY id
        SELECT * FROM u
        UNLOCK TABLES
        LOCK TABLES t READ
        SELECT SUM(v) FROM t
        UNLOCK TABLES
        SET autocommit = 0
        LOCK TABLES t WRITE
        DELETE FROM t WHERE id = 1
        ROLLBACK
        UNLOCK TABLES
        SELECT * FROM t ORDER BY id
    """,
    "handler": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY v (v))
        INSERT INTO t VALUES (1, 30), (2, 10), (3, 20), (4, 20)
        HANDLER t OPEN
        HANDLER t READ FIRST
        HANDLER t READ NEXT LIMIT 10
        HANDLER t READ v FIRST
        HANDLER t READ v NEXT LIMIT 2
        HANDLER t READ v PREV
        HANDLER t READ v = (20) LIMIT 5
        HANDLER t READ v >= (15) LIMIT 5
        HANDLER t READ v < (20) LIMIT 5
        HANDLER t READ v LAST
        HANDLER t READ `PRIMARY` = (3)
        HANDLER t CLOSE
    """,
    "view": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT)
        INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)
        CREATE VIEW w AS SELECT id, v FROM t WHERE v >= 20 WITH CHECK OPTION
        SELECT * FROM w ORDER BY id
        UPDATE w SET v = v + 1
        DELETE FROM w WHERE id = 3
        INSERT INTO w VALUES (4, 40)
        SELECT * FROM t ORDER BY id
    """,
    "trigger": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT)
        CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(40))
        CREATE TRIGGER t_insert AFTER INSERT ON t FOR EACH ROW \
            INSERT INTO log (what) VALUES (CONCAT('insert ', NEW.id))
        CREATE TRIGGER t_update BEFORE UPDATE ON t FOR EACH ROW SET NEW.v = NEW.v * 2
        CREATE TRIGGER t_delete AFTER DELETE ON t FOR EACH ROW \
            INSERT INTO log (what) VALUES (CONCAT('delete ', OLD.id, ' ', OLD.v))
        INSERT INTO t VALUES (1, 1), (2, 2)
        UPDATE t SET v = 5 WHERE id = 2
        REPLACE INTO t VALUES (1, 7)
        DELETE FROM t WHERE id = 2
        SELECT * FROM t
        SELECT what FROM log ORDER BY n
    """,
    "procedure_with_cursor": """
        CREATE TABLE t (id INT PRIMARY KEY, v INT)
        INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)
        CREATE PROCEDURE p() BEGIN DECLARE done INT DEFAULT 0; DECLARE i INT; \
            DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id DESC; \
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1; OPEN c; \
            l: LOOP FETCH c INTO i; IF done THEN LEAVE l; END IF; \
            UPDATE t SET v = v * 10 + i WHERE id = i; END LOOP; CLOSE c; \
            SELECT * FROM t ORDER BY id; END
        CALL p()
    """,
    "create_select": """
        CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))
        INSERT INTO t SELECT seq, CONCAT('v', seq % 10) FROM seq_1_to_500
        CREATE TABLE u (PRIMARY KEY (id), KEY (v)) ENGINE={engine} SELECT * FROM t WHERE id % 2
        SELECT COUNT(*), MIN(id), MAX(id) FROM u
        SELECT COUNT(*) FROM u FORCE INDEX (v) WHERE v = 'v3'
        CREATE TABLE w LIKE t
        INSERT INTO w SELECT * FROM t ORDER BY id DESC
        SELECT COUNT(*) FROM w
        CREATE OR REPLACE TABLE w (a INT) ENGINE={engine}
        SELECT COUNT(*) FROM w
    """,
    "prepared": """
        CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), KEY v (v))
        PREPARE i FROM 'INSERT INTO t VALUES (?, ?)'
        SET @a = 1, @b = 'x'
        EXECUTE i USING @a, @b
        SET @a = 2, @b = 'y'
        EXECUTE i USING @a, @b
        PREPARE s FROM 'SELECT * FROM t WHERE v >= ? ORDER BY v DESC LIMIT 5'
        SET @b = 'a'
        EXECUTE s USING @b
        ALTER TABLE t ADD COLUMN n INT DEFAULT 7
        EXECUTE s USING @b
        SET @b = 'y'
        EXECUTE s USING @b
        DEALLOCATE PREPARE s
    """,
    "generated_columns": """
        CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), \
            s INT AS (a * 2) PERSISTENT, w VARCHAR(40) AS (CONCAT(b, '-', a)) VIRTUAL, KEY s (s))
        INSERT INTO t (id, a, b) VALUES (1, 5, 'x'), (2, NULL, 'y'), (3, 7, NULL)
        SELECT * FROM t ORDER BY id
        UPDATE t SET a = a + 1
        SELECT id, s FROM t FORCE INDEX (s) WHERE s > 0 ORDER BY s DESC
        SELECT id FROM t WHERE w = 'x-6'
        ALTER TABLE t ADD COLUMN z INT AS (a + 100) VIRTUAL
        SELECT id, z FROM t ORDER BY id
        DELETE FROM t WHERE s = 12
        SELECT * FROM t ORDER BY id
    """,
    "indexed_virtual_column": """
        CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a % 10) VIRTUAL, \
            h VARCHAR(20) AS (CONCAT('h', a)) VIRTUAL, KEY g (g), UNIQUE KEY h (h))
        INSERT INTO t (id, a) SELECT seq, seq * 3 FROM seq_1_to_100
        SELECT id FROM t FORCE INDEX (g) WHERE g = 6 ORDER BY id
        SELECT g, COUNT(*) FROM t FORCE INDEX (g) GROUP BY g
        UPDATE t SET a = a + 1000 WHERE id < 20
        SELECT id, h FROM t FORCE INDEX (h) WHERE h LIKE 'h10%' ORDER BY h
        DELETE FROM t WHERE g = 3
        INSERT INTO t (id, a) VALUES (500, 300)
        SELECT COUNT(*) FROM t FORCE INDEX (h)
        REPLACE INTO t (id, a) VALUES (1, 77)
        SELECT g, COUNT(*) FROM t FORCE INDEX (g) GROUP BY g
        CHECK TABLE t EXTENDED
    """,
    "partitions": """
        CREATE TABLE t (id INT, d DATE, v INT, PRIMARY KEY (id, d), KEY v (v)) ENGINE={engine} \
            PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2000), \
            PARTITION p1 VALUES LESS THAN (2010), PARTITION p2 VALUES LESS THAN MAXVALUE)
        INSERT INTO t SELECT seq, DATE '1995-01-01' + INTERVAL seq * 30 DAY, seq % 7 \
            FROM seq_1_to_300
        SELECT COUNT(*), SUM(v) FROM t WHERE d < '2000-01-01'
        SELECT COUNT(*) FROM t PARTITION (p1)
        SELECT id, d FROM t WHERE v = 3 ORDER BY id LIMIT 5
        SELECT id FROM t FORCE INDEX (v) WHERE v = 6 ORDER BY v, id DESC LIMIT 5
        UPDATE t SET d = '2015-05-05' WHERE id = 1
        UPDATE t SET v = v + 1 WHERE id BETWEEN 10 AND 20
        DELETE FROM t WHERE d BETWEEN '1999-01-01' AND '2001-01-01'
        SELECT COUNT(*) FROM t
        ALTER TABLE t TRUNCATE PARTITION p0
        SELECT COUNT(*) FROM t
        ALTER TABLE t DROP PARTITION p0
        ALTER TABLE t REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (2015), \
            PARTITION p3 VALUES LESS THAN MAXVALUE)
        SELECT COUNT(*), MIN(d), MAX(d) FROM t PARTITION (p3)
        ALTER TABLE t ADD INDEX dv (d, v)
        SELECT COUNT(*) FROM t FORCE INDEX (dv) WHERE d > '2012-01-01'
        CHECK TABLE t EXTENDED
        ALTER TABLE t REMOVE PARTITIONING
        SELECT COUNT(*), SUM(v) FROM t
        DROP TABLE t
    """,
    "hash_partitions_and_auto_increment": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={engine} \
            PARTITION BY HASH (id) PARTITIONS 4
        INSERT INTO t (v) VALUES (1), (2), (3), (4), (5)
        SELECT * FROM t ORDER BY id
        INSERT INTO t VALUES (50, 50)
        INSERT INTO t (v) VALUES (51)
        SELECT MAX(id) FROM t
        ALTER TABLE t COALESCE PARTITION 2
        SELECT COUNT(*) FROM t
    """,
    "maintenance": """
        CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(100), KEY v (v))
        INSERT INTO t SELECT seq, REPEAT(CHAR(97 + seq % 26), seq % 100) FROM seq_1_to_2000
        ANALYZE TABLE t
        DELETE FROM t WHERE id % 3 = 0
        OPTIMIZE TABLE t
        CHECK TABLE t
        CHECK TABLE t QUICK
        CHECK TABLE t EXTENDED
        ANALYZE TABLE t PERSISTENT FOR ALL
        SELECT COUNT(*), COUNT(DISTINCT v) FROM t
        SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v > 'm'
        FLUSH TABLES t
        SELECT MIN(id) FROM t
    """,
    "alter_in_every_way": """
        CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), b INT)
        INSERT INTO t VALUES (1, 'x', 1), (2, 'y', NULL), (3, 'z', 3)
        ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5
        ALTER TABLE t ADD COLUMN d DATETIME DEFAULT '2001-01-01' FIRST, ADD COLUMN e BLOB AFTER a
        SELECT * FROM t ORDER BY id
        UPDATE t SET e = REPEAT('e', 1000), c = id WHERE id = 2
        ALTER TABLE t DROP COLUMN a
        ALTER TABLE t MODIFY b BIGINT, CHANGE c cc INT
        ALTER TABLE t ADD COLUMN a TEXT DEFAULT 'again'
        SELECT id, d, LENGTH(e), b, cc, a FROM t ORDER BY id
        ALTER TABLE t MODIFY a VARCHAR(300) FIRST
        ALTER TABLE t ALTER COLUMN cc SET DEFAULT 9
        INSERT INTO t (id) VALUES (4)
        ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, cc), ADD UNIQUE KEY (cc, id)
        SELECT id, cc, b, a FROM t ORDER BY id
        ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4
        ALTER TABLE t RENAME INDEX cc TO better
        ALTER TABLE t COMMENT = 'a comment', ROW_FORMAT = DYNAMIC
        ALTER TABLE t DROP COLUMN d, DROP INDEX better
        SELECT * FROM t ORDER BY id
        ALTER TABLE t ORDER BY b
        CHECK TABLE t EXTENDED
    """,
    "change_of_engine": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30), UNIQUE KEY v (v))
        INSERT INTO t (v) SELECT CONCAT('v', seq) FROM seq_1_to_300
        ALTER TABLE t ENGINE=MyISAM
        INSERT INTO t (v) VALUES ('one more')
        ALTER TABLE t ENGINE={engine}
        INSERT INTO t (v) VALUES ('and one')
        SELECT COUNT(*), MAX(id) FROM t
        SELECT * FROM t FORCE INDEX (v) WHERE v < 'v' ORDER BY v
        ALTER TABLE t ENGINE=InnoDB
        SELECT COUNT(*) FROM t
        DROP TABLE t
    """,
    "default_expressions_and_checks": """
        CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT (1 + 1), b INT CHECK (b > 0), \
            c TIMESTAMP(3) DEFAULT '2020-01-01', CONSTRAINT positive CHECK (a > b OR b IS NULL))
        INSERT INTO t (id) VALUES (1)
        INSERT INTO t (id, a, b) VALUES (2, 5, 3)
        INSERT INTO t (id, a, b) VALUES (3, 5, -3)
        UPDATE t SET b = 100 WHERE id = 2
        SELECT * FROM t ORDER BY id
    """,
    "system_versioning": """
        SET timestamp = 1000000000
        CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING
        INSERT INTO t VALUES (1, 1), (2, 2)
        SET timestamp = 1000000100
        UPDATE t SET v = v + 10
        SET timestamp = 1000000200
        DELETE FROM t WHERE id = 1
        SELECT * FROM t ORDER BY id
        SELECT id, v FROM t FOR SYSTEM_TIME AS OF FROM_UNIXTIME(1000000050) ORDER BY id
        SELECT id, v FROM t FOR SYSTEM_TIME ALL ORDER BY id, v
    """,
    "returning": """
        CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, UNIQUE KEY v (v))
        INSERT INTO t (v) VALUES (5), (6) RETURNING id, v
        REPLACE INTO t (v) VALUES (6) RETURNING v
        DELETE FROM t WHERE v = 5 RETURNING v
        SELECT v FROM t
    """,
    "update_through_an_index_with_a_prefix_in_the_primary_key": """
        CREATE TABLE t (a VARCHAR(9) NOT NULL, b INT, c INT, PRIMARY KEY (a(1)), KEY k (b, c))
        INSERT INTO t VALUES ('ax', 1, 1), ('bx', 1, 2), ('cx', 2, 3)
        UPDATE t FORCE INDEX (k) SET c = c + 10 WHERE b IN (1, 2)
        DELETE FROM t WHERE b = 1 ORDER BY c DESC LIMIT 1
        SELECT b, c FROM t FORCE INDEX (k) ORDER BY b, c
        SELECT * FROM t ORDER BY a
    """,
    "an_update_to_the_null_that_was_there_changes_nothing": """
        CREATE TABLE t (id INT PRIMARY KEY, d DATETIME, c CHAR(3), n DECIMAL(5,2), v VARCHAR(9))
        INSERT INTO t (id) VALUES (1)
        INSERT INTO t VALUES (1, '2020-01-01', 'x', 1, 'y') ON DUPLICATE KEY UPDATE d = NULL
        INSERT INTO t VALUES (1, NULL, 'x', 1, 'y') ON DUPLICATE KEY UPDATE c = NULL, n = NULL
        UPDATE t SET d = NULL, c = NULL, n = NULL, v = NULL
        SELECT * FROM t
    """,
    "char_with_nopad": """
        CREATE TABLE t (id INT PRIMARY KEY, c CHAR(10) COLLATE latin1_nopad_bin, KEY c (c))
        INSERT INTO t VALUES (1, 'a'), (2, 'a '), (3, ''), (4, 'b'), (5, NULL)
        SELECT id, HEX(c) FROM t FORCE INDEX (c) WHERE c = 'a' ORDER BY id
        SELECT HEX(c) FROM t FORCE INDEX (c) ORDER BY c
        SELECT id, LENGTH(c) FROM t ORDER BY id
    """,
    "rows_of_every_size": """
        CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB, v VARCHAR(8000))
        INSERT INTO t VALUES (1, REPEAT('x', 1000000), REPEAT('v', 8000)), (2, '', '')
        INSERT INTO t VALUES (3, NULL, NULL), (4, REPEAT('y', 3000000), 'small')
        SELECT id, LENGTH(b), MD5(b), LENGTH(v), MD5(v) FROM t ORDER BY id
        UPDATE t SET b = CONCAT(b, b) WHERE id = 4
        SELECT id, LENGTH(b), MD5(b) FROM t ORDER BY id DESC
        DELETE FROM t WHERE id = 1
        SELECT id FROM t ORDER BY id
    """,
}
# By script: the statements that fail on InnoDB, too, by number, with their errors.
ERRORS = {
    "indexed_virtual_column": {8: 1062},
    "default_expressions_and_checks": {4: 4025, 5: 4025},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_innodb(server: Server, name: str) -> None:
    same_as_innodb(server, SCRIPTS[name], ERRORS.get(name))


def test_a_difference_is_found_out(server: Server) -> None:
    script = "CREATE TABLE t (a INT) ENGINE={engine}\nSELECT '{engine}'"
    if server.query("SELECT @@default_storage_engine")[0][0] == "InnoDB":
        script = "SELECT '{db}'"
    with pytest.raises(AssertionError, match="statement"):
        same_as_innodb(server, script)
