/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* Reads the text of a SELECT to find columns of which the statement needs only a part. */

#include "select_parser.h"

#include <algorithm>
#include <cstring>

namespace firn {
namespace {

/* Longer statements are not parsed: that would cost more than reading a value. */
constexpr size_t kTextMax = 16384;

enum class TokenKind { kWord, kQuotedName, kNumber, kString, kSign, kEnd };

struct Token {
  TokenKind kind;
  std::string_view text;
  /* No space separates it from the token before. */
  bool adjacent;
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }

/* Compares names as the server does, as far as they are ASCII. */
bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

template <size_t N>
bool is_one_of(std::string_view word, const char* const (&words)[N]) {
  return std::any_of(words, words + N, [&](const char* known) { return same(word, known); });
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/*
  Splits the text into tokens. Refuses comments, backslashes, variables, and everything else to
  which a sql_mode or a version could give another meaning.
*/
bool split(std::string_view text, bool multibyte_is_safe, std::vector<Token>* tokens) {
  size_t at = 0;
  bool adjacent = false;
  while (at < text.size()) {
    const char c = text[at];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      adjacent = false;
      at++;
      continue;
    }
    TokenKind kind = TokenKind::kSign;
    size_t end = at + 1;
    std::string_view inner = text.substr(at, 1);
    if (is_word(c)) {
      while (end < text.size() && is_word(text[end])) end++;
      inner = text.substr(at, end - at);
      kind = std::all_of(inner.begin(), inner.end(), is_digit) ? TokenKind::kNumber : TokenKind::kWord;
    } else if (c == '\'' || c == '"' || c == '`') {
      while (end < text.size() && text[end] != c) {
        const unsigned char byte = static_cast<unsigned char>(text[end]);
        /* Names are compared as ASCII. In ANSI_QUOTES mode, double quotes enclose names too. */
        if (byte == '\\' || byte == 0 || (byte >= 0x80 && (c != '\'' || !multibyte_is_safe))) return false;
        end++;
      }
      if (end == text.size()) return false;
      inner = text.substr(at + 1, end - at - 1);
      end++;
      /* A doubled quote. */
      if (end < text.size() && text[end] == c) return false;
      kind = c == '`' ? TokenKind::kQuotedName : TokenKind::kString;
    } else if (!strchr("(),.=<>!+-*/%;", c) || c == 0) {
      return false;
    } else if (at + 1 < text.size() && ((c == '-' && text[at + 1] == '-') || (c == '/' && text[at + 1] == '*'))) {
      return false;
    }
    tokens->push_back({kind, inner, adjacent});
    adjacent = true;
    at = end;
  }
  tokens->push_back({TokenKind::kEnd, {}, false});
  return true;
}

/* Functions whose result follows from the length of a value, or from whether it is NULL. */
const char* const kOfLength[] = {"length", "octet_length", "bit_length", "count"};
/* Functions whose result follows from the beginning of a value. */
const char* const kOfBeginning[] = {"substring", "substr", "mid"};
const char* const kAggregates[] = {"count", "sum", "min", "max", "avg"};
/*
  Functions of the server that only compute. Without a schema in front, these names never mean
  stored functions.
*/
const char* const kFunctions[] = {"length", "octet_length", "bit_length", "substring",   "substr", "mid",
                                  "left",   "right",        "lower",      "upper",       "concat", "hex",
                                  "md5",    "if",           "ifnull",     "char_length", "abs",    "mod",
                                  "round",  "floor",        "ceiling",    "coalesce",    "crc32",  "sign"};
const char* const kOperators[] = {"and",  "or",   "xor",     "not", "in",   "is",
                                  "null", "like", "between", "div", "true", "false"};
const char* const kAfterTable[] = {"where", "order", "limit"};
/*
  Keywords of clauses. If unquoted, they are never taken for a column, even if the table has one of
  that name.
*/
const char* const kOtherClauses[] = {
    "all",       "as",       "asc",           "binary",  "by",        "case",          "collate", "cross",
    "desc",      "distinct", "distinctrow",   "else",    "except",    "exists",        "for",     "from",
    "group",     "having",   "high_priority", "inner",   "intersect", "interval",      "into",    "join",
    "left",      "limit",    "lock",          "natural", "on",        "order",         "over",    "partition",
    "procedure", "right",    "rlike",         "regexp",  "select",    "straight_join", "then",    "union",
    "using",     "values",   "when",          "where",   "window",    "with"};

class SelectParser {
 public:
  SelectParser(const std::vector<Token>& tokens, SelectedTable* table) : tokens_(tokens), table_(*table) {}

  bool read() {
    if (!is_keyword(0, "select")) return false;
    const size_t from = find_from();
    if (!from) return false;
    size_t at = from + 1;
    if (!read_table(&at)) return false;
    if (!read_expressions(1, from, true)) return false;
    if (aggregates_ && bare_column_) return false;
    if (is_keyword(at, "where")) {
      const size_t begin = ++at;
      while (at < last() && !is_keyword(at, "order") && !is_keyword(at, "limit")) at++;
      if (at == begin || !read_expressions(begin, at, false)) return false;
    }
    if (is_keyword(at, "order") && !read_order(&at)) return false;
    if (is_keyword(at, "limit") && !read_limit(&at)) return false;
    if (is_sign(at, ';')) at++;
    return at == last();
  }

