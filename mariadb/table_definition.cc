/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Turns the server's definition of a table into that of the core. Refuses columns and keys that
  the core does not have.
*/

#include "table_definition.h"
#include "collation.h"
#include "table_options.h"
#include "key.h"

namespace firn {
namespace {

/*
  Types of plugins that ship with the server. Their record form is bytes that sort like the values.
*/
bool is_fixed_binary_type(const Field* field) {
  const Name name = field->type_handler()->name();
  for (const char* known : {"uuid", "inet6", "inet4"})
    if (strlen(known) == name.length() && !strncasecmp(known, name.ptr(), name.length())) return true;
  return false;
}

bool is_char(const Field* field) {
  return field->real_type() == MYSQL_TYPE_STRING && field->charset() != &my_charset_bin && !is_fixed_binary_type(field);
}

/* Size of the length in front of a VARCHAR or blob in the record buffer, in bytes. */
uint32_t len_bytes_of(const Field* field) {
  if (field->flags & BLOB_FLAG) return static_cast<const Field_blob*>(field)->pack_length_no_ptr();
  return static_cast<const Field_varstring*>(field)->length_bytes;
}

bool is_varchar(const Field* field) {
  return field->real_type() == MYSQL_TYPE_VARCHAR || field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED;
}

/* Says why columns of this type cannot be stored; NULL if they can. */
const char* column_trouble(const Field* field) {
  if (field->flags & BLOB_FLAG || is_varchar(field)) return nullptr;
  switch (field->real_type()) {
    case MYSQL_TYPE_STRING:
      if (field->type_handler() == &type_handler_string || is_fixed_binary_type(field)) return nullptr;
      return "a data type that FIRN does not know";
    case MYSQL_TYPE_BIT:
      if (static_cast<const Field_bit*>(field)->bit_len == 0) return nullptr;
      return "a BIT column whose bits are spread over the record";
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_TIME:
    case MYSQL_TYPE_TIME2:
    case MYSQL_TYPE_DATETIME:
    case MYSQL_TYPE_DATETIME2:
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_TIMESTAMP2:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
    case MYSQL_TYPE_NULL:
      return nullptr;
    default:
      return "a data type that FIRN does not know";
  }
}

/*
  The key parts that the engine indexes. A unique key that is too long for an index has one part, a
  hash in a hidden column. While the table is created, this part stands behind the declared parts;
  in an open table it replaces them.
*/
struct Parts {
  explicit Parts(const TABLE* table, const KEY* key) : first(key->key_part), count(key->user_defined_key_parts) {
    if (key->algorithm != HA_KEY_ALG_LONG_HASH) return;
    const uint declared = count;
    for (uint i = 0; i < declared && !(table->field[first->fieldnr - 1]->flags & LONG_UNIQUE_HASH_FIELD); i++) first++;
    count = 1;
  }
  const KEY_PART_INFO* first;
  uint count;
};

/*
  A checksum of the attributes that give stored bytes their value: the bytes of INT and INT
  UNSIGNED, of DECIMAL(10,2) and DECIMAL(10,1), or of two ENUMs are alike. Never 0, which means
  unknown.
*/
uint32_t interpretation_of(const Field* field) {
  const uchar attributes[] = {uchar((field->flags & UNSIGNED_FLAG) != 0), uchar(field->decimals())};
  ha_checksum sum = my_checksum(0, attributes, sizeof(attributes));
  const LEX_CSTRING charset = field->charset()->cs_name;
  sum = my_checksum(sum, charset.str, charset.length);
  if (const TYPELIB* members = field->get_typelib())
    for (uint i = 0; i < members->count; i++) {
      /* With the length: ('ab','c') differs from ('a','bc'). */
      const uint32_t length = members->type_lengths[i];
      sum = my_checksum(sum, &length, sizeof(length));
      sum = my_checksum(sum, members->type_names[i], length);
    }
  return sum ? uint32_t(sum) : 1;
}

constexpr uint32_t kNoOrder = UINT32_MAX;

/* FIRN_PART_… of a column; kNoOrder if it cannot be a key part. */
uint32_t part_kind(const Field* field) {
  const uint32_t string = field->charset() == &my_charset_bin ? FIRN_PART_VARBYTES : FIRN_PART_TEXT;
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      return field->flags & UNSIGNED_FLAG ? FIRN_PART_UINT : FIRN_PART_INT;
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
      return FIRN_PART_UINT;
    /*
      The server stores values of the types from before 10.1 as integers if they have no fraction,
      otherwise as big-endian numbers that are never negative.
    */
    case MYSQL_TYPE_TIME:
      return field->decimals() ? FIRN_PART_FIXED : FIRN_PART_INT;
    case MYSQL_TYPE_DATETIME:
    case MYSQL_TYPE_TIMESTAMP:
      return field->decimals() ? FIRN_PART_FIXED : FIRN_PART_UINT;
    case MYSQL_TYPE_TIME2:
    case MYSQL_TYPE_DATETIME2:
    case MYSQL_TYPE_TIMESTAMP2:
    case MYSQL_TYPE_NEWDECIMAL:
    case MYSQL_TYPE_BIT:
      return FIRN_PART_FIXED;
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
      return FIRN_PART_FLOAT;
    case MYSQL_TYPE_STRING:
      return is_char(field) ? FIRN_PART_TEXT : FIRN_PART_FIXED;
    case MYSQL_TYPE_VARCHAR:
    case MYSQL_TYPE_TINY_BLOB:
    case MYSQL_TYPE_BLOB:
    case MYSQL_TYPE_MEDIUM_BLOB:
    case MYSQL_TYPE_LONG_BLOB:
    case MYSQL_TYPE_GEOMETRY:
      return string;
    default:
      return kNoOrder;
  }
}

}  // namespace

