/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Errors of foreign keys: the server's error numbers and texts for the violations that the core
  reports, and the latest foreign key error of SHOW ENGINE FIRN STATUS. Texts are those of InnoDB,
  which clients know.
*/

#include "foreign_key_errors.h"
#include "foreign_key_text.h"
#include "foreign_keys.h"
#include "ha_firn.h"
#include "sql_table.h"

#include <mutex>
#include <new>

extern "C" size_t thd_query_safe(MYSQL_THD thd, char* buffer, size_t size);

namespace firn {
namespace {

/* The latest foreign key error, as SHOW ENGINE FIRN STATUS shows it. */
std::mutex latest_error_lock;
std::string latest_error;

struct WantedKey {
  THD* thd;
  const char* name;
  String* text;
};

void append_wanted(void* context, const firn_foreign_key_info* key) {
  const WantedKey* wanted = static_cast<WantedKey*>(context);
  if (strcmp(key->name, wanted->name) == 0) append_foreign_key_definition(wanted->thd, wanted->text, key);
}

}  // namespace

/* The definition of the foreign key that the core calls `name`. */
const Foreign_key* ForeignKeyRequest::definition_of(const char* name) const {
  for (const Foreign_key* key : m_keys)
    if (!key->old && key->constraint_name.str && !my_strcasecmp(system_charset_info, key->constraint_name.str, name))
      return key;
  for (const Foreign_key* key : m_keys)
    if (!key->old && !key->constraint_name.str) return key;
  return m_keys.empty() ? nullptr : m_keys.front();
}

/* The last of the definitions that give their foreign keys the name `name`. */
const Foreign_key* ForeignKeyRequest::last_definition_of(const char* name) const {
  for (auto at = m_keys.rbegin(); at != m_keys.rend(); ++at)
    if ((*at)->constraint_name.str && !my_strcasecmp(system_charset_info, (*at)->constraint_name.str, name)) return *at;
  return nullptr;
}

/* Adds InnoDB's warning that the definition `key` uses the name `name` again. */
void ForeignKeyRequest::warn_of_name(const char* name, const Foreign_key* key) const {
  String message;
  message.append(STRING_WITH_LEN("CREATE or ALTER TABLE "));
  append_table_name(m_thd, &message, m_name.c_str());
  message.append(STRING_WITH_LEN(" failed: duplicate name,"));
  for (size_t i = 0; i < m_keys.size(); i++) {
    if (m_keys[i] != key) continue;
    const firn_new_foreign_key& added = m_added[i];
    const firn_foreign_key_info info = {
        m_name.c_str(), name,    added.parent,       nullptr,         added.columns,   added.parent_columns,
        nullptr,        nullptr, added.column_count, added.on_delete, added.on_update, false};
    append_foreign_key_definition(m_thd, &message, &info);
  }
  push_warning(m_thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY, message.c_ptr_safe());
}

int ForeignKeyRequest::report_create() const {
  const char *table, *name, *text;
  const uint32_t violation = firn_last_foreign_key(&table, &name, &text);
  if (violation == FIRN_FOREIGN_KEY_NAME_TAKEN) {
    warn_of_name(name, definition_of(name));
    return HA_ERR_FOUND_DUPP_KEY;
  }
  if (text[0]) {
    push_warning(m_thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, text);
    keep_latest_foreign_key_error(m_thd, text);
  }
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

bool ForeignKeyRequest::needs_dropped_index(const Alter_inplace_info* info) {
  const char *table, *name, *text;
  if (firn_last_foreign_key(&table, &name, &text) != FIRN_INDEX_IS_NEEDED) return false;
  for (uint i = 0; i < info->index_drop_count; i++)
    if (!my_strcasecmp(system_charset_info, info->index_drop_buffer[i]->name.str, name)) return true;
  return false;
}

void ForeignKeyRequest::report_alter() const {
  const char *table, *name, *text;
  const uint32_t violation = firn_last_foreign_key(&table, &name, &text);
  const std::string broken = name;
  const Foreign_key* key = definition_of(broken.c_str());
  const char* own = key && key->name.str ? key->name.str : "";
  const char* parent = key ? key->ref_table.str : "";
  const char* form = m_form->s->table_name.str;
  if (text[0]) keep_latest_foreign_key_error(m_thd, text);
  switch (violation) {
    case FIRN_INDEX_IS_NEEDED:
      my_error(ER_DROP_INDEX_FK, MYF(0), broken.c_str());
      break;
    case FIRN_NO_FOREIGN_KEY_INDEX:
      my_error(ER_FK_NO_INDEX_CHILD, MYF(0), own, form);
      break;
    case FIRN_NO_REFERENCED_INDEX:
      my_error(ER_FK_NO_INDEX_PARENT, MYF(0), own, parent);
      break;
    case FIRN_NO_REFERENCED_TABLE:
      my_error(ER_FK_CANNOT_OPEN_PARENT, MYF(0), parent);
      break;
    case FIRN_FOREIGN_KEY_NAME_TAKEN:
      my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", (database_of(m_name.c_str()) + "/" + broken).c_str());
      break;
    case FIRN_FOREIGN_KEY_NAME_GIVEN_TWICE:
      warn_of_name(broken.c_str(), last_definition_of(broken.c_str()));
      my_error(ER_FK_FAIL_ADD_SYSTEM, MYF(0), (database_of(m_name.c_str()) + "/" + broken).c_str());
      break;
    case FIRN_FOREIGN_KEY_NOT_NULL:
      my_error(ER_FK_INCORRECT_OPTION, MYF(0), form, (database_of(m_name.c_str()) + "/" + broken).c_str());
      break;
    default:
      my_error(ER_CANNOT_ADD_FOREIGN, MYF(0), form);
  }
}

void append_foreign_key(THD* thd, String* text, const char* table, const char* name) {
  append_table_name(thd, text, table);
  text->append(',');
  WantedKey wanted = {thd, name, text};
  (void)firn_list_foreign_keys(database, table, false, append_wanted, &wanted);
}

/*
  Keeps the table and the key that the core's last foreign key error names, and the text for SHOW
  ENGINE FIRN STATUS. Returns the server's error.
*/
int Session::note_foreign_key() {
  const char *table, *name, *text;
  const uint32_t violation = firn_last_foreign_key(&table, &name, &text);
  /* to_server_error() has kept the message, and so has made `failure_` if memory allows. */
  if (failure_) {
    strmake(failure_->table, table, sizeof(failure_->table) - 1);
    strmake(failure_->key, name, sizeof(failure_->key) - 1);
  }
  String shown;
  if (violation != FIRN_DUPLICATE_IN_CHILD) append_foreign_key(thd_, &shown, broken_table(), broken_key());
  keep_latest_foreign_key_error(thd_, violation == FIRN_DUPLICATE_IN_CHILD ? message() : shown.c_ptr_safe());
  switch (violation) {
    case FIRN_NO_REFERENCED_ROW:
      return HA_ERR_NO_REFERENCED_ROW;
    case FIRN_CASCADE_TOO_DEEP:
      push_warning_printf(thd_, Sql_condition::WARN_LEVEL_WARN, HA_ERR_ROW_IS_REFERENCED,
                          "FIRN: Cannot delete/update rows with cascading foreign key constraints that exceed max "
                          "depth of 15. Please drop extra constraints and try again");
      return HA_ERR_FK_DEPTH_EXCEEDED;
    case FIRN_DUPLICATE_IN_CHILD:
      return HA_ERR_FOREIGN_DUPLICATE_KEY;
    default:
      return HA_ERR_ROW_IS_REFERENCED;
  }
}

void keep_latest_foreign_key_error(THD* thd, const char* text) {
  if (!text) return;
  char query[1024];
  const size_t length = thd ? thd_query_safe(thd, query, sizeof(query)) : 0;
  char when[32];
  const time_t now = time(nullptr);
  struct tm local;
  localtime_r(&now, &local);
  strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local);
  try {
    std::string note = std::string(when) + " " + text + "\n" + std::string(query, length) + "\n";
    const std::lock_guard<std::mutex> guard(latest_error_lock);
    latest_error.swap(note);
  } catch (const std::bad_alloc&) {
  }
}

void append_latest_foreign_key_error(String* text) {
  const std::lock_guard<std::mutex> guard(latest_error_lock);
  if (latest_error.empty()) return;
  text->append(STRING_WITH_LEN("\nLatest foreign key error\n"));
  text->append(latest_error.data(), latest_error.length());
}

}  // namespace firn

bool ha_firn::get_foreign_dup_key(char* child_table, uint table_size, char* child_key, uint key_size) {
  if (!m_session) return false;
  char schema[firn::kSchemaNameSize], name[firn::kTableNameSize];
  firn::decode_table_name(m_session->broken_table(), schema, name);
  strmake(child_table, name, table_size - 1);
  strmake(child_key, m_session->broken_key(), key_size - 1);
  return true;
}
