/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Checks the virtual functions. The classes below override nothing, so the compiler fills their
  vtables with the base class's functions in the order of the headers, and the dynamic linker binds
  those that the server exports to the server's functions. The server's own vtable must hold the
  same addresses in the same slots, and have as many slots.

  Functions that the headers define inline are copies in the plugin and prove nothing, so about one
  slot in four can be compared. That is enough: a slot that is added or removed moves all compared
  slots behind it, and changes the size.
*/

#include <my_global.h>
#include "sql_class.h"
#include "handler.h"
#include "table.h"

#include <dlfcn.h>
#include <link.h>

#include "abi_check_internal.h"

class Firn_abi_handler : public handler {
 public:
  Firn_abi_handler();
};
Firn_abi_handler::Firn_abi_handler() : handler(nullptr, nullptr) {}

class Firn_abi_field : public Field {
 public:
  Firn_abi_field();
};
Firn_abi_field::Firn_abi_field() : Field(nullptr, 0, nullptr, 0, NONE, nullptr) {}

using Vtable = const void* const[];
extern Vtable server_handler asm("_ZTV7handler");
extern Vtable server_field asm("_ZTV5Field");
extern Vtable compiled_handler asm("_ZTV16Firn_abi_handler");
extern Vtable compiled_field asm("_ZTV14Firn_abi_field");

namespace firn::abi_check {
namespace {

/* Entries before the first function: offset to top and type information. */
constexpr size_t kHead = 2;

size_t entries(const void* vtable) {
  Dl_info info;
  void* symbol = nullptr;
  if (!dladdr1(vtable, &info, &symbol, RTLD_DL_SYMENT) || !symbol) return 0;
  return static_cast<const ElfW(Sym)*>(symbol)->st_size / sizeof(void*);
}

bool in_plugin(const void* address) {
  Dl_info here, there;
  return dladdr(reinterpret_cast<const void*>(&in_plugin), &here) && dladdr(address, &there) &&
         here.dli_fbase == there.dli_fbase;
}

bool agree(const void* const* server, const void* const* compiled) {
  const size_t count = entries(compiled);
  if (count <= kHead || entries(server) != count) return false;
  size_t compared = 0;
  for (size_t slot = kHead; slot < count; slot++) {
    if (in_plugin(compiled[slot])) continue;
    if (server[slot] != compiled[slot]) return false;
    compared++;
  }
  return compared * 8 >= count;
}

bool handler_agrees() { return agree(server_handler, compiled_handler); }
bool field_agrees() { return agree(server_field, compiled_field); }

constexpr Check kChecks[] = {
    {"the virtual functions of handler", handler_agrees},
    {"the virtual functions of Field", field_agrees},
};

}  // namespace

const char* foreign_virtual_function() { return first_foreign(kChecks); }

}  // namespace firn::abi_check
