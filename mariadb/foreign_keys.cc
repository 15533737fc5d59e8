/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Foreign keys: definitions from the server to the core, and back for SHOW CREATE TABLE,
  information_schema and prelocking. The core checks rows and lets actions follow. Errors are in
  foreign_key_errors.cc.
*/

#include "foreign_keys.h"
#include "backup_stage.h"
#include "errors.h"
#include "foreign_key_text.h"
#include "ha_firn.h"
#include "sql_alter.h"
#include "sql_show.h"
#include "sql_table.h"

#include <new>

namespace firn {
namespace {

/* A name as the core's catalog has it: encoded as in file names. */
std::string encoded(const char* name, size_t length) {
  char plain[NAME_LEN + 1];
  char buffer[FN_REFLEN];
  strmake(plain, name, MY_MIN(length, size_t(NAME_LEN)));
  if (lower_case_table_names) my_casedn_str(system_charset_info, plain);
  tablename_to_filename(plain, buffer, sizeof(buffer));
  return buffer;
}

std::string quoted(THD* thd, const char* name, size_t length) {
  String text;
  append_identifier(thd, &text, name, length);
  return std::string(text.ptr(), text.length());
}

/*
  The name or the columns of a foreign key, as InnoDB shortens them in messages: at most 48
  characters.
*/
std::string label_of(const Foreign_key* key) {
  constexpr size_t kMax = 48;
  if (key->name.str) return "`" + std::string(key->name.str, MY_MIN(key->name.length, kMax - 2)) + "`";
  std::string text = "(";
  List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key*>(key)->columns);
  while (const Key_part_spec* column = columns++) {
    const bool more = columns.peek() != nullptr;
    if (kMax - text.length() < (more ? 6U : 4U) + column->field_name.length) {
      text += "...";
      break;
    }
    text.append(column->field_name.str, column->field_name.length);
    if (more) text += ", ";
  }
  return text + ")";
}

uint8_t action_of(enum_fk_option option, bool in_place) {
  switch (option) {
    case FK_OPTION_CASCADE:
      return FIRN_ACTION_CASCADE;
    case FK_OPTION_SET_NULL:
      return FIRN_ACTION_SET_NULL;
    case FK_OPTION_NO_ACTION:
      return FIRN_ACTION_NONE;
    case FK_OPTION_RESTRICT:
    case FK_OPTION_SET_DEFAULT:
      /*
        InnoDB stores these actions as NO ACTION if it adds the foreign key in place, otherwise as
        RESTRICT. FIRN does the same, so that SHOW CREATE TABLE shows the same text.
      */
      return in_place ? FIRN_ACTION_NONE : FIRN_ACTION_RESTRICT;
    default:
      return FIRN_ACTION_RESTRICT;
  }
}

enum_fk_option option_of(uint8_t action) {
  switch (action) {
    case FIRN_ACTION_CASCADE:
      return FK_OPTION_CASCADE;
    case FIRN_ACTION_SET_NULL:
      return FK_OPTION_SET_NULL;
    case FIRN_ACTION_NONE:
      return FK_OPTION_NO_ACTION;
    default:
      return FK_OPTION_RESTRICT;
  }
}

/* The columns of a list that stored generated columns are computed from. */
class GeneratedBases {
 public:
  /*
    Only a statement that adds foreign keys may ask the server for these columns. Partitioned tables
    have no foreign keys, and the server has not opened their partitions yet, whose columns it would
    need for an answer.
  */
  GeneratedBases(TABLE* form, bool wanted) {
    if (!wanted || !form->vfield || !*form->vfield) return;
    if (my_bitmap_init(&bases_, nullptr, form->s->fields)) throw std::bad_alloc();
    MY_BITMAP* const read_set = form->read_set;
    form->read_set = &bases_;
    for (Field** field = form->vfield; *field; field++)
      if ((*field)->vcol_info->is_stored()) form->mark_virtual_column_deps(*field);
    form->read_set = read_set;
    known_ = true;
  }
  ~GeneratedBases() { my_bitmap_free(&bases_); }
  GeneratedBases(const GeneratedBases&) = delete;
  GeneratedBases& operator=(const GeneratedBases&) = delete;

  bool has(const Field* field) const { return known_ && bitmap_is_set(&bases_, field->field_index); }

