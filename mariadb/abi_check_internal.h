/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  What abi_check.cc asks, in three groups. Every function returns the name of the first thing that differs, or nullptr.

  The groups and the checks within them run in order and end at the first difference, and each relies only on what those
  before it have shown: a check must fail, not crash, in a server whose layout is foreign. Hence the stand-ins: an
  accessor that finds its member elsewhere reads the filling, which is chosen so that it may be followed.
*/

#include <cstddef>
#include <cstring>

namespace firn::abi_check {

/* Virtual functions, slot by slot (abi_check_vtables.cc). */
const char* foreign_virtual_function();

/* THD, its transaction, handlerton (abi_check_session.cc). */
const char* foreign_session_member();

/* TABLE, TABLE_SHARE, KEY, KEY_PART_INFO, HA_CREATE_INFO, Field, handler (abi_check_table.cc). */
const char* foreign_table_member();

struct Check {
  const char* what;
  bool (*agrees)();
};

template <size_t N>
const char* first_foreign(const Check (&checks)[N]) {
  for (const Check& check : checks)
    if (!check.agrees()) return check.what;
  return nullptr;
}

/*
  Memory that stands in for an object of type T whose constructor must not run, with room behind it for members that
  a foreign layout moved. Every word is `filling`: zero, or a pointer that a misplaced read may follow.
*/
template <typename T>
class StandIn {
 public:
  explicit StandIn(const void* filling = nullptr) {
    for (const void*& word : words_) word = filling;
  }
  /* Words that are still zero become `filling`. */
  void fill(const void* filling) {
    for (const void*& word : words_)
      if (!word) word = filling;
  }
  T* get() { return reinterpret_cast<T*>(words_); }
  T* operator->() { return get(); }

 private:
  static constexpr size_t kRoom = 4096;
  alignas(64) const void* words_[(sizeof(T) + kRoom) / sizeof(void*)];
};

/* Zeros to point at; the server may write zeros there too. */
void* zeros();

}  // namespace firn::abi_check
