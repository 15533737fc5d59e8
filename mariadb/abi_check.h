/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  Decides in which servers this plugin works.

  The loader accepts a storage engine only if the number behind plugin->info equals the running
  server's MYSQL_VERSION_ID << 8. So an engine built for 10.11.18 is refused by 10.11.19: after a
  security update its tables are gone until somebody rebuilds the engine. Yet the number does not
  decide whether the engine works. It works if the classes and structures that it shares with the
  server have the memory layout that it was compiled for.

  abi_check.cc checks this layout when the plugin is loaded, in an ELF constructor, before the
  loader reads the numbers: the server's series, then the virtual functions of class handler and
  Field slot by slot, then members of THD, handlerton, TABLE, TABLE_SHARE, KEY, Field and handler,
  by calling the server's own accessors on stand-ins.

    all agree    The numbers below become the running server's, and the loader accepts the plugin.
    otherwise    They stay 0. The loader refuses the plugin ("API version ... not supported by this
                 version of the server"), and the error log says what differs and what to do. The
                 server starts and serves its other tables; the FIRN tables stay on disk unchanged.

  Declare the plugins only with these two variables, never with other numbers:

    maria_declare_plugin(firn)
    {MYSQL_STORAGE_ENGINE_PLUGIN, &firn_storage_engine, "FIRN", ...},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN, &firn_information_schema, "FIRN_TABLES", ...}
    maria_declare_plugin_end;

  Rejected: decoding the machine code of the server's accessors, because another compiler encodes
  them differently; and a list of known versions, because it refuses every security update until
  somebody extends it.
*/

#include <my_global.h>
#include <mysql/plugin.h>

/* For plugins of type MYSQL_STORAGE_ENGINE_PLUGIN. */
extern struct st_mysql_storage_engine firn_storage_engine;

/* For plugins of type MYSQL_INFORMATION_SCHEMA_PLUGIN. */
extern struct st_mysql_information_schema firn_information_schema;
