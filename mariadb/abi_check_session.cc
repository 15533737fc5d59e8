/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Checks THD, its transaction and the handlerton. Each check puts a value where this plugin was
  compiled to find a member; the server's accessor must return it.
*/

#include <my_global.h>
#include "sql_class.h"
#include "handler.h"
#include "transaction_callbacks.h"

#include <dlfcn.h>
#include <link.h>

#include "abi_check_internal.h"

/*
  Undefined, because service calls go through pointers that the loader fills in only after the
  constructors have run.
*/
#undef thd_get_autoinc
#undef thd_kill_level
#undef thd_wait_begin

/* Accessors that the server exports and no header declares. */
extern "C" {
void thd_get_autoinc(const MYSQL_THD thd, unsigned long* offset, unsigned long* increment);
enum thd_kill_levels thd_kill_level(const MYSQL_THD thd);
unsigned long long thd_query_id(const MYSQL_THD thd);
bool thd_is_slave(const MYSQL_THD thd);
LEX_CSTRING* thd_current_db(MYSQL_THD thd);
LEX_STRING* thd_query_string(MYSQL_THD thd);
const struct charset_info_st* thd_charset(MYSQL_THD thd);
int thd_non_transactional_update(const MYSQL_THD thd);
bool thd_is_strict_mode(const MYSQL_THD thd);
void* thd_mdl_context(MYSQL_THD thd);
void thd_wait_begin(MYSQL_THD thd, int wait_type);
}