 private:
  size_t last() const { return tokens_.size() - 1; }
  const Token& token(size_t at) const { return tokens_[std::min(at, last())]; }
  bool is_keyword(size_t at, const char* word) const {
    return token(at).kind == TokenKind::kWord && same(token(at).text, word);
  }
  bool is_sign(size_t at, char sign) const { return token(at).kind == TokenKind::kSign && token(at).text[0] == sign; }
  bool is_number(size_t at) const { return token(at).kind == TokenKind::kNumber && token(at).text.size() <= 9; }
  bool is_name(size_t at) const {
    return token(at).kind == TokenKind::kWord || token(at).kind == TokenKind::kQuotedName;
  }
  bool is_function(size_t at) const {
    return token(at).kind == TokenKind::kWord && is_sign(at + 1, '(') && token(at + 1).adjacent;
  }

  uint64_t number(size_t at) const {
    uint64_t value = 0;
    for (char digit : token(at).text) value = value * 10 + uint64_t(digit - '0');
    return value;
  }

  ColumnNeed* column(std::string_view name) const {
    for (ColumnNeed& column : table_.columns)
      if (same(column.name, name)) return &column;
    return nullptr;
  }

  /* Index of the statement's FROM, not of that in SUBSTRING(… FROM …); 0 if there is none. */
  size_t find_from() const {
    int depth = 0;
    for (size_t at = 1; at < last(); at++) {
      if (is_sign(at, '(')) depth++;
      if (is_sign(at, ')')) depth--;
      if (depth == 0 && is_keyword(at, "from")) return at;
    }
    return 0;
  }

  /*
    Reads the one table. It must be this table by its own name: another name, or another schema, may
    be a view of it.
  */
  bool read_table(size_t* at) {
    std::string_view schema = table_.current_schema;
    if (!is_name(*at)) return false;
    if (is_sign(*at + 1, '.')) {
      schema = token(*at).text;
      *at += 2;
      if (!is_name(*at)) return false;
    }
    if (schema != table_.schema || token(*at).text != table_.name) return false;
    alias_ = token((*at)++).text;
    const bool as = is_keyword(*at, "as");
    if (as) ++*at;
    const bool ends = token(*at).kind == TokenKind::kWord && is_one_of(token(*at).text, kAfterTable);
    if (is_name(*at) && !ends)
      alias_ = token((*at)++).text;
    else if (as)
      return false;
    return true;
  }

  /* Reads a column, with or without its table in front, and moves `at` behind it. */
  ColumnNeed* take_column(size_t* at) const {
    if (!is_name(*at)) return nullptr;
    size_t name = *at;
    if (is_sign(name + 1, '.')) {
      if (token(name).text != alias_) return nullptr;
      name += 2;
      if (!is_name(name)) return nullptr;
    }
    if (is_sign(name + 1, '.') || is_sign(name + 1, '(')) return nullptr;
    if (token(name).kind == TokenKind::kWord && is_one_of(token(name).text, kOtherClauses)) return nullptr;
    ColumnNeed* const found = column(token(name).text);
    if (found) *at = name + 1;
    return found;
  }

  /*
    If `at` is a function whose result follows from a part of a column, notes the need and moves
    `at` behind the function.
  */
  bool take_part(size_t* at) const {
    const std::string_view function = token(*at).text;
    size_t end = *at + 2;
    ColumnNeed* const of = take_column(&end);
    if (!of) return false;
    uint64_t chars = 0;
    const bool length = is_one_of(function, kOfLength);
    if (same(function, "left")) {
      if (!is_sign(end, ',') || !is_number(end + 1)) return false;
      chars = number(end + 1);
      end += 2;
    } else if (is_one_of(function, kOfBeginning)) {
      const bool commas = is_sign(end, ',') && is_sign(end + 2, ',');
      const bool words = is_keyword(end, "from") && is_keyword(end + 2, "for");
      if (!(commas || words) || !is_number(end + 1) || !is_number(end + 3) || number(end + 1) == 0) return false;
      chars = number(end + 1) - 1 + number(end + 3);
      end += 4;
    } else if (!length) {
      return false;
    }
    if (!is_sign(end, ')')) return false;
    if (length || chars == 0) of->length = true;
    of->chars = std::max(of->chars, chars);
    *at = end + 1;
    return true;
  }

  /*
    Whether an expression begins at `at`, so that no operator to the left takes what stands there as
    its operand.
  */
  bool begins_expression(size_t at, size_t begin) const {
    if (at == begin || is_sign(at - 1, '(') || is_sign(at - 1, ',') || is_keyword(at - 1, "or")) return true;
    return is_keyword(at - 1, "and") && !between_;
  }

