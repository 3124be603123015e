#include <algorithm>
#include <utility>

#include "grammar/schema_shape.h"

namespace nibble::grammar {
namespace {

constexpr size_t kMostFormulas = 20'000;
constexpr size_t kMostShapes = 64;  // of arrays, and of objects
constexpr int kMostDepth = 200;     // formulas inside one another without a value between
constexpr int kEmptinessDepth = 4;

std::unexpected<Error> TooMuch() {
  return BadInput("the combinations of its allOf, anyOf, oneOf, not and if are too many");
}

int64_t SmallerMax(int64_t a, int64_t b) {
  if (a == kUnbounded) return b;
  return b == kUnbounded ? a : std::min(a, b);
}

Result<std::optional<CharDfa>> MeetNames(const std::optional<CharDfa>& a,
                                         const std::optional<CharDfa>& b) {
  if (!a) return b;
  if (!b) return a;
  NIBBLE_TRY(CharDfa both, a->Intersect(*b));
  return std::optional(std::move(both));
}

}  // namespace

const ObjectShape::Member* ObjectShape::Find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &Member::name);
  return found == members.end() ? nullptr : &*found;
}

Formulas::Formulas(const SchemaDocument& document, const SchemaOptions& options)
    : document_(document), options_(options) {
  anything_ = Make({.kind = Kind::kAnything, .parts = {}});
  nothing_ = Make({.kind = Kind::kNothing, .parts = {}});
}

Formula Formulas::Make(Node node) {
  const Key key{{node.kind, node.json}, node.parts};
  const auto [found, is_new] = index_.try_emplace(key, static_cast<Formula>(nodes_.size()));
  if (is_new) {
    nodes_.push_back(std::move(node));
    open_.push_back(false);
  }
  return found->second;
}

Formula Formulas::Schema(const SchemaJson& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? anything_ : nothing_;
  if (schema.is_object() && schema.empty()) return anything_;
  return Make({.kind = Kind::kSchema, .json = &schema, .parts = {}});
}

Formula Formulas::Value(const SchemaJson& value) {
  return Make({.kind = Kind::kValue, .json = &value, .parts = {}});
}

Formula Formulas::And(Formula a, Formula b) {
  std::vector<Formula> parts;
  for (const Formula f : {a, b}) {
    const Node& node = At(f);
    if (node.kind == Kind::kNothing) return nothing_;
    if (node.kind == Kind::kAnything) continue;
    if (node.kind == Kind::kAnd) {
      parts.insert(parts.end(), node.parts.begin(), node.parts.end());
    } else {
      parts.push_back(f);
    }
  }
  std::ranges::sort(parts);
  const auto repeated = std::ranges::unique(parts);
  parts.erase(repeated.begin(), repeated.end());
  if (parts.empty()) return anything_;
  if (parts.size() == 1) return parts.front();
  return Make({.kind = Kind::kAnd, .parts = std::move(parts)});
}

Formula Formulas::Not(Formula f) {
  const Node& node = At(f);
  if (node.kind == Kind::kAnything) return nothing_;
  if (node.kind == Kind::kNothing) return anything_;
  if (node.kind == Kind::kNot) return node.parts.front();
  return Make({.kind = Kind::kNot, .parts = {f}});
}

ObjectShape Formulas::AnyObject() const {
  ObjectShape object;
  object.others.push_back({.names = {}, .value = anything_});
  return object;
}

Shape Formulas::Everything() const {
  Shape shape;
  shape.null = shape.true_value = shape.false_value = shape.strings = true;
  shape.number = NumberSet::All();
  shape.arrays.push_back(AnyArray());
  shape.objects.push_back(AnyObject());
  return shape;
}

Result<Shape> Formulas::Expand(Formula f) {
  if (const auto known = known_.find(f); known != known_.end()) return known->second;
  if (nodes_.size() > kMostFormulas) return TooMuch();
  const auto i = static_cast<uint32_t>(f);
  if (open_[i]) return BadInput("a schema refers to itself with no value in between");
  if (depth_ > kMostDepth) return BadInput("schemas lead to schemas more than {} deep", kMostDepth);
  open_[i] = true;
  ++depth_;
  const Node node = At(f);  // a copy: the list grows
  Result<Shape> shape = ExpandNode(node);
  --depth_;
  open_[i] = false;
  if (shape) known_.emplace(f, *shape);
  return shape;
}

