#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/char_dfa.h"
#include "grammar/number_set.h"
#include "grammar/schema_document.h"

namespace nibble::grammar {

// A set of JSON values as a formula over a document's schemas; made once per meaning, so that
// equal numbers are equal sets and recursion comes back to itself.
enum class Formula : uint32_t {};

// Arrays: the first items have sets of their own, the others share one.
struct ArrayShape {
  std::vector<Formula> first;
  Formula rest{};
  std::vector<Formula> contains;  // each holds some item
  int64_t min = 0;
  int64_t max = kUnbounded;
};

// Objects: members by name, then any others whose names are in one of the classes.
struct ObjectShape {
  struct Member {
    std::string name;
    Formula value{};
    bool required = false;
  };
  struct Others {
    std::optional<CharDfa> names;  // none: all; disjoint from the other classes'
    Formula value{};
  };
  std::vector<Member> members;  // in the order in which an answer has them
  std::vector<Others> others;   // of names that no member has
  int64_t min = 0;              // members
  int64_t max = kUnbounded;

  const Member* Find(std::string_view name) const;
};

// The values of a formula by their type: a union over types, and of arrays and objects a union of
// shapes.
struct Shape {
  bool null = false;
  bool true_value = false;
  bool false_value = false;
  NumberSet number = NumberSet::None();
  bool strings = false;           // any at all
  std::optional<CharDfa> string;  // which of them; none: all
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;

  bool scalars_empty() const {
    return !null && !true_value && !false_value && number.IsEmpty() && !strings;
  }
};

// The formulas of one document, and what they stand for.
class Formulas {
 public:
  Formulas(const SchemaDocument& document, const SchemaOptions& options);

  Formula Anything() const { return anything_; }
  Formula Nothing() const { return nothing_; }
  Formula Schema(const SchemaJson& schema);  // a schema of the document, or one that lives as long
  Formula Value(const SchemaJson& value);    // one value
  Formula And(Formula a, Formula b);
  Formula Not(Formula f);

  // Errors name the place and what is not supported.
  Result<Shape> Expand(Formula f);

  // Whether it is certain that no value is in the set.
  Result<bool> SurelyEmpty(Formula f) { return SurelyEmpty(f, 0); }

  Shape Everything() const;
  Result<Shape> Intersect(const Shape& a, const Shape& b);
  Result<Shape> Unite(const Shape& a, const Shape& b);
  Result<Shape> Complement(const Shape& shape);

  size_t size() const { return nodes_.size(); }

 private:
  enum class Kind : uint8_t { kAnything, kNothing, kSchema, kValue, kAnd, kNot };
  struct Node {
    Kind kind = Kind::kAnything;
    const SchemaJson* json = nullptr;
    std::vector<Formula> parts;
  };
  using Key = std::pair<std::pair<Kind, const SchemaJson*>, std::vector<Formula>>;

  Formula Make(Node node);
  const Node& At(Formula f) const { return nodes_[static_cast<uint32_t>(f)]; }
  Result<Shape> ExpandNode(const Node& node);
  Result<Shape> ExpandValue(const SchemaJson& value);

  // schema_reader.cc: one group of keywords each, as a shape.
  Result<Shape> Read(const SchemaJson& schema);
  Result<Shape> ReadKeywords(const SchemaJson& schema);
  Result<Shape> ReadReference(const SchemaJson& schema);
  Result<Shape> ReadTypes(const SchemaJson& schema);
  Status ReadNumbers(const SchemaJson& schema, Shape& shape);
  Status ReadStrings(const SchemaJson& schema, Shape& shape);
  Status ReadArrays(const SchemaJson& schema, Shape& shape);
  Status ReadObjects(const SchemaJson& schema, Shape& shape);
  Result<std::vector<ObjectShape::Others>> ReadOtherNames(const SchemaJson& schema);
  Status ReadPropertyNames(const SchemaJson& schema, ObjectShape& object);
  Result<Shape> ReadCombined(const SchemaJson& schema, Shape shape);
  Result<Shape> ReadOneOf(const SchemaJson& schema, const SchemaJson& list);
  Result<Shape> ReadCondition(const SchemaJson& schema, Shape shape);
  Result<Shape> ReadDependencies(const SchemaJson& schema, Shape shape);
  Result<Shape> UnionOf(const std::vector<Formula>& formulas);
  Result<bool> Flag(const SchemaJson& schema, const char* keyword);
  Result<std::optional<int64_t>> Count(const SchemaJson& schema, const char* keyword);
  Result<CharDfa> PatternDfa(const SchemaJson& schema, std::string_view keyword,
                             const std::string& pattern);
  // An error, or nothing where the user has asked for what can be had.
  Status Unsupported(const SchemaJson& schema, std::string_view keyword, std::string_view why = {});
  std::unexpected<Error> Wrong(const SchemaJson& schema, std::string_view keyword,
                               std::string_view expected);

  // schema_algebra.cc
  Formula NameIn(const ObjectShape& object, const std::string& name) const;
  Result<ArrayShape> Meet(const ArrayShape& a, const ArrayShape& b);
  Result<ObjectShape> Meet(const ObjectShape& a, const ObjectShape& b);
  Result<std::vector<ArrayShape>> Without(const ArrayShape& array);
  Result<std::vector<ObjectShape>> Without(const ObjectShape& object);
  Result<bool> SurelyEmpty(Formula f, int depth);
  Result<bool> SurelyEmpty(const ArrayShape& array, int depth);
  Result<bool> SurelyEmpty(const ObjectShape& object, int depth);
  Result<bool> SurelyEmpty(const Shape& shape, int depth);
  ArrayShape AnyArray() const { return {.first = {}, .rest = anything_, .contains = {}}; }
  ObjectShape AnyObject() const;

  const SchemaDocument& document_;
  const SchemaOptions& options_;
  std::vector<Node> nodes_;
  std::map<Key, Formula> index_;
  std::vector<bool> open_;  // being expanded now
  std::map<Formula, Shape> known_;
  std::vector<std::unique_ptr<SchemaJson>> made_;  // schemas that no document has
  Formula anything_{};
  Formula nothing_{};
  int depth_ = 0;
};

}  // namespace nibble::grammar