 private:
  MY_BITMAP bases_ = {};
  bool known_ = false;
};

const Field* find_field(const TABLE* form, const LEX_CSTRING& name) {
  for (uint i = 0; i < form->s->fields; i++)
    if (!my_strcasecmp(system_charset_info, form->field[i]->field_name.str, name.str)) return form->field[i];
  return nullptr;
}

uint32_t chars_of(const Field* field) {
  return field && field->charset() != &my_charset_bin && field->result_type() == STRING_RESULT ? field->char_length()
                                                                                               : 0;
}

LEX_CSTRING* lex_string(THD* thd, const char* text) { return thd_make_lex_string(thd, nullptr, text, strlen(text), 1); }

/* The names of a table in the core's catalog, for FOREIGN_KEY_INFO. */
struct TableNames {
  TableNames(THD* thd, const char* table) {
    char schema[kSchemaNameSize], name[kTableNameSize];
    decode_table_name(table, schema, name);
    database = lex_string(thd, schema);
    this->name = lex_string(thd, name);
  }
  LEX_CSTRING* database;
  LEX_CSTRING* name;
};

/*
  Sets what FOREIGN_KEY_INFO::set_nullable() would set. The server does not export the function that
  allocates the bits; they are the last member. Returns false if there is no memory.
*/
bool set_nullable(THD* thd, FOREIGN_KEY_INFO* info, const firn_foreign_key_info* key) {
  const size_t count = key->column_count;
  uchar* bits = static_cast<uchar*>(thd_calloc(thd, uint((2 * count + 7) / 8)));
  if (!bits) return false;
  for (size_t i = 0; i < count; i++) {
    if (key->nullable[i]) bits[i / 8] |= uchar(1 << (i % 8));
    const size_t at = i + count;
    if (key->parent_nullable[i]) bits[at / 8] |= uchar(1 << (at % 8));
  }
  memcpy(reinterpret_cast<char*>(info) + sizeof(*info) - sizeof(bits), &bits, sizeof(bits));
  return true;
}

struct KeyList {
  THD* thd;
  List<FOREIGN_KEY_INFO>* keys;
  /*
    The server asks for the list in order to lock tables, and not to show the actions. It needs to
    know which tables the statement may change.
  */
  bool for_prelocking;
  bool failed;
};

/*
  The action of a deletion as the server needs it to lock tables. It locks a referencing table for
  reading only if a deletion leaves its rows as they are; but if a cascade has first updated the
  referenced row, the rows follow that update.
*/
enum_fk_option action_of_deletion(const firn_foreign_key_info* key, bool for_prelocking) {
  const enum_fk_option action = option_of(key->on_delete);
  return for_prelocking && key->parent_follows && !fk_modifies_child(action) ? option_of(key->on_update) : action;
}

/* The fields of a foreign key. Returns false if there is no memory. */
bool list_fields(THD* thd, List<LEX_CSTRING>* fields, const char* const* columns, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    LEX_CSTRING* name = lex_string(thd, columns[i]);
    if (!name || fields->push_back(name, thd->mem_root)) return false;
  }
  return true;
}

/* Returns false if there is no memory. */
bool append_key(KeyList* list, const firn_foreign_key_info* key) {
  THD* thd = list->thd;
  FOREIGN_KEY_INFO info;
  info.foreign_id = lex_string(thd, key->name);
  const TableNames child(thd, key->table), parent(thd, key->parent);
  info.foreign_db = child.database;
  info.foreign_table = child.name;
  info.referenced_db = parent.database;
  info.referenced_table = parent.name;
  info.delete_method = action_of_deletion(key, list->for_prelocking);
  info.update_method = option_of(key->on_update);
  info.referenced_key_name = key->parent_index ? lex_string(thd, key->parent_index) : nullptr;
  if (!info.foreign_id || !child.database || !child.name || !parent.database || !parent.name) return false;
  if (key->parent_index && !info.referenced_key_name) return false;
  if (!list_fields(thd, &info.foreign_fields, key->columns, key->column_count)) return false;
  if (!list_fields(thd, &info.referenced_fields, key->parent_columns, key->column_count)) return false;
  if (!set_nullable(thd, &info, key)) return false;
  auto* copy = static_cast<FOREIGN_KEY_INFO*>(thd_memdup(thd, &info, sizeof(info)));
  return copy && !list->keys->push_back(copy, thd->mem_root);
}

void list_key(void* context, const firn_foreign_key_info* key) {
  KeyList* list = static_cast<KeyList*>(context);
  if (!list->failed && !is_ddl_leftover(key->table)) list->failed = !append_key(list, key);
}

