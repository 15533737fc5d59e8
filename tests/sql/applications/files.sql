-- A file store: binary collation, ROW_FORMAT, long unique strings, binary hashes, JSON, a table
-- without a primary key.
CREATE TABLE storages (
  numeric_id BIGINT NOT NULL AUTO_INCREMENT,
  id VARCHAR(64) DEFAULT NULL,
  available INT NOT NULL DEFAULT 1,
  PRIMARY KEY (numeric_id),
  UNIQUE KEY storages_id (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE entries (
  entry BIGINT NOT NULL AUTO_INCREMENT,
  storage BIGINT NOT NULL DEFAULT 0,
  path VARCHAR(4000) DEFAULT NULL,
  path_hash BINARY(16) NOT NULL DEFAULT '',
  name VARCHAR(250) DEFAULT NULL,
  size BIGINT NOT NULL DEFAULT 0,
  modified BIGINT NOT NULL DEFAULT 0,
  checksum VARCHAR(255) DEFAULT NULL,
  details JSON DEFAULT NULL,
  PRIMARY KEY (entry),
  UNIQUE KEY entry_path (storage, path_hash),
  KEY entry_name (storage, name),
  KEY entry_size (storage, size, entry),
  KEY entry_prefix (storage, path(64)),
  CONSTRAINT entry_storage FOREIGN KEY (storage) REFERENCES storages (numeric_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
CREATE TABLE shares (
  id BIGINT NOT NULL AUTO_INCREMENT,
  kind SMALLINT NOT NULL DEFAULT 0,
  parent BIGINT DEFAULT NULL,
  entry BIGINT DEFAULT NULL,
  token VARCHAR(32) DEFAULT NULL,
  expires DATETIME DEFAULT NULL,
  note LONGTEXT DEFAULT NULL,
  PRIMARY KEY (id),
  KEY share_parent (parent),
  KEY share_token (token),
  CONSTRAINT share_parent FOREIGN KEY (parent) REFERENCES shares (id) ON DELETE CASCADE,
  CONSTRAINT share_entry FOREIGN KEY (entry) REFERENCES entries (entry) ON DELETE SET NULL ON UPDATE RESTRICT
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=COMPRESSED;
CREATE TABLE blocks (
  hash VARBINARY(64) NOT NULL,
  body LONGBLOB NOT NULL,
  bits BIT(5) NOT NULL DEFAULT b'101',
  PRIMARY KEY (hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE locks (
  path VARCHAR(64) NOT NULL DEFAULT '',
  ttl INT NOT NULL DEFAULT -1,
  seen YEAR DEFAULT NULL,
  took TIME(2) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
