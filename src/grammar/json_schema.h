#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "grammar/expression.h"

namespace nibble::grammar {

inline constexpr size_t kMostSchemaBytes = size_t{1} << 20;

struct SchemaOptions {
  // What a schema without $schema is: $ref stands alone in draft 7, beside others since 2019-09.
  enum class Draft : uint8_t { k7, k2020 } draft = Draft::k2020;
  // Keywords that are not supported are left out; else they are errors.
  bool best_effort = false;
  // `format` says what a string is; else it is left out, as the drafts have it unless asked.
  bool assert_formats = true;
};

// Answers that a JSON schema (draft 7 and 2020-12) takes, in one spelling each: as Python's
// json.dumps writes them, an object's declared members first and in the schema's order. Every
// answer is valid; a valid value in that spelling is an answer unless docs/constraints.md says
// otherwise. Errors name the place in the schema (a JSON pointer) and the keyword.
Result<ExprId> AddSchema(GrammarSource& source, std::string_view schema,
                         const SchemaOptions& options = {});
// The same as a grammar of its own.
Result<GrammarSource> SchemaSource(std::string_view schema, const SchemaOptions& options = {});

}  // namespace nibble::grammar
