#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

// Python's values as far as templates can see them. Strings, lists, tuples and dicts never change
// once they are visible (the sandbox refuses every mutating method), so values share them freely
// and only namespaces can form cycles.
namespace nibble::jinja {

// Thrown inside the engine and caught at its border (JinjaTemplate): what jinja2 raises.
struct TemplateError : std::exception {
  explicit TemplateError(std::string text) : message(std::move(text)) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
  int line = 0;  // 0: the line being evaluated
};

template <class... Args>
[[noreturn]] void Raise(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kNamespace,
  kGenerator,
  kDictView,
  kFunction,
  kLoop
};

// Containers and chains of generators nest at most this deep, so that recursion over a value and
// the destruction of it stay within the stack.
inline constexpr int kMaxValueDepth = 300;

// The values of a container, counted with repetition: [x, x] can nest to more than memory holds
// when written out, so what walks a value is bounded by refusing to build such ones.
inline constexpr int64_t kMaxValueWeight = 4'000'000;

struct Object {
  virtual ~Object() = default;
  void Contain(const Object* part);  // raises beyond the two limits
  int depth = 1;
  int64_t weight = 1;
};

struct Str;
struct List;
struct Dict;
struct Range;
struct Namespace;
struct Generator;
struct DictView;
struct Function;
struct Loop;
struct UndefinedInfo;

class Value {
 public:
  Value() = default;  // undefined
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool b) {
    Value v(Kind::kBool);
    v.int_ = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value Float(double d) {
    Value v(Kind::kFloat);
    v.float_ = d;
    return v;
  }
  static Value String(std::string s, bool markup = false);
  static Value MakeList(std::vector<Value> items);
  static Value MakeTuple(std::vector<Value> items);
  static Value FromObject(Kind kind, std::shared_ptr<Object> object);
  // An undefined value whose use raises `message`.
  static Value Undefined(std::string message);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool IsIntegral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool IsNumber() const { return IsIntegral() || kind_ == Kind::kFloat; }

  bool bool_value() const { return int_ != 0; }
  int64_t int_value() const { return int_; }  // of an int or a bool
  double float_value() const { return kind_ == Kind::kFloat ? float_ : double(int_); }
  const std::string& str() const;
  bool IsMarkup() const;
  const Str& string() const;
  const std::vector<Value>& items() const;  // of a list or tuple
  const Dict& dict() const;
  template <class T>
  T& As() const {
    return static_cast<T&>(*object_);
  }
  const Object* object() const { return object_.get(); }
  const std::shared_ptr<Object>& shared() const { return object_; }
  int64_t weight() const { return object_ ? object_->weight : 1; }
  // What using an undefined value raises.
  std::string UndefinedMessage() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct UndefinedInfo : Object {
  std::string message;
};

struct Str : Object {
  std::string text;
  bool markup = false;
  // Number of code points; counted once.
  size_t Length() const;
  bool IsAscii() const { return Length() == text.size(); }

 private:
  mutable size_t length_ = SIZE_MAX;
};

struct List : Object {
  std::vector<Value> items;
  bool is_group = false;  // groupby's (grouper, list)
};

// Insertion-ordered, with Python's key equality (1 == 1.0 == True).
struct Dict : Object {
  using Item = std::pair<Value, Value>;
  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  // Raises on an unhashable key.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);
  void Set(std::string_view key, Value value) { Set(Value::String(std::string(key)), value); }
  void Clear();

 private:
  std::optional<size_t> IndexOf(const Value& key, size_t hash) const;
  std::vector<Item> items_;
  std::unordered_multimap<size_t, size_t> index_;  // filled when there are more than 8 items
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1, size = 0;
};

struct Namespace : Object {
  Dict attributes;
};

struct Generator : Object {
  std::function<std::optional<Value>()> next;
  const char* name = "generator";
};

enum class ViewOf { kKeys, kValues, kItems };

struct DictView : Object {
  Value dict;
  ViewOf of = ViewOf::kKeys;
};

class Interpreter;

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
  const Value* FindKeyword(std::string_view name) const;
  // Removes and returns a keyword argument.
  std::optional<Value> TakeKeyword(std::string_view name);
};

// A global function, a bound method or a macro.
struct Function : Object {
  std::string name;
  std::string repr;
  std::function<Value(Interpreter&, CallArgs&)> call;
  std::function<std::optional<Value>(const std::string&)> attribute;  // may be empty
};

// Python's len() in code points, iteration and names.
std::string TypeName(const Value& value);  // "str", "dict", ...

bool Truthy(const Value& value);
bool Equal(const Value& a, const Value& b);
bool SameObject(const Value& a, const Value& b);  // Python's `is`
// Three-way order for <, <=, >, >=; raises when Python would. nullopt: unordered (NaN).
std::optional<int> Compare(const Value& a, const Value& b, const char* op);
size_t HashOf(const Value& value);  // raises on unhashable values

bool IsIterable(const Value& value);
bool HasLength(const Value& value);
int64_t LengthOf(const Value& value);  // raises without a length
// A cursor over an iterable value; raises when it is none.
std::function<std::optional<Value>()> Iterate(const Value& value);

// str() and repr(); raises when the text grows beyond `limit` bytes.
std::string ToStr(const Value& value, size_t limit = SIZE_MAX);
std::string ToRepr(const Value& value, size_t limit = SIZE_MAX);
std::string FloatRepr(double value);
std::string StringRepr(std::string_view text);

Value MakeDict(std::shared_ptr<Dict> dict);
Value MakeFunction(std::string name, std::function<Value(Interpreter&, CallArgs&)> call);
Value MakeGenerator(const Value& source, std::function<std::optional<Value>()> next);
// Python's `name` in the message of an undefined lookup.
Value UndefinedAttribute(const Value& object, const Value& name);

}  // namespace nibble::jinja
