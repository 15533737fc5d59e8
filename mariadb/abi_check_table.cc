/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Checks tables and handlers in the way of abi_check_session.cc. The order matters: the checks of
  TABLE::in_use and TABLE::s come first, because the others rely on them.
*/

#include <my_global.h>
#include "sql_class.h"
#include "handler.h"
#include "table.h"
#include "field.h"
#include "sql_update.h"

#include "abi_check_internal.h"

namespace firn::abi_check {
namespace {

/* Makes protected members of class handler accessible. */
class HandlerAccess : public handler {
 public:
  using handler::cached_table_flags;
  using handler::get_ha_share_ptr;
  using handler::ha_thd;
  using handler::table;
};

bool in_use() {
  StandIn<HandlerAccess> file;
  StandIn<TABLE> table;
  StandIn<THD> thd;
  file->table = table.get();
  table->in_use = thd.get();
  return file->ha_thd() == thd.get();
}

bool share() {
  StandIn<TABLE> table(zeros());
  StandIn<TABLE_SHARE> share;
  StandIn<HA_CREATE_INFO> created;
  engine_option_value* const options = reinterpret_cast<engine_option_value*>(zeros());
  table->s = share.get();
  share->max_rows = 101;
  share->min_rows = 102;
  share->db_create_options = 103;
  share->avg_row_length = 104;
  share->key_block_size = 105;
  share->row_type = ROW_TYPE_COMPRESSED;
  share->table_charset = &my_charset_latin1;
  share->comment = {"remark", 6};
  share->option_list = options;
  update_create_info_from_table(created.get(), table.get());
  return created->max_rows == 101 && created->min_rows == 102 && created->table_options == 103 &&
         created->avg_row_length == 104 && created->key_block_size == 105 && created->row_type == ROW_TYPE_COMPRESSED &&
         created->default_table_charset == &my_charset_latin1 && created->comment.str == share->comment.str &&
         created->comment.length == 6 && created->option_list == options;
}

bool keys() {
  StandIn<TABLE> table(zeros());
  StandIn<THD> thd;
  KEY keys[2] = {};
  KEY_PART_INFO parts[2] = {};
  table->in_use = thd.get();
  table->key_info = keys;
  keys[1].key_part = parts;
  keys[1].user_defined_key_parts = keys[1].ext_key_parts = 2;
  parts[0].store_length = 30;
  parts[1].store_length = 4;
  return calculate_key_len(table.get(), 1, nullptr, 3) == 34;
}

bool column_sets() {
  StandIn<TABLE> table;
  StandIn<TABLE_SHARE> share;
  table->s = share.get();
  table->clear_column_bitmaps();
  return table->read_set == &table->def_read_set && table->write_set == &table->def_write_set;
}

bool records() {
  StandIn<TABLE> table(zeros());
  StandIn<TABLE_SHARE> share;
  StandIn<HandlerAccess> file;
  uchar before[16] = {}, after[16] = {};
  after[8] = 1;
  table->s = share.get();
  table->file = file.get();
  table->record[0] = before;
  table->record[1] = after;
  share->can_cmp_whole_record = true;
  share->reclength = 8;
  if (compare_record(table.get())) return false;
  share->reclength = 9;
  if (!compare_record(table.get())) return false;
  file->cached_table_flags = HA_PARTIAL_COLUMN_READ;
  return !compare_record(table.get());
}

bool handler_range() {
  StandIn<HandlerAccess> file;
  const uchar key[4] = {1, 2, 3, 4};
  const key_range end = {key, sizeof key, 1, HA_READ_AFTER_KEY};
  file->set_end_range(&end);
  return file->end_range == &file->save_end_range && file->save_end_range.key == key &&
         file->save_end_range.length == sizeof key && file->save_end_range.flag == HA_READ_AFTER_KEY;
}

bool handler_share() {
  StandIn<HandlerAccess> file;
  Handler_share* mine = static_cast<Handler_share*>(zeros()) + 1;
  file->handler::set_ha_share_ref(&mine); /* Refuses if a reference is set already. */
  file.fill(zeros());
  return file->get_ha_share_ptr() == mine;
}

/*
  The server's constructor fills the object. The plugin reads the members where it was compiled to
  find them, and calls the server's virtual functions.
*/
bool field() {
  StandIn<Field_longlong> memory;
  const LEX_CSTRING name = {STRING_WITH_LEN("amount")};
  longlong value = 4711;
  uchar nulls = 0;
  Field* field = ::new (memory.get())
      Field_longlong(reinterpret_cast<uchar*>(&value), 20, &nulls, 4, Field::NONE, &name, false, false);
  return field->ptr == reinterpret_cast<uchar*>(&value) && field->field_length == 20 && field->null_ptr == &nulls &&
         field->null_bit == 4 && field->field_name.str == name.str && field->flags == 0 && field->table == nullptr &&
         field->cond_selectivity == 1.0 && field->real_maybe_null() && field->pack_length() == 8 &&
         field->val_int() == 4711;
}

constexpr Check kChecks[] = {
    {"handler::table or TABLE::in_use", in_use},
    {"TABLE::s, TABLE_SHARE or HA_CREATE_INFO", share},
    {"TABLE::key_info, KEY or KEY_PART_INFO", keys},
    {"TABLE::read_set or TABLE::write_set", column_sets},
    {"TABLE::record, TABLE::file, TABLE_SHARE::reclength or handler::cached_table_flags", records},
    {"handler::end_range", handler_range},
    {"handler::ha_share", handler_share},
    {"the members of Field", field},
};

}  // namespace

const char* foreign_table_member() { return first_foreign(kChecks); }

}  // namespace firn::abi_check
