-- A shop's catalog as attributes of entities: many small tables, foreign keys in every direction,
-- a tree that refers to itself, composite keys, prices with six decimals.
CREATE TABLE website (
  website_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  code VARCHAR(32) DEFAULT NULL,
  is_default SMALLINT UNSIGNED DEFAULT 0 COMMENT 'Is "the" default; 50% off',
  UNIQUE KEY website_code (code)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb3 COMMENT='Websites';
CREATE TABLE store (
  store_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  website_id SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  name VARCHAR(255) NOT NULL,
  KEY store_website (website_id),
  CONSTRAINT store_of_website FOREIGN KEY (website_id) REFERENCES website (website_id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb3;
CREATE TABLE attribute (
  attribute_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  entity_kind SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  code VARCHAR(255) NOT NULL,
  kind ENUM('varchar', 'decimal', 'int') NOT NULL DEFAULT 'varchar',
  flags SET('searchable', 'filterable') DEFAULT NULL,
  UNIQUE KEY attribute_code (entity_kind, code)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb3;
CREATE TABLE category (
  entity_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  parent_id INT UNSIGNED DEFAULT NULL,
  path VARCHAR(255) NOT NULL,
  position INT NOT NULL,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  KEY category_path (path(100), position DESC),
  CONSTRAINT category_parent FOREIGN KEY (parent_id) REFERENCES category (entity_id) ON DELETE SET NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE product (
  entity_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  sku VARCHAR(64) NOT NULL,
  options LONGTEXT CHECK (JSON_VALID(options)),
  UNIQUE KEY product_sku (sku)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 AUTO_INCREMENT=10001;
CREATE TABLE product_decimal (
  value_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  attribute_id SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  store_id SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  entity_id INT UNSIGNED NOT NULL DEFAULT 0,
  value DECIMAL(20,6) DEFAULT NULL,
  UNIQUE KEY decimal_of_product (entity_id, attribute_id, store_id),
  CONSTRAINT decimal_attribute FOREIGN KEY (attribute_id) REFERENCES attribute (attribute_id) ON DELETE CASCADE,
  CONSTRAINT decimal_store FOREIGN KEY (store_id) REFERENCES store (store_id) ON DELETE CASCADE,
  CONSTRAINT decimal_product FOREIGN KEY (entity_id) REFERENCES product (entity_id) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE category_product (
  entity_id INT NOT NULL AUTO_INCREMENT,
  category_id INT UNSIGNED NOT NULL DEFAULT 0,
  product_id INT UNSIGNED NOT NULL DEFAULT 0,
  position INT NOT NULL DEFAULT 0,
  PRIMARY KEY (entity_id, category_id, product_id),
  UNIQUE KEY product_in_category (category_id, product_id),
  CONSTRAINT placed_category FOREIGN KEY (category_id) REFERENCES category (entity_id) ON DELETE CASCADE,
  CONSTRAINT placed_product FOREIGN KEY (product_id) REFERENCES product (entity_id) ON DELETE CASCADE ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE sale (
  entity_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  store_id SMALLINT UNSIGNED DEFAULT NULL,
  number VARCHAR(50) DEFAULT NULL,
  base DECIMAL(20,4) NOT NULL DEFAULT 0,
  tax DECIMAL(20,4) NOT NULL DEFAULT 0,
  total DECIMAL(21,4) AS (base + tax) STORED,
  taxed TINYINT AS (tax > 0) VIRTUAL,
  placed_at DATETIME(3) DEFAULT NULL,
  UNIQUE KEY sale_number (number, store_id),
  KEY sale_total (total),
  CONSTRAINT sale_store FOREIGN KEY (store_id) REFERENCES store (store_id) ON DELETE SET NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE search_recent (id INT PRIMARY KEY, words VARCHAR(200)) ENGINE=MEMORY;
CREATE VIEW price AS SELECT p.sku, d.value FROM product p JOIN product_decimal d USING (entity_id);
