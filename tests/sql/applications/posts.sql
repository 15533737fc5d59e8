-- A publishing site and its shop: longtext, prefixes of 191 characters, zero dates, keys that the
-- application checks itself beside one foreign key, no strict mode.
CREATE TABLE post (
  id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT,
  author BIGINT(20) UNSIGNED NOT NULL DEFAULT 0,
  published DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00',
  content LONGTEXT NOT NULL,
  title TEXT NOT NULL,
  status VARCHAR(20) NOT NULL DEFAULT 'publish',
  slug VARCHAR(200) NOT NULL DEFAULT '',
  parent BIGINT(20) UNSIGNED NOT NULL DEFAULT 0,
  PRIMARY KEY (id),
  KEY post_slug (slug(191)),
  KEY post_kind (status, published, id),
  KEY post_parent (parent)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE post_extra (
  extra_id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT,
  post_id BIGINT(20) UNSIGNED NOT NULL DEFAULT 0,
  name VARCHAR(255) DEFAULT NULL,
  value LONGTEXT DEFAULT NULL,
  PRIMARY KEY (extra_id),
  KEY extra_post (post_id),
  KEY extra_name (name(191))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE term_of_post (
  post_id BIGINT(20) UNSIGNED NOT NULL DEFAULT 0,
  term_id BIGINT(20) UNSIGNED NOT NULL DEFAULT 0,
  place INT(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (post_id, term_id),
  KEY term_key (term_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE setting (
  id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT,
  name VARCHAR(191) NOT NULL DEFAULT '',
  value LONGTEXT NOT NULL,
  autoload VARCHAR(20) NOT NULL DEFAULT 'yes',
  PRIMARY KEY (id),
  UNIQUE KEY setting_name (name),
  KEY setting_autoload (autoload)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE shopping_session (
  session_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  session_key CHAR(32) NOT NULL,
  session_value LONGTEXT NOT NULL,
  expires BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (session_id),
  UNIQUE KEY by_key (session_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE download_right (
  right_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  download VARCHAR(36) NOT NULL,
  sale_id BIGINT UNSIGNED NOT NULL DEFAULT 0,
  mail VARCHAR(200) NOT NULL,
  until DATETIME NULL DEFAULT NULL,
  PRIMARY KEY (right_id),
  KEY right_sale (sale_id, right_id),
  KEY right_mail (mail(100), download(16))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE download_log (
  log_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  at DATETIME NOT NULL,
  right_id BIGINT UNSIGNED NOT NULL,
  address VARCHAR(100) NULL DEFAULT '',
  PRIMARY KEY (log_id),
  KEY log_at (at),
  CONSTRAINT log_of_right FOREIGN KEY (right_id) REFERENCES download_right (right_id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
CREATE TABLE tax_rate (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  country VARCHAR(2) NOT NULL DEFAULT '',
  rate DECIMAL(26,8) NOT NULL DEFAULT 0,
  ratio DOUBLE NULL DEFAULT NULL,
  compound TINYINT(1) NOT NULL DEFAULT 0,
  PRIMARY KEY (id),
  KEY rate_country (country)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci;
