#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "grammar/schema_shape.h"
#include "grammar/string_formats.h"

namespace nibble::grammar {
namespace {

constexpr int64_t kMostCount = 10'000;  // items and members

// Assertions of the drafts that are not told by an automaton, or not yet.
constexpr std::array<std::string_view, 7> kRefused = {
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef",
    "maxContains",           "extends",          "disallow"};

bool IsInteger(const SchemaJson& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

}  // namespace

Status Formulas::Unsupported(const SchemaJson& schema, std::string_view keyword,
                             std::string_view why) {
  if (options_.best_effort) return {};
  return BadInput("{}: '{}' is not supported{}{}", document_.PlaceOf(schema), keyword,
                  why.empty() ? "" : ": ", why);
}

std::unexpected<Error> Formulas::Wrong(const SchemaJson& schema, std::string_view keyword,
                                       std::string_view expected) {
  return BadInput("{}: '{}': expected {}", document_.PlaceOf(schema), keyword, expected);
}

Result<std::optional<int64_t>> Formulas::Count(const SchemaJson& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  if (!found->is_number() || !IsInteger(*found) || found->get<double>() < 0) {
    return Wrong(schema, keyword, "a whole number of at least 0");
  }
  return static_cast<int64_t>(std::min(found->get<double>(), 1e9));
}

Result<Shape> Formulas::Read(const SchemaJson& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? Everything() : Shape{};
  if (!schema.is_object()) {
    return BadInput("{}: expected a schema, found {}", document_.PlaceOf(schema),
                    Quoted(schema.dump(-1, ' ', false, SchemaJson::error_handler_t::replace)));
  }
  if (document_.ref_stands_alone() && schema.contains("$ref") && schema["$ref"].is_string()) {
    return ReadReference(schema);
  }
  auto shape = ReadKeywords(schema);
  if (!shape && shape.error().message.find('#') != 0) {
    return Within(document_.PlaceOf(schema), shape.error());
  }
  return shape;
}

Result<Shape> Formulas::ReadReference(const SchemaJson& schema) {
  const auto target = document_.Resolve(schema, schema["$ref"].get_ref<const std::string&>());
  if (!target) return Within(document_.PlaceOf(schema), target.error());
  return Expand(Schema(**target));
}

Result<Shape> Formulas::ReadKeywords(const SchemaJson& schema) {
  for (const std::string_view keyword : kRefused) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || (found->is_boolean() && found->get<bool>())) continue;
    NIBBLE_RETURN_IF_ERROR(Unsupported(schema, keyword));
  }
  // Assertions up to draft 7, remarks since.
  for (const char* keyword : {"contentEncoding", "contentMediaType"}) {
    if (document_.ref_stands_alone() && schema.contains(keyword)) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, keyword, "it is asserted in draft 7"));
    }
  }
  NIBBLE_TRY(Shape shape, ReadTypes(schema));
  NIBBLE_RETURN_IF_ERROR(ReadNumbers(schema, shape));
  NIBBLE_RETURN_IF_ERROR(ReadStrings(schema, shape));
  NIBBLE_RETURN_IF_ERROR(ReadArrays(schema, shape));
  NIBBLE_RETURN_IF_ERROR(ReadObjects(schema, shape));
  if (schema.contains("$ref") && schema["$ref"].is_string()) {
    NIBBLE_TRY(const Shape target, ReadReference(schema));
    NIBBLE_TRY(shape, Intersect(shape, target));
  }
  NIBBLE_TRY(shape, ReadCombined(schema, std::move(shape)));
  NIBBLE_TRY(shape, ReadCondition(schema, std::move(shape)));
  return ReadDependencies(schema, std::move(shape));
}

