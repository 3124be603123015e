#pragma once

#include "grammar/expression.h"

namespace nibble::grammar {

// What may stand between the parts of a JSON text.
enum class JsonSpace : uint8_t {
  kCanonical,  // as Python's json.dumps: one space behind , and : and none elsewhere
  kFew,        // nothing, one space, or a line break and at most 40 spaces or tabs
  kAny,        // everything that RFC 8259 lets stand there
};

// Rules for any JSON value, added to a grammar once.
struct JsonRules {
  RuleId value;
  RuleId object;
  RuleId array;
  RuleId string;
  RuleId number;
};

// RFC 8259. With kCanonical strings are spelled as json.dumps spells them: printable ASCII as it
// is, \" \\ \b \f \n \r \t, other control characters as \u00xx, the rest as it is or as \uxxxx
// (small letters, surrogates in pairs). With the others every spelling is taken, and numbers as
// long as they like.
JsonRules AddJsonRules(GrammarSource& source, JsonSpace space);

// One character of a JSON string out of a set, in every spelling that kCanonical has for it.
ExprId JsonCharacter(GrammarSource& source, const CodePointSet& set);

// A text as json.dumps writes it, quotes included, non-ASCII in either spelling.
ExprId JsonText(GrammarSource& source, std::string_view text);

}  // namespace nibble::grammar
