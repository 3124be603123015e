#include "grammar/json_grammar.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

constexpr char32_t kFirstNonAscii = 0x7F;  // DEL, too, may be either

// Characters that json.dumps escapes by a letter.
struct ShortEscape {
  char32_t code;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

CodePointSet HexDigits(DigitRange digits) {
  CodePointSet set;
  if (digits.low < 10) set.Add('0' + digits.low, '0' + std::min<char32_t>(digits.high, 9));
  if (digits.high >= 10) {
    set.Add(static_cast<char32_t>('a' + std::max(int{digits.low}, 10) - 10),
            static_cast<char32_t>('a' + digits.high - 10));
  }
  return set;
}

void AddHex4(GrammarSource& source, uint32_t low, uint32_t high, std::vector<ExprId>& ways) {
  VisitHex4(low, high, [&](const DigitRange* digits, int count) {
    std::vector<ExprId> parts{source.Bytes("\\u")};
    for (int i = 0; i < count; ++i) parts.push_back(source.Chars(HexDigits(digits[i])));
    ways.push_back(source.Sequence(parts));
  });
}

// Characters beyond the first plane as two escapes: cut where the first one changes.
void AddPairs(GrammarSource& source, uint32_t low, uint32_t high, std::vector<ExprId>& ways) {
  const auto pair = [&](uint32_t first, uint32_t last_first, uint32_t second,
                        uint32_t last_second) {
    std::vector<ExprId> firsts;
    std::vector<ExprId> seconds;
    AddHex4(source, 0xD800 + first, 0xD800 + last_first, firsts);
    AddHex4(source, 0xDC00 + second, 0xDC00 + last_second, seconds);
    ways.push_back(source.Sequence({source.Choice(firsts), source.Choice(seconds)}));
  };
  const uint32_t a = low - 0x10000;
  const uint32_t b = high - 0x10000;
  constexpr uint32_t kLow = 0x3FF;
  uint32_t first = a >> 10;
  uint32_t last = b >> 10;
  if (first == last) return pair(first, last, a & kLow, b & kLow);
  if ((a & kLow) != 0) {
    pair(first, first, a & kLow, kLow);
    ++first;
  }
  if ((b & kLow) != kLow) {
    pair(last, last, 0, b & kLow);
    --last;
  }
  if (first <= last) pair(first, last, 0, kLow);
}

ExprId Spaces(GrammarSource& source, JsonSpace space) {
  if (space == JsonSpace::kCanonical) return source.Empty();
  if (space == JsonSpace::kAny) {
    return source.Repeat(source.Chars({{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}}), 0, kUnbounded);
  }
  const ExprId indent = source.Repeat(source.Chars({{' ', ' '}, {'\t', '\t'}}), 0, 40);
  return source.Choice(
      {source.Empty(), source.Bytes(" "), source.Sequence({source.Bytes("\n"), indent})});
}

ExprId AnyString(GrammarSource& source) {
  CodePointSet plain = CodePointSet::All();
  plain = plain.Minus({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const ExprId hex = source.Chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const ExprId letter = source.Chars({{'"', '"'},
                                      {'\\', '\\'},
                                      {'/', '/'},
                                      {'b', 'b'},
                                      {'f', 'f'},
                                      {'n', 'n'},
                                      {'r', 'r'},
                                      {'t', 't'}});
  const ExprId escape = source.Sequence(
      {source.Bytes("\\"),
       source.Choice({letter, source.Sequence({source.Bytes("u"), source.Repeat(hex, 4, 4)})})});
  return source.Choice({source.Chars(plain), escape});
}

ExprId Number(GrammarSource& source) {
  const ExprId digit = source.Chars({{'0', '9'}});
  const ExprId digits = source.Repeat(digit, 1, kUnbounded);
  const ExprId whole = source.Choice(
      {source.Bytes("0"),
       source.Sequence({source.Chars({{'1', '9'}}), source.Repeat(digit, 0, kUnbounded)})});
  const ExprId fraction = source.Sequence({source.Bytes("."), digits});
  const ExprId exponent =
      source.Sequence({source.Chars({{'e', 'e'}, {'E', 'E'}}),
                       source.Optional(source.Chars({{'+', '+'}, {'-', '-'}})), digits});
  return source.Sequence({source.Optional(source.Bytes("-")), whole, source.Optional(fraction),
                          source.Optional(exponent)});
}

}  // namespace

ExprId JsonCharacter(GrammarSource& source, const CodePointSet& set) {
  std::vector<ExprId> ways;
  // As it is.
  CodePointSet plain = set.Intersect({{0x20, kLastCodePoint}});
  plain = plain.Minus({{'"', '"'}, {'\\', '\\'}});
  if (!plain.empty()) ways.push_back(source.Chars(plain));
  CodePointSet escaped =
      set.Intersect({{0, 0x1F}, {kFirstNonAscii, 0xD7FF}, {0xE000, kLastCodePoint}});
  for (const ShortEscape& escape : kShortEscapes) {
    if (!set.Contains(escape.code)) continue;
    ways.push_back(source.Bytes({'\\', escape.letter}));
    escaped = escaped.Minus({{escape.code, escape.code}});
  }
  for (const CodePointRange& range : escaped.Ranges()) {
    if (range.low <= 0xFFFF) {
      AddHex4(source, range.low, std::min<uint32_t>(range.high, 0xFFFF), ways);
    }
    if (range.high > 0xFFFF) {
      AddPairs(source, std::max<uint32_t>(range.low, 0x10000), range.high, ways);
    }
  }
  return source.Choice(ways);
}

ExprId JsonText(GrammarSource& source, std::string_view text) {
  std::vector<ExprId> parts;
  std::string run = "\"";
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = DecodeUtf8Safely(text, at);
    if (c.code >= 0x20 && c.code < kFirstNonAscii && c.code != '"' && c.code != '\\') {
      run += static_cast<char>(c.code);
    } else {
      parts.push_back(source.Bytes(std::move(run)));
      run.clear();
      CodePointSet one;
      one.Add(c.code);
      parts.push_back(JsonCharacter(source, one));
    }
    at += c.length;
  }
  parts.push_back(source.Bytes(run + "\""));
  return source.Sequence(parts);
}

JsonRules AddJsonRules(GrammarSource& source, JsonSpace space) {
  JsonRules rules{};
  const bool canonical = space == JsonSpace::kCanonical;
  const ExprId ws = source.Use(source.AddRule("json-space", Spaces(source, space)));
  const ExprId comma = canonical ? source.Bytes(", ") : source.Sequence({source.Bytes(","), ws});
  const ExprId colon =
      canonical ? source.Bytes(": ") : source.Sequence({ws, source.Bytes(":"), ws});
  const ExprId character =
      canonical ? JsonCharacter(source, CodePointSet::All()) : AnyString(source);
  rules.string = source.AddRule(
      "json-string", source.Sequence({source.Bytes("\""), source.Repeat(character, 0, kUnbounded),
                                      source.Bytes("\"")}));
  rules.number = source.AddRule("json-number", Number(source));
  rules.value = source.Declare("json-value");
  const ExprId value = source.Use(rules.value);
  const ExprId member = source.Sequence({source.Use(rules.string), colon, value});
  const auto list = [&](const char* open, ExprId item, const char* close) {
    const ExprId more = source.Repeat(source.Sequence({ws, comma, item}), 0, kUnbounded);
    return source.Sequence({source.Bytes(open), ws,
                            source.Optional(source.Sequence({item, more, ws})),
                            source.Bytes(close)});
  };
  rules.object = source.AddRule("json-object", list("{", member, "}"));
  rules.array = source.AddRule("json-array", list("[", value, "]"));
  source.Define(rules.value,
                source.Choice({source.Use(rules.object), source.Use(rules.array),
                               source.Use(rules.string), source.Use(rules.number),
                               source.Bytes("true"), source.Bytes("false"), source.Bytes("null")}));
  return rules;
}

}  // namespace nibble::grammar