  /* Whether `at` ends a value: a * behind it multiplies, and a name behind it is an alias. */
  bool ends_value(size_t at) const { return token(at).kind != TokenKind::kSign ? !is_operator(at) : is_sign(at, ')'); }
  bool is_operator(size_t at) const {
    return token(at).kind == TokenKind::kWord && is_one_of(token(at).text, kOperators);
  }

  /* Reads the tokens from `begin` to `end`: the select list, or a condition. */
  bool read_expressions(size_t begin, size_t end, bool list) {
    between_ = false;
    for (size_t at = begin; at < end; at++) between_ |= is_keyword(at, "between");
    int depth = 0, aggregate = 0;
    size_t at = begin;
    while (at < end) {
      const Token& now = token(at);
      switch (now.kind) {
        case TokenKind::kNumber:
          at++;
          if (is_sign(at, '.') && token(at + 1).kind == TokenKind::kNumber) at += 2;
          continue;
        case TokenKind::kString:
          /* In ANSI_QUOTES mode this string would be a column's name, so refuse it if it is one. */
          if (column(now.text)) return false;
          at++;
          continue;
        case TokenKind::kSign:
          if (now.text[0] == '(') depth++;
          if (now.text[0] == ')' && --depth < 0) return false;
          if (depth < aggregate) aggregate = 0;
          if (now.text[0] == '*' && (at == begin || !ends_value(at - 1))) return false;
          if (now.text[0] == '.' || now.text[0] == ';') return false;
          at++;
          continue;
        case TokenKind::kWord:
          if (is_operator(at)) {
            at++;
            continue;
          }
          if (is_function(at)) {
            if (is_one_of(now.text, kAggregates)) {
              if (!list || aggregate) return false;
              aggregates_ = true;
              if (same(now.text, "count") && is_sign(at + 2, '*') && is_sign(at + 3, ')')) {
                at += 4;
                continue;
              }
              if (take_part(&at)) continue;
              aggregate = depth + 1;
            } else {
              if (!is_one_of(now.text, kFunctions)) return false;
              if (take_part(&at)) {
                bare_column_ |= !aggregate;
                continue;
              }
            }
            at++;
            continue;
          }
          if (list && depth == 0 && is_keyword(at, "as")) {
            if (!is_name(at + 1) && token(at + 1).kind != TokenKind::kString) return false;
            at += 2;
            continue;
          }
          break;
        case TokenKind::kQuotedName:
          break;
        case TokenKind::kEnd:
          return false;
      }
      const size_t name = at;
      if (ColumnNeed* const used = take_column(&at)) {
        bare_column_ |= !aggregate;
        if (is_keyword(at, "is") && is_keyword(at + 1 + is_keyword(at + 1, "not"), "null") &&
            begins_expression(name, begin))
          used->length = true;
        else
          used->whole = true;
        continue;
      }
      /* An alias in the select list. */
      const bool alias =
          list && depth == 0 && at > begin && ends_value(at - 1) && (at + 1 == end || is_sign(at + 1, ','));
      if (!alias) return false;
      at++;
    }
    return depth == 0;
  }

  /*
    Accepts ORDER BY only with columns, and needs these columns whole. A sort needs no more: it
    sorts rows of this table, and if it sorts positions instead, the server reads the rows again.
  */
  bool read_order(size_t* at) {
    if (aggregates_ || !is_keyword(*at + 1, "by")) return false;
    *at += 2;
    for (;;) {
      ColumnNeed* const by = take_column(at);
      if (!by) return false;
      by->whole = true;
      if (is_keyword(*at, "asc") || is_keyword(*at, "desc")) ++*at;
      if (!is_sign(*at, ',')) return true;
      ++*at;
    }
  }

  bool read_limit(size_t* at) {
    if (!is_number(*at + 1)) return false;
    *at += 2;
    if (!is_sign(*at, ',') && !is_keyword(*at, "offset")) return true;
    if (!is_number(*at + 1)) return false;
    *at += 2;
    return true;
  }

  const std::vector<Token>& tokens_;
  SelectedTable& table_;
  std::string_view alias_;
  bool aggregates_ = false;
  /*
    The select list has a column outside of aggregates. With an aggregate beside it the statement is
    refused: the server then shows a value from any one row.
  */
  bool bare_column_ = false;
  /*
    The expressions contain a BETWEEN, so an AND may belong to it and need not join two conditions.
  */
  bool between_ = false;
};

}  // namespace

bool may_use_parts(std::string_view text) {
  if (text.size() > kTextMax) return false;
  for (size_t at = 0; at < text.size(); at++)
    if (text[at] == '(' || (lower(text[at]) == 'i' && at + 1 < text.size() && lower(text[at + 1]) == 's')) return true;
  return false;
}

bool parse_select(std::string_view text, bool multibyte_is_safe, SelectedTable* table) {
  std::vector<Token> tokens;
  if (text.size() > kTextMax || !split(text, multibyte_is_safe, &tokens)) return false;
  return SelectParser(tokens, table).read();
}

}  // namespace firn
