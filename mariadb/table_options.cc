/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Table options: what the engine does with those that it has no use for. An option is noted if
  leaving it out changes nothing that a user could see in the data, because dumps are full of such
  options and must load. It is refused if the user would rely on something that is not there.
*/

#include "table_options.h"
#include "ddl_callbacks.h"
#include "session.h"
#include "sql_alter.h"

/* Accessors that the server exports and no header declares. */
extern "C" {
unsigned long long thd_query_id(const MYSQL_THD thd);
bool thd_is_strict_mode(const MYSQL_THD thd);
bool thd_is_slave(const MYSQL_THD thd);
}

namespace firn {

/* FIRN_LOCKING: the names of TableLocking in their order; the first one is the default. */
ha_create_table_option table_options[] = {
    HA_TOPTION_ENUM("FIRN_LOCKING", locking, "PESSIMISTIC,OPTIMISTIC", 0),
    HA_TOPTION_BOOL("PAGE_COMPRESSED", page_compressed, 0),
    HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, UINT_MAX32, 1),
    HA_TOPTION_ENUM("ENCRYPTED", encryption, "DEFAULT,YES,NO", 0),
    HA_TOPTION_NUMBER("ENCRYPTION_KEY_ID", encryption_key_id, 0, 0, UINT_MAX32, 1),
    HA_TOPTION_END};

namespace {

constexpr uint kEncryptedYes = 1;

/* An option of the server. */
struct Option {
  const char* name;
  /* The flag HA_CREATE_USED_… that is set if the statement names the option. */
  ulong used;
  /* Whether the table has the option, in a way that another engine would act upon. */
  bool (*is_set)(const HA_CREATE_INFO* info);
};

bool is_named(const HA_CREATE_INFO*) { return true; }

template <uint bits>
bool has_flag(const HA_CREATE_INFO* info) {
  return info->table_options & bits;
}

constexpr Option kIgnored[] = {
    {"ROW_FORMAT", HA_CREATE_USED_ROW_FORMAT,
     [](const HA_CREATE_INFO* info) {
       return info->row_type != ROW_TYPE_DEFAULT && info->row_type != ROW_TYPE_NOT_USED;
     }},
    {"KEY_BLOCK_SIZE", HA_CREATE_USED_KEY_BLOCK_SIZE,
     [](const HA_CREATE_INFO* info) { return info->key_block_size != 0; }},
    {"STATS_PERSISTENT", HA_CREATE_USED_STATS_PERSISTENT,
     has_flag<HA_OPTION_STATS_PERSISTENT | HA_OPTION_NO_STATS_PERSISTENT>},
    {"STATS_AUTO_RECALC", HA_CREATE_USED_STATS_AUTO_RECALC,
     [](const HA_CREATE_INFO* info) { return info->stats_auto_recalc != HA_STATS_AUTO_RECALC_DEFAULT; }},
    {"STATS_SAMPLE_PAGES", HA_CREATE_USED_STATS_SAMPLE_PAGES,
     [](const HA_CREATE_INFO* info) { return info->stats_sample_pages != 0; }},
    {"CONNECTION", HA_CREATE_USED_CONNECTION,
     [](const HA_CREATE_INFO* info) { return info->connect_string.length != 0; }},
    {"CHECKSUM", HA_CREATE_USED_CHECKSUM, has_flag<HA_OPTION_CHECKSUM>},
    /*
      Note PAGE_CHECKSUM and TRANSACTIONAL, options of Aria, only if the statement names them. A
      table that comes from Aria, such as mysql.gtid_slave_pos, has them although nobody has named
      them, and FIRN gives more than they promise.
    */
    {"PAGE_CHECKSUM", HA_CREATE_USED_PAGE_CHECKSUM,
     [](const HA_CREATE_INFO* info) { return bool(info->used_fields & HA_CREATE_USED_PAGE_CHECKSUM); }},
    {"DELAY_KEY_WRITE", HA_CREATE_USED_DELAY_KEY_WRITE, has_flag<HA_OPTION_DELAY_KEY_WRITE>},
    /* The server itself gives a sequence both numbers of rows. */
    {"MIN_ROWS", HA_CREATE_USED_MIN_ROWS,
     [](const HA_CREATE_INFO* info) { return info->min_rows != 0 && !info->sequence; }},
    {"MAX_ROWS", HA_CREATE_USED_MAX_ROWS,
     [](const HA_CREATE_INFO* info) { return info->max_rows != 0 && !info->sequence; }},
    {"AVG_ROW_LENGTH", HA_CREATE_USED_AVG_ROW_LENGTH,
     [](const HA_CREATE_INFO* info) { return info->avg_row_length != 0; }},
    {"PACK_KEYS", HA_CREATE_USED_PACK_KEYS, has_flag<HA_OPTION_PACK_KEYS | HA_OPTION_NO_PACK_KEYS>},
    {"INSERT_METHOD", HA_CREATE_USED_INSERT_METHOD, is_named},
    {"UNION", HA_CREATE_USED_UNION, is_named},
    {"PASSWORD", HA_CREATE_USED_PASSWORD, is_named},
    {"TRANSACTIONAL", HA_CREATE_USED_TRANSACTIONAL,
     [](const HA_CREATE_INFO* info) {
       return info->used_fields & HA_CREATE_USED_TRANSACTIONAL && info->transactional == HA_CHOICE_NO;
     }},
};

/* Bits of Session::note_option() beyond those of kIgnored. */
enum : uint { kPageCompressed = array_elements(kIgnored), kPageCompressionLevel, kEncryptionKeyId };
static_assert(kEncryptionKeyId < 64);

void note(THD* thd, Session* session, uint option, const char* name) {
  if (session && !session->note_option(thd_query_id(thd), option)) return;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED), name);
}

}  // namespace