// type, const and enum.
Result<Shape> Formulas::ReadTypes(const SchemaJson& schema) {
  Shape shape = Everything();
  if (const auto type = schema.find("type"); type != schema.end()) {
    const SchemaJson list = type->is_array() ? *type : SchemaJson::array({*type});
    const Shape all = Everything();
    shape = {};
    for (const SchemaJson& one : list) {
      const std::string name = one.is_string() ? one.get<std::string>() : "";
      if (name == "null") {
        shape.null = true;
      } else if (name == "boolean") {
        shape.true_value = shape.false_value = true;
      } else if (name == "number") {
        shape.number = NumberSet::All();
      } else if (name == "integer") {
        if (!shape.number.IsAll()) shape.number = NumberSet::Integers();
      } else if (name == "string") {
        shape.strings = true;
      } else if (name == "array") {
        shape.arrays = all.arrays;
      } else if (name == "object") {
        shape.objects = all.objects;
      } else {
        return Wrong(schema, "type",
                     "null, boolean, number, integer, string, array, object, or a list of them");
      }
    }
  }
  if (const auto value = schema.find("const"); value != schema.end()) {
    NIBBLE_TRY(const Shape one, Expand(Value(*value)));
    NIBBLE_TRY(shape, Intersect(shape, one));
  }
  if (const auto values = schema.find("enum"); values != schema.end()) {
    if (!values->is_array()) return Wrong(schema, "enum", "an array");
    Shape any;
    std::vector<std::string> strings;  // at once: a union for each would take its square
    for (const SchemaJson& value : *values) {
      if (value.is_string()) {
        strings.push_back(value.get<std::string>());
        continue;
      }
      NIBBLE_TRY(const Shape one, Expand(Value(value)));
      NIBBLE_TRY(any, Unite(any, one));
    }
    if (!strings.empty()) {
      any.strings = true;
      any.string = CharDfa::OfTexts(strings);
    }
    NIBBLE_TRY(shape, Intersect(shape, any));
  }
  return shape;
}

Status Formulas::ReadNumbers(const SchemaJson& schema, Shape& shape) {
  using Order = NumberSet::Order;
  const auto bound = [&](const char* keyword, Order order) -> Status {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return {};
    if (!found->is_number()) {
      if (found->is_boolean()) return Unsupported(schema, keyword, "a boolean, as in draft 4");
      return Wrong(schema, keyword, "a number");
    }
    // What the text of the schema said beyond that is lost.
    if (found->is_number_float() && std::abs(found->get<double>()) >= 9007199254740992.0) {
      return Unsupported(schema, keyword, "a number of more than 53 bits");
    }
    const auto set = NumberSet::Compared(order, found->dump());
    if (!set) return Unsupported(schema, keyword, set.error().message);
    NIBBLE_TRY(shape.number, shape.number.Intersect(*set));
    return {};
  };
  NIBBLE_RETURN_IF_ERROR(bound("minimum", Order::kAtLeast));
  NIBBLE_RETURN_IF_ERROR(bound("exclusiveMinimum", Order::kAbove));
  NIBBLE_RETURN_IF_ERROR(bound("maximum", Order::kAtMost));
  NIBBLE_RETURN_IF_ERROR(bound("exclusiveMaximum", Order::kBelow));
  if (const auto found = schema.find("multipleOf"); found != schema.end()) {
    if (!found->is_number() || found->get<double>() <= 0) {
      return Wrong(schema, "multipleOf", "a number above 0");
    }
    const auto set = NumberSet::MultiplesOf(found->dump());
    if (!set) return Unsupported(schema, "multipleOf", set.error().message);
    NIBBLE_TRY(shape.number, shape.number.Intersect(*set));
  }
  return {};
}

Result<CharDfa> Formulas::PatternDfa(const SchemaJson& schema, std::string_view keyword,
                                     const std::string& pattern) {
  const auto fail = [&](const Error& error) {
    return BadInput("{}: '{}': the expression {} is not supported: {}", document_.PlaceOf(schema),
                    keyword, Quoted(pattern), error.message);
  };
  const auto tree = ParseRegex(pattern);
  if (!tree) return fail(tree.error());
  auto dfa = CharDfa::OfRegex(*tree, false);
  if (!dfa) return fail(dfa.error());
  return dfa;
}

Status Formulas::ReadStrings(const SchemaJson& schema, Shape& shape) {
  const auto meet = [&](const CharDfa& dfa) -> Status {
    if (!shape.strings) return {};
    Shape texts;
    texts.strings = true;
    texts.string = dfa;
    Shape own;
    own.strings = true;
    own.string = shape.string;
    NIBBLE_TRY(Shape both, Intersect(own, texts));
    shape.strings = both.strings;
    shape.string = std::move(both.string);
    return {};
  };
  NIBBLE_TRY(const auto min, Count(schema, "minLength"));
  NIBBLE_TRY(const auto max, Count(schema, "maxLength"));
  if (min.value_or(0) > 0 || max) {
    const auto length = CharDfa::OfLength(min.value_or(0), max.value_or(kUnbounded));
    if (max && *max < min.value_or(0)) {
      NIBBLE_RETURN_IF_ERROR(meet(CharDfa::Nothing()));
    } else if (!length) {
      NIBBLE_RETURN_IF_ERROR(
          Unsupported(schema, max ? "maxLength" : "minLength", length.error().message));
    } else {
      NIBBLE_RETURN_IF_ERROR(meet(*length));
    }
  }
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    if (!pattern->is_string()) return Wrong(schema, "pattern", "a string");
    const auto dfa = PatternDfa(schema, "pattern", pattern->get<std::string>());
    if (dfa) {
      NIBBLE_RETURN_IF_ERROR(meet(*dfa));
    } else if (!options_.best_effort) {
      return std::unexpected(dfa.error());
    }
  }
  if (const auto format = schema.find("format");
      format != schema.end() && options_.assert_formats) {
    if (!format->is_string()) return Wrong(schema, "format", "a string");
    const auto dfa = StringsOfFormat(format->get<std::string>());
    if (dfa) {
      NIBBLE_RETURN_IF_ERROR(meet(*dfa));
    } else {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "format", dfa.error().message));
    }
  }
  return {};
}

