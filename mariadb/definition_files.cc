/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The server's definition files at the end of DDL that a crash has interrupted. The core decides
  which file belongs to which table; this file reads, writes, moves and removes them.
  A table of the core's catalog ("db/t") has its files at "./db/t.frm" and "./db/t.par": the
  server's working directory is its data directory.
*/

#include "definition_files.h"
#include "frm_image.h"
#include "log.h"
#include "my_dir.h"

#include <new>
#include <set>
#include <string>

namespace firn {
namespace {

constexpr const char* kFrm = ".frm";
constexpr const char* kPar = ".par";

std::string path_of(const char* table, const char* extension) { return std::string("./") + table + extension; }

bool exists(const std::string& path) { return !my_access(path.c_str(), F_OK); }

/* Reads a file; false if there is none or it cannot be read. */
bool read_file(const std::string& path, std::string* content) {
  MY_STAT stat;
  const File file = my_open(path.c_str(), O_RDONLY, MYF(0));
  if (file < 0) return false;
  bool done = false;
  if (!my_fstat(file, &stat, MYF(0))) {
    content->resize(size_t(stat.st_size));
    done = !my_read(file, reinterpret_cast<uchar*>(&(*content)[0]), content->size(), MYF(MY_NABP));
  }
  my_close(file, MYF(0));
  return done;
}

LEX_CUSTRING image_of(const std::string& frm) { return {reinterpret_cast<const uchar*>(frm.data()), frm.length()}; }

std::string text(const LEX_CUSTRING& bytes) {
  return bytes.length ? std::string(reinterpret_cast<const char*>(bytes.str), bytes.length) : std::string();
}

std::string version_in(const std::string& frm) {
  const LEX_CUSTRING image = image_of(frm);
  return text(version_of(&image));
}

bool is_partitioned(const std::string& frm) {
  const LEX_CUSTRING image = image_of(frm);
  return engine_of_partitions(&image).length != 0;
}

/* Whether the file defines a table of this engine, or one with partitions of this engine. */
bool is_own(const std::string& path) {
  std::string frm;
  if (!read_file(path, &frm)) return false;
  const LEX_CUSTRING image = image_of(frm);
  const std::string engine = text(is_partitioned(frm) ? engine_of_partitions(&image) : engine_of(&image));
  return !strcasecmp(engine.c_str(), hton_name(hton)->str);
}

void sync_directory_of(const std::string& path) { my_sync_dir_by_file(path.c_str(), MYF(0)); }

bool move(const std::string& from, const std::string& to) {
  if (my_rename(from.c_str(), to.c_str(), MYF(0))) return false;
  sync_directory_of(to);
  return true;
}

/* Writes a definition file beside the old one, and renames it when it is durable. */
bool write_frm(const std::string& path, const uchar* frm, size_t length) {
  const std::string temporary = path + "~";
  const File file = my_create(temporary.c_str(), 0, O_RDWR | O_TRUNC, MYF(0));
  if (file < 0) return false;
  bool done = !my_write(file, frm, length, MYF(MY_NABP)) && !my_sync(file, MYF(0));
  if (my_close(file, MYF(0))) done = false;
  if (done) done = move(temporary, path);
  if (!done) my_delete(temporary.c_str(), MYF(0));
  return done;
}

ssize_t version(void*, const char* table, uint8_t* out, size_t size) {
  try {
    std::string frm;
    if (!read_file(path_of(table, kFrm), &frm)) return -1;
    const std::string found = version_in(frm);
    memcpy(out, found.data(), MY_MIN(found.length(), size));
    return ssize_t(MY_MIN(found.length(), size));
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

/* Calls `each` with the names of the files of a database that have `extension`, without it. */
template <class Each>
void for_each_file(const std::string& schema, const char* extension, Each each) {
  MY_DIR* const files = my_dir(("./" + schema).c_str(), MYF(MY_DONT_SORT));
  if (!files) return;
  try {
    for (size_t i = 0; i < files->number_of_files; i++) {
      const std::string name = files->dir_entry[i].name;
      const size_t end = name.length() - MY_MIN(name.length(), strlen(extension));
      if (name.compare(end, std::string::npos, extension) == 0) each(schema + "/" + name.substr(0, end));
    }
  } catch (const std::bad_alloc&) {
    sql_print_error("FIRN: out of memory while files of interrupted DDL were listed");
  }
  my_dirend(files);
}

void list(void*, const char* schema, void (*each)(void*, const char*), void* names) {
  try {
    for_each_file(schema, kFrm, [&](const std::string& table) { each(names, table.c_str()); });
  } catch (const std::bad_alloc&) {
    sql_print_error("FIRN: out of memory while files of interrupted DDL were listed");
  }
}

/*
  The names of the partitions in a .par file: behind 8 bytes, the number of partitions, a byte for
  each in whole words, and the length of the names, each of which ends with a NUL byte. Numbers have
  four bytes. Empty if the file is damaged.
*/
std::set<std::string> partitions_in(const std::string& par) {
  std::set<std::string> names;
  const uchar* const bytes = reinterpret_cast<const uchar*>(par.data());
  if (par.length() < 12) return names;
  size_t at = 12 + (size_t(uint4korr(bytes + 8)) + 3) / 4 * 4;
  if (at + 4 > par.length()) return names;
  const size_t end = MY_MIN(par.length(), at + 4 + uint4korr(bytes + at));
  for (at += 4; at < end;) {
    const std::string name = par.c_str() + at;
    at += name.length() + 1;
    if (!name.empty()) names.insert(name);
  }
  return names;
}

bool is_own_table(void*, const char* table) {
  try {
    return is_own(path_of(table, kFrm));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool place_frm(const std::string& own, const std::string& other, const uint8_t* frm, size_t frm_len,
               const std::string& wanted) {
  const bool there = exists(own);
  if (there && !is_own(own)) return false;
  std::string content;
  if (there && (wanted.empty() || (read_file(own, &content) && version_in(content) == wanted))) return true;
  const bool fits = read_file(other, &content) && (wanted.empty() || version_in(content) == wanted);
  if (fits) return move(other, own);
  return frm_len && write_frm(own, frm, frm_len);
}

/* The names of the partitions are in a file beside the definition; no other tables have it. */
bool place_par(const char* table, const char* copy) {
  const std::string own = path_of(table, kPar), other = path_of(copy, kPar);
  if (other != own && exists(other)) return move(other, own);
  std::string frm;
  if (!exists(own) || !read_file(path_of(table, kFrm), &frm)) return true;
  return is_partitioned(frm) || !my_delete(own.c_str(), MYF(0));
}

bool place(void*, const char* table, const char* copy, const uint8_t* frm, size_t frm_len, const uint8_t* version,
           size_t version_len) {
  try {
    const std::string wanted(reinterpret_cast<const char*>(version), version_len);
    return place_frm(path_of(table, kFrm), path_of(copy, kFrm), frm, frm_len, wanted) && place_par(table, copy);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void place_partitions(void*, const char* table, const char* const* partitions, size_t count) {
  try {
    const std::string own = path_of(table, kPar);
    if (exists(own)) return;
    const std::set<std::string> wanted(partitions, partitions + count);
    const std::string schema(table, size_t(strchrnul(table, '/') - table));
    for_each_file(schema, kPar, [&](const std::string& copy) {
      std::string par;
      const std::string path = path_of(copy.c_str(), kPar);
      if (is_ddl_leftover(copy.c_str()) && !exists(own) && read_file(path, &par) && partitions_in(par) == wanted &&
          !move(path, own))
        sql_print_error("FIRN: cannot rename %s to %s", path.c_str(), own.c_str());
    });
  } catch (const std::bad_alloc&) {
    sql_print_error("FIRN: out of memory; %s may lack its file of partitions", table);
  }
}

void remove(void*, const char* copy) {
  try {
    for (const char* extension : {kFrm, kPar}) my_delete(path_of(copy, extension).c_str(), MYF(0));
  } catch (const std::bad_alloc&) {
    sql_print_error("FIRN: out of memory; files of %s stay", copy);
  }
}

void report(void*, const char* copy, uint8_t fate, const char* text) {
  switch (fate) {
    case FIRN_LEFTOVER_DROPPED:
      sql_print_information("FIRN: dropped table '%s': left over from interrupted DDL", copy);
      break;
    case FIRN_LEFTOVER_RESTORED:
      sql_print_error("FIRN: the server could not end interrupted DDL; table '%s' is '%s' now", copy, text);
      break;
    default:
      sql_print_error("FIRN: table '%s' is left over from interrupted DDL and stays: %s", copy, text);
  }
}

/* Whether the core has partitions of the table, or cannot say. */
bool has_partitions(const std::string& table) {
  bool found = false;
  const auto note = [](void* found, const char*) { *static_cast<bool*>(found) = true; };
  return firn_list_table_names(database, (table + "#P#").c_str(), note, &found) != FIRN_OK || found;
}

}  // namespace

/*
  A kill may leave a copy with a file of partitions and an empty definition, or none, and a server
  without the engine forgets it. Nobody needs these files, and they keep the database from being
  dropped. Called only while the server starts: later they might be those of an ALTER under way.
*/
void remove_stray_partitions(const char* schema) {
  for_each_file(schema, kPar, [](const std::string& copy) {
    std::string frm;
    const bool is_defined = read_file(path_of(copy.c_str(), kFrm), &frm) && !frm.empty();
    if (is_ddl_leftover(copy.c_str()) && !is_defined && !has_partitions(copy)) remove(nullptr, copy.c_str());
  });
}

const firn_definition_files definition_files = {nullptr, version,          list,   is_own_table,
                                                place,   place_partitions, remove, report};

}  // namespace firn
