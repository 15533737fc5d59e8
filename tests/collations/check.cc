/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Proves that the core's keys order text as the server does: an SQL function, built only for tests.

    CREATE FUNCTION firn_check_collation RETURNS STRING SONAME 'firn_collation_check.so';
    SELECT firn_check_collation('utf8mb4_general_ci', 100000, 1);      -- name, pairs, seed

  For random pairs of strings it compares the order of their keys with strnncollsp() (VARCHAR), and
  for padded strings with strnncollsp_nchars() as Field_string::cmp() calls it (CHAR). The strings
  are short and consist of few characters, so that many are equal: spaces, control characters,
  accents, contractions, expansions, ignorable and supplementary characters, and bytes that begin no
  character. The result is "ok …", "refused: …" or "WRONG …" with the strings in hex.

  Where one byte does not have one weight, and characters have at most two bytes, it first compares
  all strings of up to two bytes: it sorts them by their keys and asks the server for the order of
  each two neighbours. If the server's order is total, that proves the order of any two of them.
*/

#include "collation.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uchar>;

constexpr my_wc_t kCharacters[] = {
    ' ',     ' ',     ' ',     'a',     'A',    'b',    'B',    'c',     'C',     'h',     'H',     'l',     'L',
    'j',     'n',     'y',     's',     'S',    'z',    'd',    'e',     'E',     'i',     'I',     'o',     'u',
    'k',     't',     '0',     '9',     '_',    '-',    '\'',   '~',     0,       1,       9,       10,      0x1f,
    0x7f,    0xa0,    0xad,    0xb7,    0xc4,   0xe4,   0xc5,   0xe5,    0xc6,    0xe6,    0xd8,    0xf8,    0xd6,
    0xf6,    0xdc,    0xfc,    0xdf,    0xe9,   0xc9,   0xe1,   0xc1,    0xf1,    0xfe,    0xd0,    0xf0,    0x10d,
    0x10c,   0x11b,   0x130,   0x131,   0x132,  0x141,  0x142,  0x149,   0x152,   0x153,   0x160,   0x161,   0x17f,
    0x17d,   0x1c4,   0x1c6,   0x1c9,   0x1cc,  0x200b, 0x200d, 0x2060,  0x20ac,  0x2028,  0x300,   0x301,   0x302,
    0x308,   0x30a,   0x30c,   0x323,   0x327,  0x345,  0x3a3,  0x3c2,   0x3c3,   0x391,   0x3b1,   0x410,   0x430,
    0x451,   0x419,   0x439,   0x5d0,   0x5b0,  0x627,  0x644,  0x64b,   0x915,   0x93f,   0xe01,   0xe02,   0xe2b,
    0xe30,   0xe34,   0xe38,   0xe3a,   0xe40,  0xe44,  0xe47,  0xe48,   0xe49,   0xe4c,   0xe4e,   0xe51,   0xfb2,
    0x1000,  0x1031,  0x1780,  0x1e9e,  0x1ea5, 0x2100, 0x2126, 0x2160,  0x2460,  0x3000,  0x3042,  0x304b,  0x304c,
    0x30a2,  0x30ab,  0x30fc,  0x309d,  0x309e, 0x3099, 0x3400, 0x4e00,  0x4e9c,  0x4e2d,  0x6587,  0x6d7f,  0x6d80,
    0x7f7f,  0x9fa5,  0xa000,  0xac00,  0xd7a3, 0x1100, 0x1161, 0x11a8,  0xf900,  0xfa0e,  0xfb01,  0xfdfa,  0xfe0f,
    0xfeff,  0xff21,  0xff41,  0xff71,  0xff9e, 0xfffd, 0xffff, 0x10000, 0x10400, 0x10428, 0x1d400, 0x1d15f, 0x1f600,
    0x20000, 0x2f800, 0xe0001, 0x10ffff};

constexpr uint kCharLength = 10;

class Check {
 public:
  Check(CHARSET_INFO* cs, const firn_collation& collation, ulonglong seed)
      : cs_(cs), collation_(collation), slow_(collation), random_(seed) {
    slow_.simple_len = 0;
  }