Result<Shape> Formulas::ExpandNode(const Node& node) {
  switch (node.kind) {
    case Kind::kAnything:
      return Everything();
    case Kind::kNothing:
      return Shape{};
    case Kind::kSchema:
      return Read(*node.json);
    case Kind::kValue:
      return ExpandValue(*node.json);
    case Kind::kNot: {
      NIBBLE_TRY(const Shape inside, Expand(node.parts.front()));
      return Complement(inside);
    }
    case Kind::kAnd:
      break;
  }
  Shape shape = Everything();
  for (const Formula part : node.parts) {
    NIBBLE_TRY(const Shape one, Expand(part));
    NIBBLE_TRY(shape, Intersect(shape, one));
  }
  return shape;
}

Result<Shape> Formulas::ExpandValue(const SchemaJson& value) {
  Shape shape;
  if (value.is_null()) {
    shape.null = true;
  } else if (value.is_boolean()) {
    (value.get<bool>() ? shape.true_value : shape.false_value) = true;
  } else if (value.is_number()) {
    NIBBLE_TRY(shape.number, NumberSet::Compared(NumberSet::Order::kEqual, value.dump()));
  } else if (value.is_string()) {
    shape.strings = true;
    shape.string = CharDfa::OfTexts({value.get<std::string>()});
  } else if (value.is_array()) {
    ArrayShape array{.first = {}, .rest = nothing_, .contains = {}};
    for (const SchemaJson& item : value) array.first.push_back(Value(item));
    array.min = array.max = static_cast<int64_t>(value.size());
    shape.arrays.push_back(std::move(array));
  } else {
    ObjectShape object;
    for (const auto& [name, member] : value.items()) {
      object.members.push_back({name, Value(member), true});
    }
    shape.objects.push_back(std::move(object));
  }
  return shape;
}

Result<Shape> Formulas::Intersect(const Shape& a, const Shape& b) {
  Shape out;
  out.null = a.null && b.null;
  out.true_value = a.true_value && b.true_value;
  out.false_value = a.false_value && b.false_value;
  NIBBLE_TRY(out.number, a.number.Intersect(b.number));
  out.strings = a.strings && b.strings;
  if (out.strings) {
    NIBBLE_TRY(out.string, MeetNames(a.string, b.string));
    if (out.string && out.string->IsEmpty()) {
      out.strings = false;
      out.string.reset();
    }
  }
  for (const ArrayShape& x : a.arrays) {
    for (const ArrayShape& y : b.arrays) {
      NIBBLE_TRY(ArrayShape both, Meet(x, y));
      if (both.max != kUnbounded && both.max < both.min) continue;
      out.arrays.push_back(std::move(both));
    }
  }
  for (const ObjectShape& x : a.objects) {
    for (const ObjectShape& y : b.objects) {
      NIBBLE_TRY(ObjectShape both, Meet(x, y));
      const bool impossible = (both.max != kUnbounded && both.max < both.min) ||
                              std::ranges::any_of(both.members, [&](const ObjectShape::Member& m) {
                                return m.required && m.value == nothing_;
                              });
      if (!impossible) out.objects.push_back(std::move(both));
    }
  }
  if (out.arrays.size() > kMostShapes || out.objects.size() > kMostShapes) return TooMuch();
  return out;
}

Result<Shape> Formulas::Unite(const Shape& a, const Shape& b) {
  Shape out;
  out.null = a.null || b.null;
  out.true_value = a.true_value || b.true_value;
  out.false_value = a.false_value || b.false_value;
  NIBBLE_TRY(out.number, a.number.Unite(b.number));
  out.strings = a.strings || b.strings;
  if (a.strings && b.strings) {
    if (a.string && b.string) {
      NIBBLE_TRY(out.string, a.string->Unite(*b.string));
    }
  } else {
    out.string = a.strings ? a.string : b.string;
  }
  out.arrays = a.arrays;
  out.arrays.insert(out.arrays.end(), b.arrays.begin(), b.arrays.end());
  out.objects = a.objects;
  out.objects.insert(out.objects.end(), b.objects.begin(), b.objects.end());
  return out;
}

