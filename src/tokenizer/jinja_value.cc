#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

constexpr size_t kIndexedSize = 8;

template <class T>
std::shared_ptr<T> MakeItems(std::vector<Value> items) {
  auto list = std::make_shared<T>();
  for (const Value& item : items) list->Contain(item.object());
  list->weight += int64_t(items.size());
  list->items = std::move(items);
  return list;
}

size_t Mix(size_t seed, size_t hash) {
  return seed ^ (hash + 0x9E3779B97F4A7C15u + (seed << 6) + (seed >> 2));
}

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.int_value() == b.int_value();
  const long double x = a.IsIntegral() ? (long double)a.int_value() : a.float_value();
  const long double y = b.IsIntegral() ? (long double)b.int_value() : b.float_value();
  return x == y;
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](const Value& x, const Value& y) { return SameObject(x, y) || Equal(x, y); });
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.Find(key);
    if (!other || !(SameObject(value, *other) || Equal(value, *other))) return false;
  }
  return true;
}

bool EqualRanges(const Range& a, const Range& b) {
  if (a.size != b.size) return false;
  return a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step));
}

int Sign(std::strong_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

std::optional<int> CompareItems(const std::vector<Value>& a, const std::vector<Value>& b,
                                const char* op) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!SameObject(a[i], b[i]) && !Equal(a[i], b[i])) return Compare(a[i], b[i], op);
  }
  return Sign(a.size() <=> b.size());
}

}  // namespace

void Object::Contain(const Object* part) {
  if (!part) return;
  depth = std::max(depth, part->depth + 1);
  weight += part->weight;
  if (depth > kMaxValueDepth) Raise("values nest deeper than {} levels", kMaxValueDepth);
  if (weight > kMaxValueWeight) Raise("a value has more than {} parts", kMaxValueWeight);
}

Value Value::String(std::string s, bool markup) {
  auto str = std::make_shared<Str>();
  str->weight += int64_t(s.size() / 64);
  str->text = std::move(s);
  str->markup = markup;
  return FromObject(Kind::kString, std::move(str));
}

Value Value::MakeList(std::vector<Value> items) {
  return FromObject(Kind::kList, MakeItems<List>(std::move(items)));
}

Value Value::MakeTuple(std::vector<Value> items) {
  return FromObject(Kind::kTuple, MakeItems<List>(std::move(items)));
}

Value Value::FromObject(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}

Value Value::Undefined(std::string message) {
  auto info = std::make_shared<UndefinedInfo>();
  info->message = std::move(message);
  return FromObject(Kind::kUndefined, std::move(info));
}

const std::string& Value::str() const { return As<Str>().text; }
const Str& Value::string() const { return As<Str>(); }
bool Value::IsMarkup() const { return IsString() && As<Str>().markup; }
const std::vector<Value>& Value::items() const { return As<List>().items; }
const Dict& Value::dict() const { return As<Dict>(); }
std::string Value::UndefinedMessage() const {
  return object_ ? As<UndefinedInfo>().message : "value is undefined";
}

size_t Str::Length() const {
  if (length_ == SIZE_MAX) length_ = CountCodePoints(text);
  return length_;
}

std::optional<size_t> Dict::IndexOf(const Value& key, size_t hash) const {
  if (items_.size() <= kIndexedSize) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (Equal(items_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Equal(items_[it->second].first, key)) return it->second;
  }
  return std::nullopt;
}

const Value* Dict::Find(const Value& key) const {
  const auto at = IndexOf(key, HashOf(key));
  return at ? &items_[*at].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (items_.size() > kIndexedSize) return Find(Value::String(std::string(key)));
  for (const auto& [name, value] : items_) {
    if (name.IsString() && name.str() == key) return &value;
  }
  return nullptr;
}

void Dict::Set(const Value& key, Value value) {
  const size_t hash = HashOf(key);
  Contain(key.object());
  Contain(value.object());
  if (const auto at = IndexOf(key, hash)) {
    items_[*at].second = std::move(value);
    return;
  }
  weight += 2;
  items_.emplace_back(key, std::move(value));
  if (items_.size() == kIndexedSize + 1) {
    for (size_t i = 0; i < items_.size(); ++i) index_.emplace(HashOf(items_[i].first), i);
  } else if (items_.size() > kIndexedSize) {
    index_.emplace(hash, items_.size() - 1);
  }
}

void Dict::Clear() {
  items_.clear();
  index_.clear();
  depth = 1;
  weight = 1;
}

const Value* CallArgs::FindKeyword(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<Value> CallArgs::TakeKeyword(std::string_view name) {
  for (auto it = keyword.begin(); it != keyword.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    keyword.erase(it);
    return value;
  }
  return std::nullopt;
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.IsMarkup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return value.As<List>().is_group ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kGenerator:
      return value.As<Generator>().name;
    case Kind::kDictView:
      switch (value.As<DictView>().of) {
        case ViewOf::kKeys:
          return "dict_keys";
        case ViewOf::kValues:
          return "dict_values";
        case ViewOf::kItems:
          return "dict_items";
      }
      return "dict view";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.int_value() != 0;
    case Kind::kFloat:
      return value.float_value() != 0;
    case Kind::kString:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    case Kind::kRange:
      return value.As<Range>().size != 0;
    case Kind::kDictView:
      return value.As<DictView>().dict.dict().size() != 0;
    default:
      return true;
  }
}