TableDefinition::TableDefinition(const TABLE* table) {
  const TABLE_SHARE* share = table->s;
  size_t parts = 0;
  for (uint i = 0; i < share->keys; i++) parts += table->key_info[i].user_defined_key_parts;
  m_columns.reserve(share->fields);
  m_indexes.reserve(share->keys);
  m_parts.reserve(parts);
  m_collations.reserve(parts);
  m_def.auto_increment = FIRN_NONE;
  for (uint i = 0; i < share->fields; i++) {
    const Field* field = table->field[i];
    if (!add_column(table, field)) return;
    if (field->unireg_check == Field::NEXT_NUMBER) m_def.auto_increment = i;
  }
  for (uint i = 0; i < share->keys; i++)
    if (!add_index(table, &table->key_info[i])) return;
  m_def.record_len = uint32_t(share->reclength);
  m_def.null_bytes = share->null_bytes;
  m_def.columns = m_columns.data();
  m_def.column_count = uint32_t(m_columns.size());
  m_def.indexes = m_indexes.data();
  m_def.index_count = uint32_t(m_indexes.size());
  m_def.primary = share->primary_key < share->keys ? share->primary_key : FIRN_NONE;
  m_def.optimistic = is_optimistic(share->option_struct);
  m_def.collator = collator();
  m_def.default_record = share->default_values;
}

bool TableDefinition::add_column(const TABLE* table, const Field* field) {
  if (const char* why = column_trouble(field)) return refuse("column", field->field_name.str, why);
  const uchar* record = table->record[0];
  firn_column column = {};
  column.name = field->field_name.str;
  column.type_code = field->real_type();
  column.interpretation = interpretation_of(field);
  column.offset = uint32_t(field->ptr - record);
  if (field->null_ptr) {
    column.null_offset = uint32_t(field->null_ptr - record);
    column.null_mask = field->null_bit;
  }
  column.stored = field->stored_in_db();
  if (field->flags & BLOB_FLAG) {
    column.kind = FIRN_COLUMN_BLOB;
    column.len_bytes = len_bytes_of(field);
  } else if (is_varchar(field)) {
    column.kind = FIRN_COLUMN_VARCHAR;
    column.len_bytes = len_bytes_of(field);
    column.len = field->field_length;
  } else {
    column.len = field->pack_length();
    if (is_char(field)) {
      CHARSET_INFO* cs = field->charset();
      const int pad = my_ci_wc_mb(cs, ' ', column.pad, column.pad + sizeof(column.pad));
      if (pad <= 0) return refuse("column", column.name, "a character set without space");
      column.kind = FIRN_COLUMN_CHAR;
      column.pad_len = uint8_t(pad);
      column.chars = field->char_length();
    }
  }
  m_columns.push_back(column);
  return true;
}

bool TableDefinition::add_index(const TABLE* table, const KEY* key) {
  if (key->flags & HA_FULLTEXT) return refuse("index", key->name.str, "FULLTEXT");
  if (key->flags & HA_SPATIAL || key->algorithm == HA_KEY_ALG_RTREE) return refuse("index", key->name.str, "SPATIAL");
  firn_index index = {};
  index.name = key->name.str;
  index.parts = m_parts.data() + m_parts.size();
  const Parts parts(table, key);
  index.part_count = parts.count;
  /*
    Of a unique key that is too long for an index, the engine sees only a hash. Hashes may collide,
    so the server checks uniqueness itself.
  */
  index.unique = (key->flags & HA_NOSAME) && key->algorithm != HA_KEY_ALG_LONG_HASH;
  for (uint i = 0; i < parts.count; i++)
    if (!add_part(table, key, &parts.first[i])) return false;
  m_indexes.push_back(index);
  return true;
}

bool TableDefinition::add_part(const TABLE* table, const KEY* key, const KEY_PART_INFO* key_part) {
  /* Do not use key_part->field, which is a shortened copy if the part is a prefix. */
  const Field* field = table->field[key_part->fieldnr - 1];
  firn_key_part part = {};
  part.column = field->field_index;
  part.kind = part_kind(field);
  if (part.kind == kNoOrder) return refuse("index", key->name.str, "a column of this data type");
  part.image_len = key_part->length;
  part.desc = key_part->key_part_flag & HA_REVERSE_SORT;
  const bool text = part.kind == FIRN_PART_TEXT;
  if (field->flags & BLOB_FLAG || key_part->length != field->key_length())
    part.prefix = key_part->length / (text ? field->charset()->mbmaxlen : 1);
  if (text) {
    firn_collation collation;
    if (describe_collation(field->charset(), &collation)) {
      char why[MY_CS_COLLATION_NAME_SIZE + 16];
      my_snprintf(why, sizeof(why), "collation %s", field->charset()->coll_name.str);
      return refuse("index", key->name.str, why);
    }
    m_collations.push_back(collation);
    part.collation = &m_collations.back();
  }
  m_parts.push_back(part);
  return true;
}

bool TableDefinition::refuse(const char* what, const char* name, const char* why) {
  my_snprintf(m_unsupported, sizeof(m_unsupported), "%s `%s`: %s", what, name, why);
  return false;
}

}  // namespace firn
