/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

#include <deque>
#include <string>
#include <vector>

class Alter_info;
class Alter_inplace_info;
class Foreign_key;

namespace firn {

/* Whether the session checks foreign keys. */
inline bool checks_foreign_keys(THD* thd) { return !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS); }

/*
  The foreign keys of a CREATE or ALTER statement as the core takes them. The constructor throws
  std::bad_alloc.
*/
class ForeignKeyRequest {
 public:
  /*
    `name` is the table's name in the core's catalog. With `in_place`, the table stays: the request
    then leaves out foreign keys that the table has already, and names those to drop.
  */
  ForeignKeyRequest(THD* thd, const char* name, TABLE* form, Alter_info* alter_info, bool in_place);
  ForeignKeyRequest(const ForeignKeyRequest&) = delete;
  ForeignKeyRequest& operator=(const ForeignKeyRequest&) = delete;

  const firn_foreign_key_request* get() const { return &m_request; }
  /* Whether the table is to replace one that foreign keys refer to. */
  bool replaces_referenced() const;

  /*
    Reports that the core has refused the foreign keys (FIRN_FOREIGN_KEY): adds InnoDB's warning and
    returns the error of create().
  */
  int report_create() const;
  /* As report_create(), for an ALTER in place, which reports the error itself. */
  void report_alter() const;
  /* Whether the core refused the change because it needs an index that the statement drops. */
  static bool needs_dropped_index(const Alter_inplace_info* info);

 private:
  void add(const char* name, TABLE* form, const Foreign_key* key);
  const char* keep(std::string text);
  const Foreign_key* definition_of(const char* name) const;
  const Foreign_key* last_definition_of(const char* name) const;
  void warn_of_name(const char* name, const Foreign_key* key) const;

  THD* const m_thd;
  const TABLE* const m_form;
  const std::string m_name;
  /* Own the texts and lists that m_added points to; their elements do not move. */
  std::deque<std::string> m_texts;
  std::deque<std::vector<const char*>> m_lists;
  std::deque<std::vector<uint32_t>> m_chars;
  std::vector<firn_new_foreign_key> m_added;
  std::vector<const Foreign_key*> m_keys;
  std::vector<const char*> m_dropped;
  firn_foreign_key_request m_request = {};
};

/*
  Whether the statement adds foreign keys to the table that it creates. With `inherits`, those that
  a copying ALTER takes over from the old table count, too.
*/
bool adds_foreign_keys(Alter_info* alter_info, bool inherits);

/*
  Whether the ALTER of the table at `path` makes a column NOT NULL that a foreign key sets to NULL.
  Reports the error.
*/
bool refuse_not_null(const char* path, const Alter_info* alter_info);

}  // namespace firn
