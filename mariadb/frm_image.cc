/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "frm_image.h"
#include "table.h"
#include "unireg.h"

namespace firn {
namespace {

constexpr size_t kHead = 64;

/*
  A .frm image has a list of (type, length, value) at byte 64, and the list's size at byte 4. If a
  length byte is 0, the length follows in two bytes. Returns the value of `wanted`, empty if there
  is none.
*/
LEX_CUSTRING entry_of(const LEX_CUSTRING* frm, uchar wanted) {
  const LEX_CUSTRING none = {nullptr, 0};
  if (!frm || frm->length < kHead || frm->length - kHead < uint2korr(frm->str + 4)) return none;
  const uchar* at = frm->str + kHead;
  const uchar* const end = at + uint2korr(frm->str + 4);
  while (end - at >= 3) {
    const uchar type = *at++;
    size_t length = *at++;
    if (length == 0) {
      if (end - at < 2) return none;
      length = uint2korr(at);
      at += 2;
    }
    if (size_t(end - at) < length) return none;
    if (type == wanted) return {at, length};
    at += length;
  }
  return none;
}

}  // namespace

LEX_CUSTRING version_of(const LEX_CUSTRING* frm) { return entry_of(frm, EXTRA2_TABLEDEF_VERSION); }

LEX_CUSTRING engine_of_partitions(const LEX_CUSTRING* frm) { return entry_of(frm, EXTRA2_DEFAULT_PART_ENGINE); }

/*
  Behind the head and the keys of an image is the default record. A segment follows, of which byte
  55 has the length, with the connect string and the engine's name, each after a length of two
  bytes.
*/
LEX_CUSTRING engine_of(const LEX_CUSTRING* frm) {
  const LEX_CUSTRING none = {nullptr, 0};
  const uchar* const image = frm->str;
  if (frm->length < kHead || !is_binary_frm_header(image)) return none;
  const size_t keys = uint2korr(image + 14) == 0xffff ? uint4korr(image + 47) : uint2korr(image + 14);
  size_t at = uint2korr(image + 6) + keys + uint2korr(image + 16);
  const size_t end = MY_MIN(frm->length, at + uint4korr(image + 55));
  for (unsigned field = 0; at + 2 <= end; field++) {
    const size_t length = uint2korr(image + at);
    at += 2;
    if (length > end - at) break;
    if (field == 1) return {image + at, length};
    at += length;
  }
  return none;
}

}  // namespace firn