Result<Shape> Formulas::Complement(const Shape& shape) {
  Shape out;
  out.null = !shape.null;
  out.true_value = !shape.true_value;
  out.false_value = !shape.false_value;
  if (shape.number.IsEmpty()) {
    out.number = NumberSet::All();
  } else if (!shape.number.IsAll()) {
    NIBBLE_TRY(out.number, shape.number.Complement());
  }
  if (!shape.strings) {
    out.strings = true;
  } else if (shape.string) {
    out.string = shape.string->Complement();
    out.strings = !out.string->IsEmpty();
  }
  Shape lists;  // only its arrays and objects count
  lists.arrays.push_back(AnyArray());
  lists.objects.push_back(AnyObject());
  for (const ArrayShape& array : shape.arrays) {
    Shape without;
    NIBBLE_TRY(without.arrays, Without(array));
    without.objects.push_back(AnyObject());
    NIBBLE_TRY(lists, Intersect(lists, without));
  }
  for (const ObjectShape& object : shape.objects) {
    Shape without;
    NIBBLE_TRY(without.objects, Without(object));
    without.arrays.push_back(AnyArray());
    NIBBLE_TRY(lists, Intersect(lists, without));
  }
  out.arrays = std::move(lists.arrays);
  out.objects = std::move(lists.objects);
  return out;
}

Result<ArrayShape> Formulas::Meet(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  const size_t first = std::max(a.first.size(), b.first.size());
  for (size_t i = 0; i < first; ++i) {
    out.first.push_back(
        And(i < a.first.size() ? a.first[i] : a.rest, i < b.first.size() ? b.first[i] : b.rest));
  }
  out.rest = And(a.rest, b.rest);
  out.contains = a.contains;
  for (const Formula f : b.contains) {
    if (std::ranges::find(out.contains, f) == out.contains.end()) out.contains.push_back(f);
  }
  out.min = std::max(a.min, b.min);
  out.max = SmallerMax(a.max, b.max);
  return out;
}

// What a name that is not among the members may hold.
Formula Formulas::NameIn(const ObjectShape& object, const std::string& name) const {
  for (const ObjectShape::Others& others : object.others) {
    if (!others.names || others.names->Contains(name)) return others.value;
  }
  return nothing_;
}

Result<ObjectShape> Formulas::Meet(const ObjectShape& a, const ObjectShape& b) {
  ObjectShape out;
  for (const ObjectShape::Member& member : a.members) {
    const ObjectShape::Member* other = b.Find(member.name);
    out.members.push_back(
        {member.name, And(member.value, other != nullptr ? other->value : NameIn(b, member.name)),
         member.required || (other != nullptr && other->required)});
  }
  for (const ObjectShape::Member& member : b.members) {
    if (a.Find(member.name) != nullptr) continue;
    out.members.push_back(
        {member.name, And(NameIn(a, member.name), member.value), member.required});
  }
  for (const ObjectShape::Others& x : a.others) {
    for (const ObjectShape::Others& y : b.others) {
      ObjectShape::Others both{.names = {}, .value = And(x.value, y.value)};
      if (both.value == nothing_) continue;
      NIBBLE_TRY(both.names, MeetNames(x.names, y.names));
      if (both.names && both.names->IsEmpty()) continue;
      out.others.push_back(std::move(both));
    }
  }
  if (out.others.size() > kMostShapes) return TooMuch();
  out.min = std::max(a.min, b.min);
  out.max = SmallerMax(a.max, b.max);
  return out;
}

