/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Collation weights that compare as the server's strnncollsp() does. They come from its strnxfrm(),
  without its padding: the core adds what PAD SPACE and NO PAD need.

  strnxfrm() behaves differently in each family:

    UCA         Tables of the Unicode Collation Algorithm: two bytes a weight, one or more levels.
                A byte that begins no character weighs 0xffff. Contractions depend on several
                characters, so text is weighed as a whole.
    Unicode     general_ci and bin: one weight of two or three bytes a character. strnxfrm() stops
                at a byte that begins no character; strnncollsp() goes on and ranks it above all
                characters. The core does the same.
    Eight bit   One byte a character, one weight of one byte (two for 'ß' of latin1_german2_ci).
    Multi-byte  The old Asian character sets. strnxfrm() gives one to three bytes a character,
                which do not compare like weights. So each character is weighed by itself, and its
                bytes are one number: right-aligned, or left-aligned in the Japanese sets, as the
                server's comparison has it. big5_chinese_ci is different: strnxfrm() sorts
                characters of two bytes by strokes, strnncollsp() by code, which is the weight here.
    Czech       latin2_czech_cs and cp1250_czech_cs. strnncollsp() cuts the spaces at the end off
                and passes over the rest several times: letters, accents, case. A text in which a
                space or a control character follows is not compared as if the shorter one had
                spaces. The weights are those of all passes, which strnxfrm() gives if it is asked
                for no level: one sequence, in which the end is smaller than any weight.
    Thai        tis620_thai_ci. strnncollsp() and strnxfrm() swap vowels with consonants and move
                tone marks to the end of the text, behind its spaces. So spaces at the end change
                the order, and a CHAR compares as its record has it: filled with spaces.

  In all of them the weights of a text depend on this text alone, and texts compare as their weights
  do, byte by byte. So strnncollsp() is a total order, and keys of weights have the same.
  tests/collations compares keys with strnncollsp() for each collation of the server.
*/

#include "collation.h"

