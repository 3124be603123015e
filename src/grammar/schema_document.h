#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "grammar/json_schema.h"

namespace nibble::grammar {

using SchemaJson = nlohmann::ordered_json;

// A schema's text as values with an address, and what its references lead to.
class SchemaDocument {
 public:
  // Errors: no JSON (line and column), too large, nested deeper than 100.
  static Result<SchemaDocument> Parse(std::string_view text, const SchemaOptions& options);

  const SchemaJson& root() const { return *root_; }
  bool ref_stands_alone() const { return ref_stands_alone_; }
  // The schema that a $ref in `from` leads to. Errors: another document's, or nowhere.
  Result<const SchemaJson*> Resolve(const SchemaJson& from, std::string_view ref) const;
  // "#/properties/name": where a value stands.
  std::string PlaceOf(const SchemaJson& value) const;

 private:
  void Walk(const SchemaJson& value, std::string base, const std::string& place,
            bool keys_are_names);

  std::shared_ptr<const SchemaJson> root_;
  bool ref_stands_alone_ = false;
  std::unordered_map<const SchemaJson*, std::string> bases_;     // of objects
  std::unordered_map<const SchemaJson*, std::string> places_;    // of objects and booleans
  std::map<std::string, const SchemaJson*, std::less<>> named_;  // by URI, with #anchor or without
};

// A JSON string with its quotes, for messages.
std::string Quoted(std::string_view text);

}  // namespace nibble::grammar
