/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  Which servers this plugin works in.

  The loader accepts a storage engine only when the number behind plugin->info equals the running server's
  MYSQL_VERSION_ID << 8, so an engine built for 10.11.18 is refused by 10.11.19: after a security update its tables
  would be gone until someone rebuilds it. The number says nothing about what matters, though: an engine works in a
  server when the classes and structures they share lie in memory as the engine was compiled to believe.

  So abi_check.cc checks just that when the plugin is loaded (an ELF constructor, before the loader looks at anything):
  the server's series, then the virtual functions of class handler and Field slot by slot, then members of THD,
  handlerton, TABLE, TABLE_SHARE, KEY, Field and handler, by calling the server's own accessors on stand-ins.

    everything agrees     the numbers below become the running server's: the loader accepts the plugin
    anything else         they stay 0: the loader refuses ("API version ... not supported by this version of the
                          server"), and the error log says what differs and what to do. The server starts, its
                          other tables work, the FIRN tables stay on disk as they are.

  How to declare the engine: never with numbers of its own, always with these two.

    maria_declare_plugin(firn) {MYSQL_STORAGE_ENGINE_PLUGIN, &firn_storage_engine, "FIRN", ...},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN, &firn_information_schema, "FIRN_TABLES", ...} maria_declare_plugin_end;

  Rejected: decoding the machine code of the server's accessors (another compiler, another encoding), and a list of
  known versions (it refuses every security update until someone adds to it).
*/

#include <my_global.h>
#include <mysql/plugin.h>

/* For plugins of type MYSQL_STORAGE_ENGINE_PLUGIN. */
extern struct st_mysql_storage_engine firn_storage_engine;

/* For plugins of type MYSQL_INFORMATION_SCHEMA_PLUGIN. */
extern struct st_mysql_information_schema firn_information_schema;