Status Formulas::ReadArrays(const SchemaJson& schema, Shape& shape) {
  ArrayShape array = AnyArray();
  bool said = false;
  const auto list_of = [&](const SchemaJson& list) {
    for (const SchemaJson& one : list) array.first.push_back(Schema(one));
    said = true;
  };
  const auto prefix = schema.find("prefixItems");
  const auto items = schema.find("items");
  const auto additional = schema.find("additionalItems");
  if (prefix != schema.end()) {
    if (!prefix->is_array()) return Wrong(schema, "prefixItems", "an array");
    list_of(*prefix);
  }
  if (items != schema.end() && items->is_array()) {
    list_of(*items);
    if (additional != schema.end()) array.rest = Schema(*additional);
  } else if (items != schema.end()) {
    array.rest = Schema(*items);
    said = true;
  }
  NIBBLE_TRY(const auto min, Count(schema, "minItems"));
  NIBBLE_TRY(const auto max, Count(schema, "maxItems"));
  array.min = min.value_or(0);
  array.max = max.value_or(kUnbounded);
  if (array.min > kMostCount) {
    NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "minItems", "more than 10,000"));
    array.min = 0;
  }
  if (array.max > kMostCount) {
    NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "maxItems", "more than 10,000"));
    array.max = kUnbounded;
  }
  said = said || min || max;
  if (const auto contains = schema.find("contains"); contains != schema.end()) {
    NIBBLE_TRY(const auto least, Count(schema, "minContains"));
    if (least.value_or(1) > 1) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "minContains", "more than 1"));
    }
    if (least.value_or(1) > 0) array.contains.push_back(Schema(*contains));
    said = true;
  }
  if (const auto unique = schema.find("uniqueItems"); unique != schema.end()) {
    if (!unique->is_boolean()) return Wrong(schema, "uniqueItems", "a boolean");
    // One item is like no other.
    const bool at_most_one = array.max != kUnbounded && array.max <= 1;
    if (unique->get<bool>() && !at_most_one && !shape.arrays.empty()) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "uniqueItems"));
    }
  }
  if (!said || shape.arrays.empty()) return {};
  Shape wanted;
  wanted.arrays.push_back(std::move(array));
  Shape own;
  own.arrays = std::move(shape.arrays);
  NIBBLE_TRY(Shape both, Intersect(own, wanted));
  shape.arrays = std::move(both.arrays);
  return {};
}

// Classes of names that are told apart by patternProperties; a name in none is additional.
Result<std::vector<ObjectShape::Others>> Formulas::ReadOtherNames(const SchemaJson& schema) {
  const auto additional = schema.find("additionalProperties");
  ObjectShape::Others rest{.names = {},
                           .value = additional == schema.end() ? anything_ : Schema(*additional)};
  std::vector<ObjectShape::Others> classes{rest};
  const auto patterns = schema.find("patternProperties");
  if (patterns == schema.end()) return classes;
  if (!patterns->is_object()) return Wrong(schema, "patternProperties", "an object");
  std::vector<bool> matched{false};  // per class: by some pattern
  for (const auto& [pattern, value] : patterns->items()) {
    const auto inside = PatternDfa(schema, "patternProperties", pattern);
    if (!inside) {
      if (options_.best_effort) continue;
      return std::unexpected(inside.error());
    }
    const CharDfa outside = inside->Complement();
    std::vector<ObjectShape::Others> cut;
    std::vector<bool> cut_matched;
    for (size_t i = 0; i < classes.size(); ++i) {
      for (const bool in : {true, false}) {
        const CharDfa& half = in ? *inside : outside;
        Result<CharDfa> names = classes[i].names ? classes[i].names->Intersect(half) : half;
        if (!names) return std::unexpected(names.error());
        if (names->IsEmpty()) continue;
        Formula kept = classes[i].value;
        if (in) kept = matched[i] ? And(kept, Schema(value)) : Schema(value);
        cut.push_back({.names = *std::move(names), .value = kept});
        cut_matched.push_back(in || matched[i]);
      }
    }
    classes = std::move(cut);
    matched = std::move(cut_matched);
    if (classes.size() > 64) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "patternProperties", "too many that overlap"));
      return std::vector{rest};
    }
  }
  return classes;
}

