/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  The checks behind abi_check.cc, in three groups. Each function returns the name of the first
  difference, or nullptr.

  Groups, and the checks of a group, run in order and stop at the first difference, because each
  check relies on what those before it have shown. In a server with a foreign layout a check must
  fail, not crash. So the accessors run on stand-ins: an accessor that looks for its member
  elsewhere reads the filling, a value that it can safely follow.
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
  Memory that stands in for an object of type T whose constructor must not run, with room behind it
  for members that a foreign layout has moved. Each word holds `filling`: zero, or a pointer that a
  misplaced read can follow.
*/
template <typename T>
class StandIn {
 public:
  explicit StandIn(const void* filling = nullptr) {
    for (const void*& word : words_) word = filling;
  }
  /* Sets the words that are still zero to `filling`. */
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

/* A block of zeros to point at. The server may write to it, but only zeros. */
void* zeros();

}  // namespace firn::abi_check