const char* unmet_option(const TABLE* form) {
  const ha_table_option_struct* attributes = form->s->option_struct;
  if (attributes && attributes->encryption == kEncryptedYes) return "ENCRYPTED";
  /*
    A key that the server checks is guarded by a lock. An optimistic read may use a snapshot that is
    older than that lock, so the check would miss rows.
  */
  if (is_optimistic(attributes) && has_key_checked_by_server(form))
    return "FIRN_LOCKING=OPTIMISTIC with WITHOUT OVERLAPS or UNIQUE over more bytes than a key takes";
  return nullptr;
}

void note_ignored_options(THD* thd, const TABLE* form, const HA_CREATE_INFO* info) {
  Session* session = Session::get(thd);
  const bool all = thd_sql_command(thd) != SQLCOM_ALTER_TABLE || info->used_fields & HA_CREATE_USED_ENGINE;
  bool block_size_noted = false;
  for (uint i = 0; i < array_elements(kIgnored); i++) {
    const Option& option = kIgnored[i];
    const bool named = info->used_fields & option.used;
    if (!named && (!all || option.is_set == is_named)) continue;
    if (!option.is_set(info)) continue;
    note(thd, session, i, option.name);
    block_size_noted |= option.used == HA_CREATE_USED_KEY_BLOCK_SIZE;
  }
  const bool has_options = all || !info->alter_info || info->alter_info->flags & ALTER_OPTIONS;
  for (uint i = 0; i < form->s->keys && all && !block_size_noted; i++) {
    if (!(form->key_info[i].flags & HA_USES_BLOCK_SIZE)) continue;
    note(thd, session, 1, "KEY_BLOCK_SIZE");
    block_size_noted = true;
  }
  const ha_table_option_struct* attributes = form->s->option_struct;
  if (!attributes || !has_options) return;
  if (attributes->page_compressed) note(thd, session, kPageCompressed, "PAGE_COMPRESSED");
  if (attributes->page_compression_level) note(thd, session, kPageCompressionLevel, "PAGE_COMPRESSION_LEVEL");
  if (attributes->encryption_key_id) note(thd, session, kEncryptionKeyId, "ENCRYPTION_KEY_ID");
}

bool refuse_directories(THD* thd, const HA_CREATE_INFO* info) {
  const bool strict = thd_is_strict_mode(thd) && !thd_is_slave(thd);
  const struct {
    const char* path;
    const char* name;
  } directories[] = {{info->data_file_name, "DATA DIRECTORY"}, {info->index_file_name, "INDEX DIRECTORY"}};
  for (const auto& directory : directories) {
    if (!directory.path) continue;
    if (strict) {
      my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), hton_name(hton)->str, directory.name);
      return true;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        directory.name);
  }
  return false;
}

}  // namespace firn