  std::string run(ulonglong pairs) {
    const bool all = collation_.simple_len == 0 && cs_->mbmaxlen <= 2 && !(cs_->state & MY_CS_UNICODE);
    if (all && (!short_strings(0) || !short_strings(kCharLength))) return wrong_;
    for (ulonglong i = 0; i < pairs; i++) {
      const bool malformed = below(8) == 0;
      Bytes a = make(malformed);
      Bytes b = below(3) ? variation(a) : make(malformed);
      if (cs_->mbminlen > 1) {
        a.resize(a.size() - a.size() % cs_->mbminlen);
        b.resize(b.size() - b.size() % cs_->mbminlen);
      }
      if (!varchar(a, b) || (whole(a) && whole(b) && !fixed(a, b))) return wrong_;
    }
    return "ok " + std::to_string(pairs) + " pairs, " + std::to_string(equal_) + " equal, " +
           std::to_string(malformed_) + " malformed";
  }

 private:
  /* All strings of up to two bytes, in a VARCHAR, or in a CHAR of so many characters. */
  bool short_strings(uint chars) {
    struct Keyed {
      Bytes text, key;
    };
    std::vector<Keyed> strings;
    for (uint number = 0; number < 0x10101; number++) {
      Bytes text;
      if (number >= 0x101)
        text = {uchar((number - 0x101) >> 8), uchar(number - 0x101)};
      else if (number)
        text = {uchar(number - 1)};
      if (chars && !whole(text)) continue;
      if (chars) text = padded(text);
      Bytes sorted = key(text, collation_, chars);
      strings.push_back({std::move(text), std::move(sorted)});
    }
    std::sort(strings.begin(), strings.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
    for (size_t i = 0; i + 1 < strings.size(); i++) {
      const Bytes &a = strings[i].text, &b = strings[i + 1].text;
      if (!agree(a, b, chars, expected(a, b, chars), chars ? "CHAR" : "VARCHAR")) return false;
    }
    return true;
  }

  int expected(const Bytes& a, const Bytes& b, uint chars) const {
    return chars ? cs_->coll->strnncollsp_nchars(cs_, a.data(), a.size(), b.data(), b.size(), chars, 0)
                 : cs_->coll->strnncollsp(cs_, a.data(), a.size(), b.data(), b.size());
  }

  /* The text as a CHAR column has it. */
  Bytes padded(Bytes text) const {
    const size_t len = text.size();
    text.resize(kCharLength * cs_->mbmaxlen);
    cs_->fill(reinterpret_cast<char*>(text.data()) + len, text.size() - len, ' ');
    return text;
  }

  uint below(uint limit) { return std::uniform_int_distribution<uint>(0, limit - 1)(random_); }

  void append_character(Bytes* out) {
    uchar buffer[8];
    /* Random bytes: the list lacks most characters of the old Asian character sets. */
    if (cs_->mbmaxlen > 1 && !(cs_->state & MY_CS_UNICODE) && below(2)) {
      const uchar two[] = {uchar(0x81 + below(0x7e)), uchar(0x40 + below(0xbf))};
      if (my_ci_charlen(cs_, two, two + 2) == 2) out->insert(out->end(), two, two + 2);
      return;
    }
    my_wc_t code = kCharacters[below(array_elements(kCharacters))];
    if (below(16) == 0) code = below(0x3000);
    if (below(64) == 0) code = below(0x110000);
    const int len = my_ci_wc_mb(cs_, code, buffer, buffer + sizeof(buffer));
    if (len > 0) out->insert(out->end(), buffer, buffer + len);
    /* A single-byte character set may lack the character: take any byte instead. */
    else if (cs_->mbmaxlen == 1)
      out->push_back(uchar(below(256)));
  }

  Bytes make(bool malformed) {
    Bytes text;
    const uint characters = below(7);
    for (uint i = 0; i < characters; i++) {
      append_character(&text);
      if (malformed && below(3) == 0) text.push_back(uchar(below(256)));
    }
    return text;
  }

  /* A string similar to `text`, because most differences and most bugs are small. */
  Bytes variation(const Bytes& text) {
    Bytes other(text.begin(), text.begin() + std::ptrdiff_t(well_formed(text, below(uint(text.size()) + 1))));
    Bytes rest(text.begin() + std::ptrdiff_t(other.size()), text.end());
    switch (below(5)) {
      case 0:
        append_character(&other);
        break;
      case 1:
        other.insert(other.end(), collation_.pad, collation_.pad + collation_.pad_len);
        break;
      case 2:
        rest.clear();
        append_character(&other);
        break;
      case 3:
        rest.clear();
        break;
      default:
        append_character(&other);
        rest.erase(rest.begin(), rest.begin() + std::ptrdiff_t(MY_MIN(rest.size(), size_t(cs_->mbminlen))));
        break;
    }
    other.insert(other.end(), rest.begin(), rest.end());
    return other;
  }

  size_t well_formed(const Bytes& text, size_t len) const {
    MY_STRCOPY_STATUS status;
    const char* begin = reinterpret_cast<const char*>(text.data());
    my_ci_well_formed_char_length(cs_, begin, begin + len, len, &status);
    return size_t(status.m_source_end_pos - begin);
  }

  bool whole(const Bytes& text) const { return well_formed(text, text.size()) == text.size(); }

  Bytes key(const Bytes& text, const firn_collation& collation, uint chars) const {
    Bytes out(64);
    for (;;) {
      const size_t len =
          firn_text_key(&collation, firn::collator(), text.data(), text.size(), chars, out.data(), out.size());
      const bool fits = len <= out.size();
      out.resize(len);
      if (fits) return out;
    }
  }

  bool agree(const Bytes& a, const Bytes& b, uint chars, int expected, const char* what) {
    const Bytes a_key = key(a, collation_, chars), b_key = key(b, collation_, chars);
    const size_t common = MY_MIN(a_key.size(), b_key.size());
    const int order = memcmp(a_key.data(), b_key.data(), common);
    const bool prefix = order == 0 && a_key.size() != b_key.size();
    const bool same = (order > 0) - (order < 0) == (expected > 0) - (expected < 0);
    const bool shortcut = a_key == key(a, slow_, chars);
    if (expected == 0) equal_++;
    if (same && !prefix && shortcut && !a_key.empty()) return true;
    wrong_ = std::string("WRONG ") + what + " " + hex(a) + " " + hex(b) + " server " + std::to_string(expected) +
             " keys " + hex(a_key) + " " + hex(b_key) + (prefix ? " prefix" : "") + (shortcut ? "" : " shortcut");
    return false;
  }

  bool varchar(const Bytes& a, const Bytes& b) {
    if (!whole(a) || !whole(b)) malformed_++;
    return agree(a, b, 0, expected(a, b, 0), "VARCHAR");
  }

  /* Compares the strings as in a CHAR column, padded with spaces to the width of the column. */
  bool fixed(Bytes a, Bytes b) {
    const size_t field = kCharLength * cs_->mbmaxlen;
    for (Bytes* text : {&a, &b}) {
      const char* begin = reinterpret_cast<const char*>(text->data());
      if (cs_->numchars(begin, begin + text->size()) > kCharLength || text->size() > field) return true;
      *text = padded(*text);
    }
    return agree(a, b, kCharLength, expected(a, b, kCharLength), "CHAR");
  }

  static std::string hex(const Bytes& bytes) {
    std::string out = "x'";
    char digits[3];
    for (uchar byte : bytes) {
      snprintf(digits, sizeof(digits), "%02x", byte);
      out += digits;
    }
    return out + "'";
  }

  CHARSET_INFO* cs_;
  firn_collation collation_, slow_;
  std::mt19937_64 random_;
  ulonglong equal_ = 0, malformed_ = 0;
  std::string wrong_;
};

std::string check(const char* name, ulonglong pairs, ulonglong seed) {
  CHARSET_INFO* cs = get_charset_by_name(name, MYF(0));
  if (!cs) return "unknown collation";
  firn_collation collation;
  if (const char* why = firn::describe_collation(cs, &collation)) return std::string("refused: ") + why;
  return Check(cs, collation, seed).run(pairs);
}

}  // namespace

extern "C" {

my_bool firn_check_collation_init(UDF_INIT* init, UDF_ARGS* args, char* message) {
  if (args->arg_count != 3) {
    strcpy(message, "name, number of pairs, seed");
    return 1;
  }
  args->arg_type[0] = STRING_RESULT;
  args->arg_type[1] = args->arg_type[2] = INT_RESULT;
  init->max_length = 4096;
  init->ptr = nullptr;
  return 0;
}

char* firn_check_collation(UDF_INIT* init, UDF_ARGS* args, char*, unsigned long* length, char*, char*) {
  const std::string name(args->args[0], args->lengths[0]);
  const std::string result =
      check(name.c_str(), *reinterpret_cast<longlong*>(args->args[1]), *reinterpret_cast<longlong*>(args->args[2]));
  free(init->ptr);
  init->ptr = strdup(result.c_str());
  *length = result.size();
  return init->ptr;
}

void firn_check_collation_deinit(UDF_INIT* init) { free(init->ptr); }
}