Status Formulas::ReadPropertyNames(const SchemaJson& schema, ObjectShape& object) {
  const auto names = schema.find("propertyNames");
  if (names == schema.end()) return {};
  NIBBLE_TRY(const Shape shape, Expand(Schema(*names)));
  if (shape.strings && !shape.string) return {};  // any
  const CharDfa allowed = shape.strings ? *shape.string : CharDfa::Nothing();
  for (ObjectShape::Member& member : object.members) {
    if (!allowed.Contains(member.name)) member.value = nothing_;
  }
  std::vector<ObjectShape::Others> kept;
  for (ObjectShape::Others& others : object.others) {
    Result<CharDfa> both = others.names ? others.names->Intersect(allowed) : allowed;
    if (!both) return std::unexpected(both.error());
    if (!both->IsEmpty()) kept.push_back({.names = *std::move(both), .value = others.value});
  }
  object.others = std::move(kept);
  return {};
}

Status Formulas::ReadObjects(const SchemaJson& schema, Shape& shape) {
  constexpr std::array<const char*, 7> kKeywords = {
      "properties",    "required",      "additionalProperties", "patternProperties",
      "propertyNames", "minProperties", "maxProperties"};
  const bool said =
      std::ranges::any_of(kKeywords, [&](const char* key) { return schema.contains(key); });
  if (!said || shape.objects.empty()) return {};
  ObjectShape object;
  NIBBLE_TRY(object.others, ReadOtherNames(schema));
  const SchemaJson* patterns = nullptr;
  if (const auto found = schema.find("patternProperties"); found != schema.end())
    patterns = &*found;
  if (const auto properties = schema.find("properties"); properties != schema.end()) {
    if (!properties->is_object()) return Wrong(schema, "properties", "an object");
    for (const auto& [name, value] : properties->items()) {
      Formula formula = Schema(value);
      if (patterns != nullptr) {
        for (const auto& [pattern, extra] : patterns->items()) {
          const auto dfa = PatternDfa(schema, "patternProperties", pattern);
          if (dfa && dfa->Contains(name)) formula = And(formula, Schema(extra));
        }
      }
      object.members.push_back({name, formula, false});
    }
  }
  if (const auto required = schema.find("required"); required != schema.end()) {
    if (!required->is_array()) return Wrong(schema, "required", "an array of names");
    for (const SchemaJson& name : *required) {
      if (!name.is_string()) return Wrong(schema, "required", "an array of names");
      const auto& text = name.get_ref<const std::string&>();
      const auto member = std::ranges::find(object.members, text, &ObjectShape::Member::name);
      if (member != object.members.end()) {
        member->required = true;
      } else {
        object.members.push_back({text, NameIn(object, text), true});
      }
    }
  }
  NIBBLE_RETURN_IF_ERROR(ReadPropertyNames(schema, object));
  NIBBLE_TRY(const auto min, Count(schema, "minProperties"));
  NIBBLE_TRY(const auto max, Count(schema, "maxProperties"));
  object.min = min.value_or(0);
  object.max = max.value_or(kUnbounded);
  if (object.min > kMostCount || object.max > kMostCount) {
    NIBBLE_RETURN_IF_ERROR(Unsupported(
        schema, object.min > kMostCount ? "minProperties" : "maxProperties", "more than 10,000"));
    object.min = 0;
    object.max = kUnbounded;
  }
  Shape wanted;
  wanted.objects.push_back(std::move(object));
  Shape own;
  own.objects = std::move(shape.objects);
  NIBBLE_TRY(Shape both, Intersect(own, wanted));
  shape.objects = std::move(both.objects);
  return {};
}

Result<Shape> Formulas::UnionOf(const std::vector<Formula>& formulas) {
  Shape any;
  for (const Formula f : formulas) {
    NIBBLE_TRY(const Shape one, Expand(f));
    NIBBLE_TRY(any, Unite(any, one));
  }
  return any;
}

