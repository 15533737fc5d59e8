/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  ALTER TABLE in place: changes of secondary indexes, and changes of the definition that leave the
  stored rows as they are. Columns that come, go, move, grow or may be NULL belong to these: the
  core decodes each row by the version of the definition that it was written with. All other changes
  copy the table; the server does that with progress reports and a DDL log.

  Reads go on while new indexes are filled (metadata lock SHARED NO WRITE). Under the exclusive lock
  at the end, one commit of the core changes the columns, names the new indexes, drops others, and
  stores the server's new definition with its version. After a crash the server asks for that
  version (check_version) and installs the old or the new .frm file accordingly, so that core and
  .frm file never disagree. All partitions are committed together.
*/

#include "ha_firn.h"
#include "backup_stage.h"
#include "ddl_callbacks.h"
#include "errors.h"
#include "foreign_keys.h"
#include "frm_image.h"
#include "lock_timeout.h"
#include "table_definition.h"
#include "table_options.h"
#include "sql_alter.h"

#include <new>
#include <vector>

namespace {

constexpr alter_table_operations kForeignKeys = ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY;
constexpr alter_table_operations kMetadata = kForeignKeys | ALTER_RENAME | ALTER_COLUMN_NAME | ALTER_COLUMN_DEFAULT |
                                             ALTER_CHANGE_CREATE_OPTION | ALTER_DROP_CHECK_CONSTRAINT |
                                             ALTER_INDEX_IGNORABILITY;
/*
  ALTER_COLUMN_VCOL, which says that the values of an indexed virtual column change, is not among
  them.
*/
constexpr alter_table_operations kColumns =
    ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER | ALTER_ADD_VIRTUAL_COLUMN |
    ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER | ALTER_VIRTUAL_GCOL_EXPR | ALTER_COLUMN_NULLABLE |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;
constexpr alter_table_operations kFill = ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;
constexpr alter_table_operations kIndexes = kFill | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX |
                                            ALTER_RENAME_INDEX | ALTER_INDEX_ORDER | ALTER_CHANGE_INDEX_COMMENT;

/* The change of one table, or of one partition, between prepare and commit. */
class IndexChange final : public inplace_alter_handler_ctx {
 public:
  explicit IndexChange(firn_index_change* core) : core_(core) {}
  ~IndexChange() override { release(); }

  firn_index_change* core() const { return core_; }
  void release() {
    firn_index_change_free(core_);
    core_ = nullptr;
  }