/*
  Appends the foreign keys of the table at `path`, or, with `referencing`, those that refer to it.
*/
int list_keys(THD* thd, const char* path, bool referencing, List<FOREIGN_KEY_INFO>* keys) {
  KeyList list = {thd, keys, referencing, false};
  const firn_status status = firn_list_foreign_keys(database, TableName(path).c_str(), referencing, list_key, &list);
  if (status == FIRN_OK && !list.failed) return 0;
  /* The server looks at the error of the session, not at the result. */
  if (!thd->is_error()) my_error(ER_OUT_OF_RESOURCES, MYF(0));
  return HA_ERR_OUT_OF_MEM;
}

struct ShownKeys {
  THD* thd;
  String text;
};

void show_key(void* context, const firn_foreign_key_info* key) {
  ShownKeys* shown = static_cast<ShownKeys*>(context);
  shown->text.append(STRING_WITH_LEN(",\n "));
  append_foreign_key_definition(shown->thd, &shown->text, key);
}

void count_key(void* context, const firn_foreign_key_info*) { ++*static_cast<unsigned*>(context); }

}  // namespace

ForeignKeyRequest::ForeignKeyRequest(THD* thd, const char* name, TABLE* form, Alter_info* alter_info, bool in_place)
    : m_thd(thd), m_form(form), m_name(name) {
  m_request.alters = thd_sql_command(thd) == SQLCOM_ALTER_TABLE;
  m_request.checks = checks_foreign_keys(thd);
  /* InnoDB looks for columns that cannot take NULL from a cascade only when it creates a table. */
  m_request.strict = !in_place && thd->is_strict_mode();
  const TABLE_SHARE* share = form->s;
  m_request.table_label = keep(quoted(thd, share->db.str, share->db.length) + "." +
                               quoted(thd, share->table_name.str, share->table_name.length));
  m_request.table_text = keep(std::string(share->table_name.str, share->table_name.length));
  if (is_ddl_leftover(name)) {
    LEX_CSTRING db = share->db, table = share->table_name;
    if (alter_info && alter_info->flags & ALTER_RENAME) {
      /* The copy knows only its later name. The table that it replaces is the statement's first. */
      const TABLE_LIST* altered = thd->lex->query_tables;
      db = altered->db;
      table = altered->table_name;
    }
    m_request.replaces = keep(encoded(db.str, db.length) + "/" + encoded(table.str, table.length));
  }
  if (!alter_info) return;
  const GeneratedBases bases(form, adds_foreign_keys(alter_info, false));
  List_iterator_fast<Key> keys(alter_info->key_list);
  while (const Key* key = keys++) {
    if (key->type != Key::FOREIGN_KEY) continue;
    /*
      The server lists the foreign keys of the old table for every copying ALTER, and for CREATE
      TABLE … LIKE, which does not copy them.
    */
    if (key->old && (in_place || !is_ddl_leftover(name))) continue;
    const auto* definition = static_cast<const Foreign_key*>(key);
    add(name, form, definition);
    firn_new_foreign_key& added = m_added.back();
    added.on_delete = action_of(definition->delete_opt, in_place);
    added.on_update = action_of(definition->update_opt, in_place);
    List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key*>(definition)->columns);
    while (const Key_part_spec* column = columns++) {
      const Field* field = find_field(form, column->field_name);
      if (field && bases.has(field)) added.on_generated_base = true;
    }
  }
  if (in_place) {
    List_iterator_fast<Alter_drop> drops(alter_info->drop_list);
    while (const Alter_drop* drop = drops++)
      if (drop->type == Alter_drop::FOREIGN_KEY) m_dropped.push_back(drop->name);
  }
  m_request.added = m_added.data();
  m_request.added_count = uint32_t(m_added.size());
  m_request.dropped = m_dropped.data();
  m_request.dropped_count = uint32_t(m_dropped.size());
}

const char* ForeignKeyRequest::keep(std::string text) {
  m_texts.push_back(std::move(text));
  return m_texts.back().c_str();
}