// The arrays that an array shape leaves out: those that break one of its rules.
Result<std::vector<ArrayShape>> Formulas::Without(const ArrayShape& array) {
  std::vector<ArrayShape> out;
  const auto add = [&](auto change) {
    ArrayShape broken = AnyArray();
    change(broken);
    out.push_back(std::move(broken));
  };
  if (array.min > 0) add([&](ArrayShape& broken) { broken.max = array.min - 1; });
  if (array.max != kUnbounded) add([&](ArrayShape& broken) { broken.min = array.max + 1; });
  for (size_t i = 0; i < array.first.size(); ++i) {
    if (array.first[i] == anything_) continue;
    add([&](ArrayShape& broken) {
      broken.first.assign(i, anything_);
      broken.first.push_back(Not(array.first[i]));
      broken.min = static_cast<int64_t>(i) + 1;
    });
  }
  for (const Formula f : array.contains) {
    add([&](ArrayShape& broken) { broken.rest = Not(f); });
  }
  if (array.rest == anything_) return out;
  const auto count = static_cast<int64_t>(array.first.size());
  if (array.max != kUnbounded && array.max <= count) return out;  // there is no rest
  NIBBLE_TRY(const bool no_rest, SurelyEmpty(array.rest));
  if (no_rest) {
    add([&](ArrayShape& broken) { broken.min = count + 1; });
  } else if (count == 0) {
    add([&](ArrayShape& broken) { broken.contains.push_back(Not(array.rest)); });
  } else {
    return BadInput("the opposite of items behind others cannot be told");
  }
  return out;
}

Result<std::vector<ObjectShape>> Formulas::Without(const ObjectShape& object) {
  std::vector<ObjectShape> out;
  const auto add = [&](auto change) {
    ObjectShape broken = AnyObject();
    change(broken);
    out.push_back(std::move(broken));
  };
  if (object.min > 0) add([&](ObjectShape& broken) { broken.max = object.min - 1; });
  if (object.max != kUnbounded) add([&](ObjectShape& broken) { broken.min = object.max + 1; });
  for (const ObjectShape::Member& member : object.members) {
    if (member.required) {
      add([&](ObjectShape& broken) { broken.members = {{member.name, nothing_, false}}; });
    }
    if (member.value == anything_) continue;
    add([&](ObjectShape& broken) { broken.members = {{member.name, Not(member.value), true}}; });
  }
  // Some other name that breaks the rule of its class: a member that is named by its class only.
  const bool all =
      object.others.size() == 1 && !object.others[0].names && object.others[0].value == anything_;
  if (!all) return BadInput("the opposite of rules for names that are not listed cannot be told");
  return out;
}

Result<bool> Formulas::SurelyEmpty(Formula f, int depth) {
  if (f == nothing_) return true;
  if (f == anything_ || depth > kEmptinessDepth) return false;
  if (open_[static_cast<uint32_t>(f)]) return false;
  NIBBLE_TRY(const Shape shape, Expand(f));
  return SurelyEmpty(shape, depth + 1);
}

Result<bool> Formulas::SurelyEmpty(const Shape& shape, int depth) {
  if (!shape.scalars_empty()) return false;
  for (const ArrayShape& array : shape.arrays) {
    NIBBLE_TRY(const bool empty, SurelyEmpty(array, depth));
    if (!empty) return false;
  }
  for (const ObjectShape& object : shape.objects) {
    NIBBLE_TRY(const bool empty, SurelyEmpty(object, depth));
    if (!empty) return false;
  }
  return true;
}

Result<bool> Formulas::SurelyEmpty(const ArrayShape& array, int depth) {
  if (array.max != kUnbounded && array.max < array.min) return true;
  for (size_t i = 0; std::cmp_less(i, array.min); ++i) {
    const bool last = i >= array.first.size();
    NIBBLE_TRY(const bool empty, SurelyEmpty(last ? array.rest : array.first[i], depth));
    if (empty) return true;
    if (last) break;
  }
  return false;
}

Result<bool> Formulas::SurelyEmpty(const ObjectShape& object, int depth) {
  if (object.max != kUnbounded && object.max < object.min) return true;
  int64_t required = 0;
  for (const ObjectShape::Member& member : object.members) {
    if (!member.required) continue;
    ++required;
    NIBBLE_TRY(const bool empty, SurelyEmpty(member.value, depth));
    if (empty) return true;
  }
  return object.max != kUnbounded && required > object.max;
}

}  // namespace nibble::grammar