 private:
  firn_index_change* core_;
};

bool same_name(const LEX_CSTRING& a, const LEX_CSTRING& b) { return !my_strcasecmp(system_charset_info, a.str, b.str); }

bool is_added(const Alter_inplace_info* info, const LEX_CSTRING& name) {
  for (uint i = 0; i < info->index_add_count; i++)
    if (same_name(info->key_info_buffer[info->index_add_buffer[i]].name, name)) return true;
  return false;
}

/* The field of an open table, by its name; NULL if there is none. */
const Field* field_called(const TABLE* table, const LEX_CSTRING& name) {
  for (Field** field = table->field; *field; field++)
    if (same_name((*field)->field_name, name)) return *field;
  return nullptr;
}

/*
  The number that each column of the altered table has in the old one; FIRN_NONE for a new column.
  The columns of the statement come first; hidden ones, the hashes of long unique keys, follow.
*/
std::vector<uint32_t> column_origins(const TABLE* table, const TABLE* altered, const Alter_inplace_info* info) {
  std::vector<uint32_t> from;
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  for (uint i = 0; i < altered->s->fields; i++) {
    const Create_field* column = columns++;
    const Field* old = column ? column->field : field_called(table, altered->field[i]->field_name);
    from.push_back(old ? old->field_index : FIRN_NONE);
  }
  return from;
}

/*
  Gives the new columns of the altered table their defaults, which all rows of the table get, in its
  record buffer. Returns false if a default differs from row to row, or if it does not fit its
  column: only a copy reports that as the user's SQL mode demands.
*/
bool set_defaults_of_new_columns(const TABLE* altered, const Alter_inplace_info* info) {
  /*
    They are the same in a statement, as its time and its user are. RAND() counts as such a value,
    too: all rows get one number, as in InnoDB.
  */
  constexpr uint kConstant = VCOL_SESSION_FUNC | VCOL_TIME_FUNC;
  constexpr int kConvertedToDateOrTime = 3;
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  Field** field = altered->field;
  while (const Create_field* column = columns++) {
    Field* const added = *field++;
    if (column->field || !added->stored_in_db()) continue;
    if (added->unireg_check == Field::NEXT_NUMBER) return false;
    if (added->default_value && added->default_value->flags & ~kConstant) return false;
    const int trouble = added->set_default();
    if (trouble && trouble != kConvertedToDateOrTime) return false;
  }
  return true;
}

/* Whether a column of the altered table has the name of another one, which the statement drops. */
bool replaces_column_of_same_name(const TABLE* table, const Alter_inplace_info* info) {
  const auto stays = [info](const Field* field) {
    List_iterator_fast<Create_field> columns(info->alter_info->create_list);
    while (const Create_field* column = columns++)
      if (column->field == field) return true;
    return false;
  };
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  while (const Create_field* column = columns++) {
    const Field* old = field_called(table, column->field_name);
    if (old && column->field != old && !stays(old)) return true;
  }
  return false;
}

/*
  Whether expressions may get other values for stored rows although their text stays: those of
  generated columns, whose values rows, indexes or the choice of the partition have, and those of
  constraints. The server's flags tell it for a column that the statement itself changes, and not
  for one that refers to such a column, or to a name that means another column afterwards.
*/
bool changes_values_of_expressions(const TABLE* table, const TABLE* altered, const Alter_inplace_info* info) {
  const alter_table_operations flags = info->handler_flags;
  const bool partitioned = flags & ALTER_PARTITIONED;
  uint generated = 0;
  for (Field** field = altered->field; *field; field++) generated += (*field)->vcol_info != nullptr;
  if (flags & ALTER_VIRTUAL_GCOL_EXPR && (partitioned || generated > 1)) return true;
  const bool has_expressions =
      partitioned || generated || altered->s->table_check_constraints || altered->s->field_check_constraints;
  return has_expressions && replaces_column_of_same_name(table, info);
}

/*
  Whether a new column has a constraint of its own, which only a copy checks for all rows. ALTER
  IGNORE needs no check: a copy would drop all rows of which the default breaks the constraint.
*/
bool has_new_column_with_constraint(const Alter_inplace_info* info) {
  if (info->ignore) return false;
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  while (const Create_field* column = columns++)
    if (!column->field && column->check_constraint) return true;
  return false;
}

/* The number that each key of the altered table has in the old one; FIRN_NONE for a new key. */
std::vector<uint32_t> index_origins(const TABLE* table, const TABLE* altered, const Alter_inplace_info* info) {
  std::vector<uint32_t> from;
  for (uint i = 0; i < altered->s->keys; i++) {
    LEX_CSTRING name = altered->key_info[i].name;
    uint32_t number = FIRN_NONE;
    if (!is_added(info, name)) {
      for (const Alter_inplace_info::Rename_key_pair& pair : info->rename_keys)
        if (same_name(pair.new_key->name, name)) {
          name = pair.old_key->name;
          break;
        }
      for (uint old = 0; old < table->s->keys; old++)
        if (same_name(table->key_info[old].name, name)) number = old;
    }
    from.push_back(number);
  }
  return from;
}

/*
  The core's plan of the change; NULL if the change takes a copy. The server's flags alone do not
  tell: for example, no flag says that a column loses AUTO_INCREMENT. The record buffer of the
  altered table has the defaults of new columns. Throws std::bad_alloc.
*/
firn_index_change* plan(const firn_table* core, const TABLE* table, const TABLE* altered,
                        const Alter_inplace_info* info) {
  firn::TableDefinition definition(altered);
  if (definition.unsupported()) return nullptr;
  const std::vector<uint32_t> columns = column_origins(table, altered, info);
  const std::vector<uint32_t> indexes = index_origins(table, altered, info);
  firn_index_change* change = nullptr;
  const firn_status status =
      firn_index_change_new(core, definition.get(), columns.data(), indexes.data(), altered->record[0], &change);
  return status == FIRN_OK ? change : nullptr;
}

/*
  Progress of a fill, which has two stages: it reads rows, then it merges entries. `done` begins
  anew at the second stage, so a smaller number than `last` shows that this stage has begun.
*/
struct Stages {
  THD* thd;
  uint64_t last;
};

bool report_stage(void* context, uint64_t done, uint64_t total) {
  Stages* stages = static_cast<Stages*>(context);
  if (done < stages->last) thd_progress_next_stage(stages->thd);
  stages->last = done;
  thd_progress_report(stages->thd, done, MY_MAX(total, 1ULL));
  return thd_kill_level(stages->thd) > THD_ABORT_SOFTLY;
}

}  // namespace

/*
  Whether rows keep their bytes when a column gets another type: a VARCHAR that becomes longer.
  Rows store its values without their largest length.
*/
bool ha_firn::can_convert_nocopy(const Field& field, const Column_definition& column) const {
  return field.real_type() == MYSQL_TYPE_VARCHAR && column.type_handler() == field.type_handler() &&
         column.charset == field.charset() && !column.compression_method() && !field.compression_method() &&
         column.length >= field.field_length && column.char_length >= field.char_length();
}