void ForeignKeyRequest::add(const char* name, TABLE* form, const Foreign_key* key) {
  firn_new_foreign_key added = {};
  if (key->constraint_name.str) added.name = keep(std::string(key->constraint_name.str, key->constraint_name.length));
  added.label = keep(label_of(key));
  auto* columns = &m_lists.emplace_back();
  auto* referenced = &m_lists.emplace_back();
  auto* chars = &m_chars.emplace_back();
  auto* definition = const_cast<Foreign_key*>(key);
  List_iterator_fast<Key_part_spec> own(definition->columns), others(definition->ref_columns);
  while (const Key_part_spec* column = own++) {
    columns->push_back(keep(std::string(column->field_name.str, column->field_name.length)));
    chars->push_back(chars_of(find_field(form, column->field_name)));
  }
  while (const Key_part_spec* column = others++)
    referenced->push_back(keep(std::string(column->field_name.str, column->field_name.length)));
  added.columns = columns->data();
  added.parent_columns = referenced->data();
  added.chars = chars->data();
  added.column_count = uint32_t(MY_MIN(columns->size(), referenced->size()));
  const LEX_CSTRING& db = key->ref_db.str ? key->ref_db : form->s->db;
  const std::string database = key->ref_db.str ? encoded(db.str, db.length) : database_of(name);
  added.parent = keep(database + "/" + encoded(key->ref_table.str, key->ref_table.length));
  added.parent_label =
      keep(quoted(m_thd, db.str, db.length) + "." + quoted(m_thd, key->ref_table.str, key->ref_table.length));
  added.inherited = key->old;
  m_added.push_back(added);
  m_keys.push_back(key);
}

bool ForeignKeyRequest::replaces_referenced() const {
  unsigned count = 0;
  if (m_request.replaces) (void)firn_list_foreign_keys(database, m_request.replaces, true, count_key, &count);
  return count != 0;
}

bool adds_foreign_keys(Alter_info* alter_info, bool inherits) {
  if (!alter_info) return false;
  List_iterator_fast<Key> keys(alter_info->key_list);
  while (const Key* key = keys++)
    if (key->type == Key::FOREIGN_KEY && (inherits || !key->old)) return true;
  return false;
}

namespace {

struct NotNullColumns {
  const Alter_info* alter_info;
  bool found;
};

/* Whether the ALTER drops the foreign key. */
bool is_dropped(const Alter_info* alter_info, const char* name) {
  List_iterator_fast<Alter_drop> drops(const_cast<Alter_info*>(alter_info)->drop_list);
  while (const Alter_drop* drop = drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY && !my_strcasecmp(system_charset_info, drop->name, name)) return true;
  return false;
}

/* The altered column that is called `name` before the ALTER; NULL if there is none. */
const Create_field* altered_column(const Alter_info* alter_info, const char* name) {
  List_iterator_fast<Create_field> columns(const_cast<Alter_info*>(alter_info)->create_list);
  while (const Create_field* column = columns++)
    if (column->field && !my_strcasecmp(system_charset_info, column->field->field_name.str, name)) return column;
  return nullptr;
}

/* Reports the column that the foreign key sets to NULL and that the ALTER makes NOT NULL. */
void find_not_null(void* context, const firn_foreign_key_info* key) {
  auto* columns = static_cast<NotNullColumns*>(context);
  if (key->on_delete != FIRN_ACTION_SET_NULL && key->on_update != FIRN_ACTION_SET_NULL) return;
  if (columns->found || is_dropped(columns->alter_info, key->name)) return;
  for (uint32_t i = 0; i < key->column_count && !columns->found; i++) {
    const Create_field* column = altered_column(columns->alter_info, key->columns[i]);
    if (!column || !(column->flags & NOT_NULL_FLAG)) continue;
    my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), key->columns[i], key->name);
    columns->found = true;
  }
}

}  // namespace

bool refuse_not_null(const char* path, const Alter_info* alter_info) {
  NotNullColumns columns = {alter_info, false};
  (void)firn_list_foreign_keys(database, TableName(path).c_str(), false, find_not_null, &columns);
  return columns.found;
}

}  // namespace firn

char* ha_firn::get_foreign_key_create_info() {
  firn::ShownKeys shown = {ha_thd(), String()};
  (void)firn_list_foreign_keys(firn::database, firn::TableName(m_path).c_str(), false, firn::show_key, &shown);
  return my_strndup(PSI_NOT_INSTRUMENTED, shown.text.ptr(), shown.text.length(), MYF(0));
}

void ha_firn::free_foreign_key_create_info(char* text) { my_free(text); }

int ha_firn::get_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* keys) {
  return firn::list_keys(thd, m_path, false, keys);
}

int ha_firn::get_parent_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* keys) {
  return firn::list_keys(thd, m_path, true, keys);
}

bool ha_firn::referenced_by_foreign_key() const noexcept { return m_share && firn_is_referenced(m_share->core()); }

bool ha_firn::can_switch_engines() {
  unsigned count = 0;
  const firn::TableName name(m_path);
  (void)firn_list_foreign_keys(firn::database, name.c_str(), false, firn::count_key, &count);
  (void)firn_list_foreign_keys(firn::database, name.c_str(), true, firn::count_key, &count);
  return count == 0;
}
