/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  DDL on one table. Each call makes one atomic, durable change of the core's catalog. A call can be
  repeated, because after a crash the server's DDL log does so.
*/

#include "ha_firn.h"
#include "backup.h"
#include "ddl_callbacks.h"
#include "errors.h"
#include "table_definition.h"
#include "sql_alter.h"

#include <new>

namespace {

/* Reports an error that names what the engine lacks. */
int refuse(const char* what) {
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), hton_name(firn::hton)->str, what);
  return firn::kErrorReported;
}

/*
  The .frm image of a table, which the catalog keeps beside its version: tools that have no .frm
  file write one from it.
*/
class DefinitionImage {
 public:
  explicit DefinitionImage(TABLE_SHARE* share) : share_(share) {
    if (share->frm_image) {
      bytes_ = share->frm_image->str;
      length_ = share->frm_image->length;
    } else if (!share->read_frm_image(&bytes_, &length_)) {
      owned_ = true;
    } else {
      bytes_ = nullptr;
      length_ = 0;
    }
  }
  ~DefinitionImage() {
    if (owned_) share_->free_frm_image(bytes_);
  }
  DefinitionImage(const DefinitionImage&) = delete;
  DefinitionImage& operator=(const DefinitionImage&) = delete;

  const uchar* bytes() const { return bytes_; }
  size_t length() const { return length_; }

 private:
  TABLE_SHARE* const share_;
  const uchar* bytes_ = nullptr;
  size_t length_ = 0;
  bool owned_ = false;
};

/*
  Whether ALTER TABLE … PARTITION adds this partition to an existing table. The server then passes
  the old definition, and puts the new one in place later without a call to the engine. So the
  partition is stored without a definition, until an ALTER in place stores the same one for all
  partitions. A copying ALTER makes a table of its own, whose definition is known.
*/
bool joins_partitioned_table(THD* thd, const char* path) {
  const char* slash = strrchr(path, FN_LIBCHAR);
  const char* name = slash ? slash + 1 : path;
  return thd_sql_command(thd) == SQLCOM_ALTER_TABLE && strstr(name, "#P#") && strncmp(name, "#sql", 4) != 0;
}

/*
  Whether the statement has foreign keys. key_list has the parsed keys, those of an altered table
  included. The server leaves the check to the engine.
*/
bool wants_foreign_key(const HA_CREATE_INFO* info) {
  if (!info->alter_info) return false;
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  while (const Key* key = keys++)
    if (key->type == Key::FOREIGN_KEY) return true;
  return false;
}

}  // namespace

namespace firn {

/*
  The session, if there is one, tells the core of changes to a temporary table that it has not
  committed.
*/
int drop_table(const char* path) {
  if (!database) return HA_ERR_NO_SUCH_TABLE;
  THD* thd = current_thd;
  Session* session = thd ? Session::find(thd) : nullptr;
  note_binlog_position();
  return to_server_error(firn_drop_table(database, session ? session->core() : nullptr, TableName(path).c_str()));
}

const char* key_without_guard(const TABLE* form) {
  for (uint i = 0; i < form->s->keys; i++) {
    const KEY* key_info = form->key_info + i;
    if (key_info->algorithm == HA_KEY_ALG_LONG_HASH) return "UNIQUE over more bytes than a key takes";
    if (key_info->without_overlaps) return "WITHOUT OVERLAPS";
  }
  return nullptr;
}

}  // namespace firn

int ha_firn::create(const char* name, TABLE* form, HA_CREATE_INFO* info) {
  THD* thd = ha_thd();
  if (!firn::database) return HA_ERR_INITIALIZATION;
  if (wants_foreign_key(info)) return refuse("FOREIGN KEY");
  if (firn::galera_is_on(thd)) return refuse("Galera replication (wsrep_on)");
  if (const char* what = firn::key_without_guard(form)) return refuse(what);
  if (info->data_file_name || info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        info->data_file_name ? "DATA DIRECTORY" : "INDEX DIRECTORY");
  try {
    firn::TableDefinition definition(form);
    if (const char* what = definition.unsupported()) return refuse(what);
    const ulonglong first_number = MY_MAX(info->auto_increment_value, 1ULL);
    if (info->tmp_table()) {
      firn::Session* session = firn::Session::get(thd);
      if (!session) return HA_ERR_OUT_OF_MEM;
      return firn::to_server_error(firn_create_temporary_table(
          firn::database, session->core(), firn::TableName(name).c_str(), definition.get(), first_number));
    }
    DefinitionImage image(form->s);
    firn::note_binlog_position();
    const LEX_CUSTRING& version = form->s->tabledef_version;
    const bool known = !joins_partitioned_table(thd, name);
    const firn_status status = firn_create_table(firn::database, firn::TableName(name).c_str(), definition.get(),
                                                 image.bytes(), known ? image.length() : 0, version.str,
                                                 known ? version.length : 0, first_number);
    return firn::to_server_error(status);
  } catch (const std::bad_alloc&) {
    return HA_ERR_OUT_OF_MEM;
  }
}

int ha_firn::delete_table(const char* name) {
  if (!firn::database) return HA_ERR_INITIALIZATION;
  return firn::drop_table(name);
}

int ha_firn::rename_table(const char* from, const char* to) {
  if (!firn::database) return HA_ERR_INITIALIZATION;
  firn::note_binlog_position();
  return firn::to_server_error(
      firn_rename_table(firn::database, firn::TableName(from).c_str(), firn::TableName(to).c_str()));
}

int ha_firn::truncate() {
  park();
  firn::Session* session = firn::Session::get(ha_thd());
  if (!session) return HA_ERR_OUT_OF_MEM;
  firn::note_binlog_position();
  return firn::to_server_error(
      firn_truncate_table(firn::database, session->core(), firn::TableName(m_path).c_str()));
}

void ha_firn::update_create_info(HA_CREATE_INFO* info) {
  if (info->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field) return;
  info->auto_increment_value = firn_autoinc_next_value(m_share->core());
}
