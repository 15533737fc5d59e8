/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  DDL on one table. Each call makes one atomic, durable change of the core's catalog. A call can be
  repeated, because after a crash the server's DDL log does so.
*/

#include "ha_firn.h"
#include "backup_stage.h"
#include "ddl_callbacks.h"
#include "errors.h"
#include "foreign_keys.h"
#include "lock_timeout.h"
#include "table_definition.h"
#include "table_options.h"
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

/* Refuses foreign keys of a temporary table as InnoDB does. */
int refuse_in_temporary_table(THD* thd, const TABLE* form) {
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
                      "%s table `%s`.`%s` with foreign key constraint failed. Temporary tables can't have foreign key "
                      "constraints.",
                      thd_sql_command(thd) == SQLCOM_ALTER_TABLE ? "Alter " : "Create ", form->s->db.str,
                      form->s->table_name.str);
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

/* The last component of a table's name in the core's catalog, as SQL has it. */
class TableText {
 public:
  explicit TableText(const char* path) {
    char schema[firn::kSchemaNameSize];
    firn::decode_table_name(firn::TableName(path).c_str(), schema, name_);
  }
  const char* c_str() const { return name_; }

 private:
  char name_[firn::kTableNameSize];
};

/*
  The session in which a DDL statement waits for locks, and the timeout of the wait. Outside of a
  connection there is no session.
*/
struct DdlWait {
  explicit DdlWait(THD* thd) {
    if (!thd) return;
    if (firn::Session* own = firn::Session::get(thd)) session = own->core();
    timeout_us = firn::lock_timeout_us(thd);
    checks = firn::checks_foreign_keys(thd);
  }
  firn_session* session = nullptr;
  uint64_t timeout_us = 0;
  bool checks = false;
};

}  // namespace

namespace firn {

/*
  Drops a table outside of a handler. The core needs the session, if there is one, to find changes
  of a temporary table that the session has not committed.
*/
int drop_table(const char* path) {
  if (!database) return HA_ERR_NO_SUCH_TABLE;
  THD* thd = current_thd;
  Session* session = thd ? Session::find(thd) : nullptr;
  note_binlog_position();
  const bool checks = thd && checks_foreign_keys(thd);
  const bool whole_database = thd && thd_sql_command(thd) == SQLCOM_DROP_DB;
  const firn_status status =
      firn_drop_table(database, session ? session->core() : nullptr, TableName(path).c_str(), checks, whole_database);
  return status == FIRN_FOREIGN_KEY ? HA_ERR_ROW_IS_REFERENCED : to_server_error(status);
}

bool has_key_checked_by_server(const TABLE* form) {
  for (uint i = 0; i < form->s->keys; i++) {
    const KEY* key_info = form->key_info + i;
    if (key_info->algorithm == HA_KEY_ALG_LONG_HASH || key_info->without_overlaps) return true;
  }
  return false;
}

}  // namespace firn

int ha_firn::create(const char* name, TABLE* form, HA_CREATE_INFO* info) {
  THD* thd = ha_thd();
  if (!firn::database) return HA_ERR_INITIALIZATION;
  if (info->tmp_table() && firn::adds_foreign_keys(info->alter_info, false))
    return refuse_in_temporary_table(thd, form);
  if (form->versioned() && firn::adds_foreign_keys(info->alter_info, firn::is_ddl_leftover(name)))
    return refuse("FOREIGN KEY of a table with system versioning");
  if (firn::galera_is_on(thd)) return refuse("Galera replication (wsrep_on)");
  if (const char* what = firn::unmet_option(form)) return refuse(what);
  if (firn::refuse_directories(thd, info)) return firn::kErrorReported;
  try {
    firn::TableDefinition definition(form);
    if (const char* what = definition.unsupported()) return refuse(what);
    firn::note_ignored_options(thd, form, info);
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
    const firn::TableName table(name);
    const firn::ForeignKeyRequest foreign_keys(thd, table.c_str(), form, info->alter_info, false);
    if (form->versioned() && foreign_keys.replaces_referenced())
      return refuse("system versioning of a table that foreign keys refer to");
    const firn_status status =
        firn_create_table(firn::database, table.c_str(), definition.get(), image.bytes(), known ? image.length() : 0,
                          version.str, known ? version.length : 0, first_number, foreign_keys.get());
    if (status == FIRN_FOREIGN_KEY) return foreign_keys.report_create();
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
  const DdlWait wait(ha_thd());
  const firn_status status =
      firn_rename_table(firn::database, firn::TableName(from).c_str(), firn::TableName(to).c_str(),
                        TableText(from).c_str(), TableText(to).c_str(), wait.session, wait.checks, wait.timeout_us);
  /* The server would only say that the rename has failed; clients try again after this error. */
  if (status == FIRN_LOCK_TIMEOUT) my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  const char *table, *name, *text;
  if (status == FIRN_FOREIGN_KEY && firn_last_foreign_key(&table, &name, &text) == FIRN_FOREIGN_KEY_NAME_TAKEN) {
    /* InnoDB has this error for a foreign key name that is taken, too. */
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), to);
    return HA_ERR_GENERIC;
  }
  return firn::to_server_error(status);
}

int ha_firn::truncate() {
  park();
  firn::Session* session = firn::Session::get(ha_thd());
  if (!session) return HA_ERR_OUT_OF_MEM;
  firn::note_binlog_position();
  const DdlWait wait(ha_thd());
  return firn::to_server_error(
      firn_truncate_table(firn::database, session->core(), firn::TableName(m_path).c_str(), wait.timeout_us));
}

/*
  The server calls this function before it exchanges a partition with a table, and asks whether the
  rows could stay as they are.
*/
bool ha_firn::check_if_incompatible_data(HA_CREATE_INFO* info, uint table_changes) {
  const bool numbers_differ = info->used_fields & HA_CREATE_USED_AUTO && info->auto_increment_value != 0;
  return table_changes == IS_EQUAL_YES && !numbers_differ ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

void ha_firn::update_create_info(HA_CREATE_INFO* info) {
  if (info->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field) return;
  info->auto_increment_value = firn_autoinc_next_value(m_share->core());
}