bool SameObject(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.object() || b.object()) {
    // CPython keeps one empty tuple and one string per character.
    return a.object() == b.object() ||
           (a.Is(Kind::kTuple) && a.items().empty() && b.items().empty());
  }
  if (a.Is(Kind::kFloat)) {
    return std::bit_cast<uint64_t>(a.float_value()) == std::bit_cast<uint64_t>(b.float_value());
  }
  return !a.IsIntegral() || a.int_value() == b.int_value();
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(a.items(), b.items());
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Kind::kRange:
      return EqualRanges(a.As<Range>(), b.As<Range>());
    default:
      return a.object() == b.object();
  }
}

std::optional<int> Compare(const Value& a, const Value& b, const char* op) {
  if (a.IsIntegral() && b.IsIntegral()) return Sign(a.int_value() <=> b.int_value());
  if (a.IsNumber() && b.IsNumber()) {
    const long double x = a.IsIntegral() ? (long double)a.int_value() : a.float_value();
    const long double y = b.IsIntegral() ? (long double)b.int_value() : b.float_value();
    if (std::isnan(x) || std::isnan(y)) return std::nullopt;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.kind() == b.kind()) {
    if (a.IsString()) return Sign(a.str().compare(b.str()) <=> 0);
    if (a.IsSequence()) return CompareItems(a.items(), b.items(), op);
  }
  for (const Value* v : {&a, &b}) {
    if (v->IsUndefined()) throw TemplateError(v->UndefinedMessage());
  }
  Raise("'{}' not supported between instances of '{}' and '{}'", op, TypeName(a), TypeName(b));
}

size_t HashOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(double(value.int_value()));
    case Kind::kFloat:
      return std::hash<double>{}(value.float_value());
    case Kind::kString:
      return std::hash<std::string>{}(value.str());
    case Kind::kTuple: {
      size_t hash = 3;
      for (const Value& item : value.items()) hash = Mix(hash, HashOf(item));
      return hash;
    }
    case Kind::kRange:
      return size_t(value.As<Range>().size);
    case Kind::kList:
    case Kind::kDict:
      Raise("unhashable type: '{}'", TypeName(value));
    default:
      return std::hash<const void*>{}(value.object());
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kGenerator:
    case Kind::kDictView:
      return true;
    default:
      return false;
  }
}

bool HasLength(const Value& value) { return IsIterable(value) && !value.Is(Kind::kGenerator); }

int64_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return int64_t(value.string().Length());
    case Kind::kList:
    case Kind::kTuple:
      return int64_t(value.items().size());
    case Kind::kDict:
      return int64_t(value.dict().size());
    case Kind::kRange:
      return value.As<Range>().size;
    case Kind::kDictView:
      return int64_t(value.As<DictView>().dict.dict().size());
    default:
      Raise("object of type '{}' has no len()", TypeName(value));
  }
}

std::function<std::optional<Value>()> Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return [] { return std::optional<Value>(); };
    case Kind::kString:
      return [value, pos = size_t{0}]() mutable -> std::optional<Value> {
        const std::string& text = value.str();
        if (pos >= text.size()) return std::nullopt;
        const size_t begin = pos;
        NextCodePoint(text, pos);
        return Value::String(text.substr(begin, pos - begin));
      };
    case Kind::kList:
    case Kind::kTuple:
      return [value, i = size_t{0}]() mutable -> std::optional<Value> {
        if (i >= value.items().size()) return std::nullopt;
        return value.items()[i++];
      };
    case Kind::kDict:
      return [value, i = size_t{0}]() mutable -> std::optional<Value> {
        if (i >= value.dict().size()) return std::nullopt;
        return value.dict().items()[i++].first;
      };
    case Kind::kRange:
      return [value, i = int64_t{0}]() mutable -> std::optional<Value> {
        const auto& range = value.As<Range>();
        if (i >= range.size) return std::nullopt;
        return Value::Int(range.start + range.step * i++);
      };
    case Kind::kGenerator:
      return [value] { return value.As<Generator>().next(); };
    case Kind::kDictView:
      return [value, i = size_t{0}]() mutable -> std::optional<Value> {
        const auto& view = value.As<DictView>();
        const auto& items = view.dict.dict().items();
        if (i >= items.size()) return std::nullopt;
        const auto& [key, item] = items[i++];
        if (view.of == ViewOf::kKeys) return key;
        return view.of == ViewOf::kValues ? item : Value::MakeTuple({key, item});
      };
    default:
      Raise("'{}' object is not iterable", TypeName(value));
  }
}

Value MakeDict(std::shared_ptr<Dict> dict) {
  return Value::FromObject(Kind::kDict, std::move(dict));
}

Value MakeFunction(std::string name, std::function<Value(Interpreter&, CallArgs&)> call) {
  auto function = std::make_shared<Function>();
  function->repr = "<function " + name + ">";
  function->name = std::move(name);
  function->call = std::move(call);
  return Value::FromObject(Kind::kFunction, std::move(function));
}

Value MakeGenerator(const Value& source, std::function<std::optional<Value>()> next) {
  auto generator = std::make_shared<Generator>();
  generator->Contain(source.object());
  generator->next = std::move(next);
  return Value::FromObject(Kind::kGenerator, std::move(generator));
}

Value UndefinedAttribute(const Value& object, const Value& name) {
  const std::string type = object.IsNone() ? "None" : TypeName(object) + " object";
  if (name.IsString()) {
    return Value::Undefined(fmt::format("'{}' has no attribute {}", type, StringRepr(name.str())));
  }
  return Value::Undefined(fmt::format("{} has no element {}", type, ToRepr(name, 4096)));
}

}  // namespace nibble::jinja