/*
  Whether an index part stays as it is when its column changes. Keys do not depend on the largest
  length of a column that the part has as a whole.
*/
Compare_keys ha_firn::compare_key_parts(const Field& old_field, const Column_definition& column,
                                        const KEY_PART_INFO& old_part, const KEY_PART_INFO& new_part) const {
  if (!old_field.is_equal(column) && !can_convert_nocopy(old_field, column)) return Compare_keys::NotEqual;
  if (old_part.length == new_part.length) return Compare_keys::Equal;
  const bool whole = old_part.length == old_field.key_length() && new_part.length == column.length;
  return whole && old_part.length < new_part.length ? Compare_keys::EqualButKeyPartLength : Compare_keys::NotEqual;
}

enum_alter_inplace_result ha_firn::check_if_supported_inplace_alter(TABLE* altered, Alter_inplace_info* info) {
  const alter_table_operations flags = info->handler_flags;
  /* A copy would be refused at its end, with a less precise error. */
  if (flags & ALTER_COLUMN_NOT_NULLABLE && firn::checks_foreign_keys(ha_thd()) &&
      firn::refuse_not_null(m_path, info->alter_info))
    return HA_ALTER_ERROR;
  if (flags & ~(kMetadata | kColumns | kIndexes | ALTER_PARTITIONED)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* Dates without a default: the copy reports the first row. */
  if (info->error_if_not_empty) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (flags & ALTER_ADD_FOREIGN_KEY) {
    /*
      Adding a foreign key with foreign_key_checks=1 needs a copying ALTER, as in InnoDB: only a
      copy checks the existing rows.
    */
    if (firn::checks_foreign_keys(ha_thd())) {
      info->unsupported_reason = my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    }
    if (altered->versioned()) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  constexpr ulong harmless_options =
      HA_CREATE_USED_AUTO | HA_CREATE_USED_COMMENT | HA_CREATE_USED_DEFAULT_CHARSET | firn::kIgnoredOptions;
  const ulong options = info->create_info->used_fields;
  if (options & ~harmless_options) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /*
    Each partition has its own AUTO_INCREMENT counter, but only the first one's commit is called.
  */
  if (flags & ALTER_PARTITIONED && options & HA_CREATE_USED_AUTO) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* IGNORE drops duplicate rows, which a fill cannot do. */
  if (info->ignore && flags & ALTER_ADD_UNIQUE_INDEX) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /*
    The server itself checks the existing rows of such keys, and it does so only while it copies
    them.
  */
  if (flags & (kIndexes | kColumns) &&
      (firn::has_key_checked_by_server(altered) || firn::has_key_checked_by_server(table)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* Let the server copy the table: create() of the copy then reports the option. */
  if (firn::unmet_option(altered)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (flags & kFill && info->alter_info->algorithm(ha_thd()) == Alter_info::ALTER_TABLE_ALGORITHM_INSTANT) {
    info->unsupported_reason = "ADD INDEX";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (changes_values_of_expressions(table, altered, info) || has_new_column_with_constraint(info))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (!set_defaults_of_new_columns(altered, info)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  firn_index_change* change = nullptr;
  bool supported = false;
  try {
    change = plan(m_share->core(), table, altered, info);
    supported = change != nullptr;
    /* The copy has the server's own error for a column that a foreign key needs. */
    if (supported && flags & ALTER_DROP_STORED_COLUMN) {
      const firn::ForeignKeyRequest foreign_keys(ha_thd(), firn::TableName(m_path).c_str(), altered, info->alter_info,
                                                 true);
      supported = firn_index_change_foreign_keys(change, foreign_keys.get()) != FIRN_FOREIGN_KEY ||
                  firn::ForeignKeyRequest::needs_dropped_index(info);
    }
  } catch (const std::bad_alloc&) {
    firn_index_change_free(change);
    return HA_ALTER_ERROR;
  }
  firn_index_change_free(change);
  if (!supported) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  return flags & kFill ? HA_ALTER_INPLACE_SHARED_LOCK : HA_ALTER_INPLACE_INSTANT;
}

bool ha_firn::prepare_inplace_alter_table(TABLE* altered, Alter_inplace_info* info) {
  firn_index_change* change = nullptr;
  try {
    change = plan(m_share->core(), table, altered, info);
    if (change) {
      const firn::ForeignKeyRequest foreign_keys(ha_thd(), firn::TableName(m_path).c_str(), altered, info->alter_info,
                                                 true);
      const firn_status status = firn_index_change_foreign_keys(change, foreign_keys.get());
      if (status != FIRN_OK) {
        firn_index_change_free(change);
        change = nullptr;
        if (status == FIRN_FOREIGN_KEY)
          foreign_keys.report_alter();
        else
          print_error(firn_error(status), MYF(0));
        return true;
      }
    }
  } catch (const std::bad_alloc&) {
    firn_index_change_free(change);
    change = nullptr;
  }
  info->handler_ctx = change ? new (ha_thd()->mem_root) IndexChange(change) : nullptr;
  if (!info->handler_ctx) {
    firn_index_change_free(change);
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return true;
  }
  firn::note_ignored_options(ha_thd(), altered, info->create_info);
  return false;
}

bool ha_firn::inplace_alter_table(TABLE* altered, Alter_inplace_info* info) {
  IndexChange* change = static_cast<IndexChange*>(info->handler_ctx);
  if (!change || !(info->handler_flags & kFill)) return false;
  THD* thd = ha_thd();
  Stages stages = {thd, 0};
  uint32_t duplicate = 0;
  thd_progress_init(thd, 2);
  const firn_status status = firn_index_change_fill(m_session->core(), change->core(), report_stage, &stages,
                                                    altered->record[0], altered->s->reclength, &duplicate);
  thd_progress_end(thd);
  if (status == FIRN_OK) return false;
  if (status == FIRN_DUPLICATE)
    print_keydup_error(altered, &altered->key_info[duplicate], MYF(0));
  else
    print_error(firn_error(status), MYF(0));
  return true;
}

/*
  The largest AUTO_INCREMENT value of a row. No other session uses the table, so this statement's
  snapshot has all of its rows.
*/
int ha_firn::largest_auto_increment(ulonglong* largest) {
  const uint index = table_share->next_number_index;
  const bool descending = table->key_info[index].key_part[0].key_part_flag & HA_REVERSE_SORT;
  MY_BITMAP* const columns = tmp_use_all_columns(table, &table->read_set);
  int error = ha_index_init(index, true);
  if (!error) {
    uchar* const record = table->record[0];
    error = descending ? ha_index_first(record) : ha_index_last(record);
    if (!error) {
      const Field* field = table->found_next_number_field;
      const longlong value = const_cast<Field*>(field)->val_int();
      *largest = value > 0 || field->is_unsigned() ? ulonglong(value) : 0;
    } else if (error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND) {
      error = 0;
    }
    (void)ha_index_end();
    park();
  }
  tmp_restore_column_map(&table->read_set, columns);
  return error;
}

bool ha_firn::commit_inplace_alter_table(TABLE*, Alter_inplace_info* info, bool commit) {
  IndexChange* change = static_cast<IndexChange*>(info->handler_ctx);
  inplace_alter_handler_ctx** group = info->group_commit_ctx;
  if (!commit) {
    if (change) change->release();
    return false;
  }
  firn_status status = FIRN_OK;
  /*
    AUTO_INCREMENT = n moves the counter forward or back, but never to a number that a row has or
    below one.
  */
  if (change && info->create_info->used_fields & HA_CREATE_USED_AUTO && table->found_next_number_field) {
    ulonglong largest = 0;
    if (int error = largest_auto_increment(&largest)) {
      print_error(error, MYF(0));
      return true;
    }
    const ulonglong next = MY_MAX(info->create_info->auto_increment_value, 1ULL);
    status = firn_index_change_autoinc(change->core(), next, largest);
  }
  if (status == FIRN_OK && change) {
    try {
      std::vector<firn_index_change*> changes;
      if (!group) changes.push_back(change->core());
      for (; group && *group; group++) changes.push_back(static_cast<IndexChange*>(*group)->core());
      firn::note_binlog_position();
      const LEX_CUSTRING* frm = table->s->frm_image;
      const LEX_CUSTRING version = firn::version_of(frm);
      status = firn_index_change_commit(firn::database, changes.data(), changes.size(), frm ? frm->str : nullptr,
                                        frm ? frm->length : 0, version.str, version.length, m_session->core(),
                                        firn::checks_foreign_keys(ha_thd()), firn::lock_timeout_us(ha_thd()));
    } catch (const std::bad_alloc&) {
      my_error(ER_OUT_OF_RESOURCES, MYF(0));
      return true;
    }
  }
  switch (status) {
    case FIRN_OK:
      break;
    /* A client that repeats a statement after a lock error looks for that error's number. */
    case FIRN_LOCK_TIMEOUT:
    case FIRN_LOCK_NOT_AVAILABLE:
    case FIRN_DEADLOCK:
    case FIRN_INTERRUPTED:
      print_error(firn_error(status), MYF(0));
      return true;
    default:
      my_printf_error(ER_GET_ERRMSG, "FIRN: %s", MYF(0), firn_last_error());
      return true;
  }
  info->group_commit_ctx = nullptr;
  return false;
}