namespace firn::abi_check {

void* zeros() {
  alignas(64) static char block[32768];
  return block;
}

namespace {

bool thread_id() {
  StandIn<THD> thd;
  thd->thread_id = 0x51;
  return thd_get_thread_id(thd.get()) == 0x51;
}

bool query_id() {
  StandIn<THD> thd;
  thd->query_id = 0x52;
  return thd_query_id(thd.get()) == 0x52;
}

bool isolation() {
  StandIn<THD> thd;
  thd->tx_isolation = ISO_SERIALIZABLE;
  return thd_tx_isolation(thd.get()) == ISO_SERIALIZABLE;
}

bool read_only() {
  StandIn<THD> thd;
  thd->tx_read_only = true;
  return thd_tx_is_read_only(thd.get()) != 0;
}

bool option_bits() {
  StandIn<THD> thd;
  thd->variables.option_bits = OPTION_NOT_AUTOCOMMIT;
  return thd_test_options(thd.get(), OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) == OPTION_NOT_AUTOCOMMIT;
}

bool sql_mode() {
  StandIn<THD> strict, other;
  strict->variables.sql_mode = MODE_STRICT_ALL_TABLES;
  other->variables.sql_mode = ~(MODE_STRICT_ALL_TABLES | MODE_STRICT_TRANS_TABLES);
  return thd_is_strict_mode(strict.get()) && !thd_is_strict_mode(other.get());
}

bool variables() {
  StandIn<THD> thd;
  thd->variables.auto_increment_offset = 7;
  thd->variables.auto_increment_increment = 11;
  unsigned long offset = 0, increment = 0;
  thd_get_autoinc(thd.get(), &offset, &increment);
  Dl_info info;
  void* symbol = nullptr;
  return offset == 7 && increment == 11 && dladdr1(&global_system_variables, &info, &symbol, RTLD_DL_SYMENT) != 0 &&
         symbol && static_cast<const ElfW(Sym)*>(symbol)->st_size == sizeof(system_variables);
}

bool character_set() {
  StandIn<THD> thd;
  thd->variables.character_set_client = &my_charset_latin1;
  return thd_charset(thd.get()) == &my_charset_latin1;
}

/* Also for THD::server_status, which lies between THD::thread_id and THD::killed. */
bool killed() {
  StandIn<THD> thd;
  thd->killed = KILL_QUERY_HARD;
  return thd_kill_level(thd.get()) == THD_ABORT_ASAP;
}

bool rgi_slave() {
  StandIn<THD> thd;
  thd->rgi_slave = static_cast<rpl_group_info*>(zeros());
  return thd_is_slave(thd.get());
}

THD* scheduled;

void wait_begins(THD* thd, int) { scheduled = thd; }

/* Also for THD::net, which lies between THD::rgi_slave and THD::scheduler. */
bool scheduler() {
  StandIn<THD> thd;
  scheduler_functions functions = {};
  functions.thd_wait_begin = wait_begins;
  thd->scheduler = &functions;
  scheduled = nullptr;
  thd_wait_begin(thd.get(), THD_WAIT_GROUP_COMMIT);
  return scheduled == thd.get();
}

bool embedded() {
  StandIn<THD> thd;
  return thd_current_db(thd.get()) == &thd->db &&
         static_cast<void*>(thd_query_string(thd.get())) == &thd->query_string &&
         thd_mdl_context(thd.get()) == &thd->mdl_context;
}

/* Also for LEX::query_tables, which comes right behind LEX::sql_command. */
bool lex() {
  StandIn<THD> thd(zeros());
  StandIn<LEX> lex;
  lex->sql_command = SQLCOM_OPTIMIZE;
  thd->lex = lex.get();
  return thd_sql_command(thd.get()) == SQLCOM_OPTIMIZE;
}

bool ha_data() {
  StandIn<THD> thd;
  StandIn<handlerton> hton;
  int mine;
  hton->slot = 3;
  thd->ha_data[3].ha_ptr = &mine;
  return thd_get_ha_data(thd.get(), hton.get()) == &mine;
}

bool transaction() {
  StandIn<THD> thd(zeros());
  StandIn<THD::st_transactions> transaction;
  transaction->all.modified_non_trans_table = true;
  thd->transaction = transaction.get();
  return thd_non_transactional_update(thd.get()) != 0;
}

const void* asked_hton;
unsigned asked;

bool can_release(handlerton* hton, THD*) {
  asked_hton = hton;
  asked++;
  return true;
}

bool participants() {
  StandIn<THD> thd;
  StandIn<THD::st_transactions> transaction;
  StandIn<handlerton> hton;
  Ha_trx_info participant, other;
  thd->transaction = transaction.get();
  hton->savepoint_rollback_can_release_mdl = can_release;
  participant.register_ha(&transaction->all, hton.get());
  other.register_ha(&transaction->all, hton.get());
  asked_hton = nullptr;
  asked = 0;
  return ha_rollback_to_savepoint_can_release_mdl(thd.get()) && asked_hton == hton.get() && asked == 2;
}

bool writers() {
  StandIn<THD> thd;
  StandIn<THD::st_transactions> transaction;
  StandIn<handlerton> hton;
  Ha_trx_info reader, writer, *last = nullptr;
  thd->transaction = transaction.get();
  writer.register_ha(&transaction->all, hton.get());
  writer.set_trx_read_write();
  reader.register_ha(&transaction->all, hton.get());
  return ha_count_rw_all(thd.get(), &last) == 1 && last == &writer;
}

bool statement_participants() {
  StandIn<THD> thd;
  StandIn<THD::st_transactions> transaction;
  StandIn<handlerton> hton;
  Ha_trx_info reader, writer;
  hton->recover = [](handlerton*, XID*, uint) { return 0; };
  thd->transaction = transaction.get();
  writer.register_ha(&transaction->stmt, hton.get());
  writer.set_trx_read_write();
  reader.register_ha(&transaction->stmt, hton.get());
  return ha_count_rw_2pc(thd.get(), false) == 1 && ha_count_rw_2pc(thd.get(), true) == 0;
}

handler* create_elsewhere(handlerton*, TABLE_SHARE*, MEM_ROOT*) { return nullptr; }

handler* create_here(handlerton* hton, TABLE_SHARE*, MEM_ROOT*) {
  asked_hton = hton;
  return nullptr;
}

bool create() {
  StandIn<handlerton> hton(reinterpret_cast<const void*>(create_elsewhere));
  hton->create = create_here;
  asked_hton = nullptr;
  return !get_new_handler(nullptr, nullptr, hton.get()) && asked_hton == hton.get();
}

constexpr Check kChecks[] = {
    {"THD::thread_id", thread_id},
    {"THD::query_id", query_id},
    {"THD::tx_isolation", isolation},
    {"THD::tx_read_only", read_only},
    {"THD::variables.option_bits", option_bits},
    {"THD::variables.sql_mode", sql_mode},
    {"THD::variables", variables},
    {"THD::variables.character_set_client", character_set},
    {"THD::killed", killed},
    {"THD::rgi_slave", rgi_slave},
    {"THD::net or THD::scheduler", scheduler},
    {"THD::db, THD::query_string or THD::mdl_context", embedded},
    {"THD::lex", lex},
    {"THD::ha_data or handlerton::slot", ha_data},
    {"THD::transaction", transaction},
    {"handlerton::savepoint_rollback_can_release_mdl", participants},
    {"Ha_trx_info", writers},
    {"THD::transaction->stmt or handlerton::recover", statement_participants},
    {"handlerton::create", create},
};

}  // namespace

const char* foreign_session_member() { return first_foreign(kChecks); }

}  // namespace firn::abi_check