namespace firn {
namespace {

constexpr uint kAllWeights = UINT_MAX;
constexpr size_t kMultiByteWeight = 3;

/* The server's numbers of collations with rules of their own. Tables name collations by them. */
constexpr uint kBig5Chinese = 1;
constexpr uint kLatin2Czech = 2;
constexpr uint kTis620Thai = 18;
constexpr uint kCp1250Czech = 34;
constexpr uint kNoPad = 1024; /* added to the number of the PAD SPACE collation */

enum class Family { kUca, kUnicode, kEightBit, kMultiByte, kCzech, kThai };

Family family_of(CHARSET_INFO* cs) {
  if (cs->uca) return Family::kUca;
  if (cs->state & MY_CS_UNICODE) return Family::kUnicode;
  if (cs->mbmaxlen != 1) return Family::kMultiByte;
  switch (cs->number) {
    case kLatin2Czech:
    case kCp1250Czech:
      return Family::kCzech;
    case kTis620Thai:
    case kTis620Thai + kNoPad:
      return Family::kThai;
    default:
      return Family::kEightBit;
  }
}

/* Whether strnncollsp() ranks characters by their first byte, whatever their length. */
bool ranks_by_first_byte(CHARSET_INFO* cs) {
  for (const char* name : {"sjis", "cp932", "ujis", "eucjpms"})
    if (!strcmp(cs->cs_name.str, name)) return true;
  return false;
}

/* Whether strnncollsp() ranks characters of two bytes by their code, which strnxfrm() does not. */
bool ranks_by_code(CHARSET_INFO* cs) { return cs->number == kBig5Chinese || cs->number == kBig5Chinese + kNoPad; }

const char* chars_of(const uint8_t* text) { return reinterpret_cast<const char*>(text); }

/* Length in bytes of the part at the front of the text that consists of whole characters. */
size_t well_formed_len(CHARSET_INFO* cs, const uint8_t* text, size_t len) {
  MY_STRCOPY_STATUS status;
  my_ci_well_formed_char_length(cs, chars_of(text), chars_of(text) + len, len, &status);
  return size_t(status.m_source_end_pos - chars_of(text));
}

/*
  Returns the number of bytes written. If it is larger than `capacity`, the result is incomplete,
  and the caller must call again with that capacity. A result that nearly fills the buffer counts
  as incomplete, because strnxfrm() may have cut it short.
*/
size_t weigh(CHARSET_INFO* cs, uint level, const uint8_t* text, size_t len, uint8_t* weights, size_t capacity) {
  const uint flags = MY_STRXFRM_LEVEL1 << level;
  const size_t written = cs->coll->strnxfrm(cs, weights, capacity, kAllWeights, text, len, flags);
  return written + 4 > capacity ? 2 * capacity + 16 : written;
}

/*
  The weight of a character of an old Asian character set, which has so many bytes. No bytes follow
  it.
*/
uint32_t weigh_character(CHARSET_INFO* cs, const uint8_t* character, size_t bytes) {
  if (ranks_by_code(cs) && bytes == 2) return uint32_t(character[0]) << 8 | character[1];
  uchar weights[8];
  const size_t got = cs->coll->strnxfrm(cs, weights, sizeof(weights), kAllWeights, character, bytes, 0);
  uint32_t weight = 0;
  for (size_t i = 0; i < got; i++) weight = weight << 8 | weights[i];
  if (ranks_by_first_byte(cs)) weight <<= 8 * (kMultiByteWeight - got);
  return weight;
}

size_t weigh_characters(CHARSET_INFO* cs, const uint8_t* text, size_t len, uint8_t* weights, size_t capacity,
                        size_t* weighed) {
  size_t written = 0;
  size_t at = 0;
  while (at < len) {
    const int bytes = my_ci_charlen(cs, text + at, text + len);
    if (bytes <= 0) break;
    if (written + kMultiByteWeight > capacity) return 2 * capacity + 16;
    const uint32_t weight = weigh_character(cs, text + at, size_t(bytes));
    weights[written++] = uint8_t(weight >> 16);
    weights[written++] = uint8_t(weight >> 8);
    weights[written++] = uint8_t(weight);
    at += size_t(bytes);
  }
  *weighed = at;
  return written;
}

/*
  The weights of all passes. latin2_czech_cs ends them with a zero, which the core's mark replaces.
*/
size_t weigh_passes(CHARSET_INFO* cs, const uint8_t* text, size_t len, uint8_t* weights, size_t capacity) {
  while (len && text[len - 1] == ' ') len--;
  size_t written = cs->coll->strnxfrm(cs, weights, capacity, kAllWeights, text, len, 0);
  if (written + 4 > capacity) return 2 * capacity + 16;
  while (written && !weights[written - 1]) written--;
  return written;
}

/*
  Texts of a NO PAD collation compare as strings that end at the first NUL, except in a CHAR, which
  compares with its spaces.
*/
size_t weigh_thai(CHARSET_INFO* cs, bool filled, const uint8_t* text, size_t len, uint8_t* weights, size_t capacity) {
  const size_t written = weigh(cs, 0, text, len, weights, capacity);
  if (written > capacity || filled || !(cs->state & MY_CS_NOPAD)) return written;
  const void* nul = memchr(weights, 0, written);
  return nul ? size_t(static_cast<const uint8_t*>(nul) - weights) : written;
}

size_t sort_key(const void* handle, uint32_t level, bool filled, const uint8_t* text, size_t len, uint8_t* weights,
                size_t capacity, size_t* weighed) {
  CHARSET_INFO* cs = static_cast<CHARSET_INFO*>(handle);
  *weighed = len;
  switch (family_of(cs)) {
    case Family::kUnicode:
      *weighed = well_formed_len(cs, text, len);
      return weigh(cs, level, text, *weighed, weights, capacity);
    case Family::kMultiByte:
      return weigh_characters(cs, text, len, weights, capacity, weighed);
    case Family::kCzech:
      return weigh_passes(cs, text, len, weights, capacity);
    case Family::kThai:
      return weigh_thai(cs, filled, text, len, weights, capacity);
    case Family::kUca:
    case Family::kEightBit:
      break;
  }
  return weigh(cs, level, text, len, weights, capacity);
}

size_t prefix_len(const void* handle, const uint8_t* text, size_t len, size_t chars) {
  CHARSET_INFO* cs = static_cast<CHARSET_INFO*>(handle);
  const char* begin = chars_of(text);
  return MY_MIN(cs->charpos(begin, begin + len, chars), len);
}

size_t count_chars(const void* handle, const uint8_t* text, size_t len) {
  CHARSET_INFO* cs = static_cast<CHARSET_INFO*>(handle);
  return cs->numchars(chars_of(text), chars_of(text) + len);
}

constexpr firn_collator kCollator = {sort_key, prefix_len, count_chars};

/*
  The weight of a string as a number; false unless the string has exactly one weight, of
  `weight_len` bytes.
*/
bool weight_of(CHARSET_INFO* cs, uint level, const uint8_t* text, size_t len, size_t weight_len, uint32_t* weight) {
  uint8_t room[64];
  size_t weighed;
  const size_t written = sort_key(cs, level, false, text, len, room, sizeof(room), &weighed);
  if (weighed != len || written != weight_len) return false;
  *weight = 0;
  for (size_t i = 0; i < written; i++) *weight = *weight << 8 | room[i];
  return true;
}

bool set_levels(CHARSET_INFO* cs, firn_collation* out) {
  const bool uca = family_of(cs) == Family::kUca;
  const uint bits = uca ? cs->levels_for_order : 1;
  for (uint number = 0; bits >> number; number++) {
    if (!(bits >> number & 1)) continue;
    if (out->level_count == FIRN_LEVELS_MAX) return false;
    firn_level* level = &out->levels[out->level_count++];
    level->number = number;
    /*
      Czech texts end before their spaces. So no weight is that of a space, and a text that ends is
      smaller than one that goes on: as if it had spaces of weight 0 behind it.
    */
    if (family_of(cs) == Family::kCzech) continue;
    /*
      Levels after the first one pad even in NO PAD collations: see the server's
      strnncollsp_nopad_multilevel().
    */
    level->no_pad = number == 0 && (cs->state & MY_CS_NOPAD);
    if (!weight_of(cs, number, out->pad, out->pad_len, out->weight_len, &level->space)) return false;
  }
  return out->level_count > 0;
}

/*
  Fills the table with the weights of single bytes, with which the core weighs most text without a
  call. Collations in which a weight depends on several characters have no table. The table covers
  the bytes that are characters by themselves: all 256 of eight-bit sets, else ASCII.
*/
void set_simple_weights(CHARSET_INFO* cs, firn_collation* out) {
  const Family family = family_of(cs);
  const bool across = family == Family::kUca || family == Family::kMultiByte || family == Family::kCzech ||
                      family == Family::kThai ||
                      (family == Family::kEightBit && (cs->state & (MY_CS_STRNXFRM | MY_CS_NON1TO1)));
  if (across || cs->mbminlen != 1) return;
  const uint32_t count = family == Family::kEightBit ? 256 : 128;
  const uint32_t limit = family == Family::kEightBit ? 256 : 128;
  for (uint32_t byte = 0; byte < count; byte++) {
    const uint8_t text = uint8_t(byte);
    uint32_t weight;
    if (!weight_of(cs, 0, &text, 1, out->weight_len, &weight) || weight >= limit) return;
    out->simple[byte] = uint8_t(weight);
  }
  out->simple_len = count;
}

uint32_t weight_len_of(CHARSET_INFO* cs, const firn_collation* collation) {
  uint8_t room[64];
  size_t weighed;
  switch (family_of(cs)) {
    case Family::kUca:
      return 2;
    case Family::kUnicode:
      return uint32_t(sort_key(cs, 0, false, collation->pad, collation->pad_len, room, sizeof(room), &weighed));
    case Family::kEightBit:
    case Family::kCzech:
    case Family::kThai:
      return 1;
    case Family::kMultiByte:
      break;
  }
  return kMultiByteWeight;
}

uint32_t form_of(CHARSET_INFO* cs) {
  if (!(cs->state & MY_CS_BINSORT)) return FIRN_TEXT_LOST;
  switch (family_of(cs)) {
    case Family::kEightBit:
      return FIRN_TEXT_BYTES;
    case Family::kUnicode:
      /*
        Character sets of this family with units of one byte are UTF-8. The core cannot give back
        text in other encodings, because it does not know them.
      */
      return cs->mbminlen == 1 ? FIRN_TEXT_UTF8 : FIRN_TEXT_LOST;
    default:
      return FIRN_TEXT_LOST;
  }
}

}  // namespace

const firn_collator* collator() { return &kCollator; }

const char* describe_collation(CHARSET_INFO* cs, firn_collation* out) {
  *out = {};
  if (!(cs->state & MY_CS_COMPILED)) return "the collation is not one of the server's own";
  out->id = cs->number;
  out->name = cs->coll_name.str;
  out->handle = cs;
  const int pad = my_ci_wc_mb(cs, ' ', out->pad, out->pad + sizeof(out->pad));
  if (pad <= 0) return "the character set has no space";
  out->pad_len = uint8_t(pad);
  out->weight_len = weight_len_of(cs, out);
  if (!set_levels(cs, out)) return "the collation's weight of a space is not known";
  out->form = form_of(cs);
  out->char_filled = family_of(cs) == Family::kThai || (family_of(cs) == Family::kUca && (cs->state & MY_CS_NOPAD));
  set_simple_weights(cs, out);
  return nullptr;
}

}  // namespace firn