// Exactly one: where no two have a value in common, any of them; else each without the others.
Result<Shape> Formulas::ReadOneOf(const SchemaJson& schema, const SchemaJson& list) {
  std::vector<Formula> ways;
  for (const SchemaJson& one : list) ways.push_back(Schema(one));
  bool apart = true;
  for (size_t i = 0; i < ways.size() && apart; ++i) {
    for (size_t j = i + 1; j < ways.size() && apart; ++j) {
      NIBBLE_TRY(apart, SurelyEmpty(And(ways[i], ways[j])));
    }
  }
  if (apart) return UnionOf(ways);
  Shape any;
  for (size_t i = 0; i < ways.size(); ++i) {
    Formula only = ways[i];
    for (size_t j = 0; j < ways.size(); ++j) {
      if (j != i) only = And(only, Not(ways[j]));
    }
    const auto one = Expand(only);
    if (!one) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(
          schema, "oneOf", "what two of its schemas have in common: " + one.error().message));
      return UnionOf(ways);
    }
    NIBBLE_TRY(any, Unite(any, *one));
  }
  return any;
}

// allOf, anyOf, oneOf, not.
Result<Shape> Formulas::ReadCombined(const SchemaJson& schema, Shape shape) {
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const auto list = schema.find(keyword);
    if (list == schema.end()) continue;
    if (!list->is_array() || list->empty()) return Wrong(schema, keyword, "an array of schemas");
    if (std::string_view(keyword) == "allOf") {
      for (const SchemaJson& one : *list) {
        NIBBLE_TRY(const Shape part, Expand(Schema(one)));
        NIBBLE_TRY(shape, Intersect(shape, part));
      }
      continue;
    }
    Shape any;
    if (std::string_view(keyword) == "anyOf") {
      std::vector<Formula> ways;
      for (const SchemaJson& one : *list) ways.push_back(Schema(one));
      NIBBLE_TRY(any, UnionOf(ways));
    } else {
      NIBBLE_TRY(any, ReadOneOf(schema, *list));
    }
    NIBBLE_TRY(shape, Intersect(shape, any));
  }
  if (const auto inside = schema.find("not"); inside != schema.end()) {
    const auto opposite = Expand(Not(Schema(*inside)));
    if (!opposite) {
      NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "not", opposite.error().message));
    } else {
      NIBBLE_TRY(shape, Intersect(shape, *opposite));
    }
  }
  return shape;
}

Result<Shape> Formulas::ReadCondition(const SchemaJson& schema, Shape shape) {
  const auto condition = schema.find("if");
  const auto then = schema.find("then");
  const auto otherwise = schema.find("else");
  if (condition == schema.end() || (then == schema.end() && otherwise == schema.end())) {
    return shape;
  }
  const Formula when = Schema(*condition);
  const Formula yes = then == schema.end() ? when : And(when, Schema(*then));
  const Formula no = otherwise == schema.end() ? Not(when) : And(Not(when), Schema(*otherwise));
  const auto either = UnionOf({yes, no});
  if (!either) {
    NIBBLE_RETURN_IF_ERROR(Unsupported(schema, "if", either.error().message));
    return shape;
  }
  return Intersect(shape, *either);
}

// dependencies, dependentRequired, dependentSchemas: without the name, or with what it asks for.
Result<Shape> Formulas::ReadDependencies(const SchemaJson& schema, Shape shape) {
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    if (!found->is_object()) return Wrong(schema, keyword, "an object");
    for (const auto& [name, asked] : found->items()) {
      Shape without = Everything();
      without.objects[0].members.push_back({name, nothing_, false});
      Shape with = Everything();
      with.objects[0].members.push_back({name, anything_, true});
      if (asked.is_array()) {
        for (const SchemaJson& other : asked) {
          if (!other.is_string()) return Wrong(schema, keyword, "names");
          if (with.objects[0].Find(other.get<std::string>()) != nullptr) continue;
          with.objects[0].members.push_back({other.get<std::string>(), anything_, true});
        }
      } else {
        NIBBLE_TRY(const Shape target, Expand(Schema(asked)));
        NIBBLE_TRY(with, Intersect(with, target));
      }
      // Only objects have names: all else is in `without` already.
      Shape objects;
      objects.objects = std::move(with.objects);
      NIBBLE_TRY(const Shape either, Unite(without, objects));
      NIBBLE_TRY(shape, Intersect(shape, either));
    }
  }
  return shape;
}

}  // namespace nibble::grammar
