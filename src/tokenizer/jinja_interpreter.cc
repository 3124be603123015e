#include "tokenizer/jinja_interpreter.h"

#include <algorithm>

#include "tokenizer/jinja_scope.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {

const Value* Scope::Find(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::Set(const std::string& name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Loop::Peek() {
  if (ahead.empty()) {
    auto item = next();
    if (!item) return nullptr;
    ahead.push_back(std::move(*item));
  }
  return &ahead.front();
}

bool Loop::Advance() {
  if (!Peek()) return false;
  previous = std::move(current);
  current = std::move(ahead.front());
  ahead.pop_front();
  ++index0;
  return true;
}

int64_t Loop::Length() {
  if (!known_length) {
    while (auto item = next()) ahead.push_back(std::move(*item));
    known_length = index0 + 1 + int64_t(ahead.size());
  }
  return *known_length;
}

Interpreter::Interpreter(const Program& program, const Value& context,
                         const JinjaRenderOptions& options)
    : program_(program),
      context_(context),
      options_(options),
      limits_(options.limits),
      deadline_(std::chrono::steady_clock::now() + options.limits.max_time),
      root_(std::make_shared<Scope>(nullptr)),
      scope_(root_) {}

Interpreter::~Interpreter() {
  // Emptied one by one while all are still held here, so that no destructor recurses along a chain
  // of them.
  for (const auto& scope : captured_) scope->variables.clear();
  for (const auto& ns : namespaces_) ns->attributes.Clear();
  root_->variables.clear();
}

std::string Interpreter::Run() {
  std::string out;
  out_ = &out;
  Hide(program_.hidden, *root_);
  ExecBody(program_.body);
  return out;
}

void Interpreter::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    Raise("the template did not end within {} steps", limits_.max_steps);
  }
  if (steps_ < next_time_check_) return;
  next_time_check_ = steps_ + 4096;
  if (std::chrono::steady_clock::now() > deadline_) {
    Raise("the template did not end within {} ms", limits_.max_time.count());
  }
}

void Interpreter::CheckStringSize(size_t bytes) const {
  if (bytes > limits_.max_output_bytes) {
    Raise("the template makes a string longer than {} bytes", limits_.max_output_bytes);
  }
}

void Interpreter::CheckItemCount(int64_t count) {
  if (count > kMaxValueWeight) Raise("the template makes a list of {} items", count);
  Charge(count);
}

void Interpreter::Account(const Value& made) {
  if (made.IsString()) {
    const size_t bytes = made.str().size();
    CheckStringSize(bytes);
    string_bytes_ += bytes;
    if (string_bytes_ > limits_.max_string_bytes) {
      Raise("the template makes strings of more than {} bytes", limits_.max_string_bytes);
    }
    Charge(int64_t(bytes / 64));
  } else if (made.IsSequence()) {
    Charge(int64_t(made.items().size()));
  }
}

std::vector<Value> Interpreter::Collect(const Value& iterable) {
  const auto next = Iterate(iterable);
  std::vector<Value> items;
  while (auto item = next()) {
    Charge(1);
    items.push_back(std::move(*item));
  }
  return items;
}

JinjaTime Interpreter::Now() const {
  return options_.now ? *options_.now : JinjaTime::FromClock(std::chrono::system_clock::now());
}

Value Interpreter::NewNamespace(CallArgs& args) {
  auto ns = std::make_shared<Namespace>();
  FillDict(*this, ns->attributes, args);
  for (const auto& [key, value] : ns->attributes.items()) {
    if (key.IsString() && key.str().starts_with('_')) {
      Raise(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
          "{}. Please rename the attribute.",
          StringRepr(key.str()));
    }
  }
  namespaces_.push_back(ns);
  Charge(8);
  return Value::FromObject(Kind::kNamespace, std::move(ns));
}

namespace {

Value LoopAttribute(const Value& value, const std::string& name) {
  auto& loop = value.As<Loop>();
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.Peek() == nullptr);
  if (name == "length") return Value::Int(loop.Length());
  if (name == "revindex") return Value::Int(loop.Length() - loop.index0);
  if (name == "revindex0") return Value::Int(loop.Length() - loop.index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? Value::Undefined("there is no previous item") : loop.previous;
  }
  if (name == "nextitem") {
    const Value* next = loop.Peek();
    return next ? *next : Value::Undefined("there is no next item");
  }
  return UndefinedAttribute(value, Value::String(name));
}

// Attributes that are no methods; nothing when there is none of that name.
std::optional<Value> PlainAttribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* value = object.As<Namespace>().attributes.Find(name);
      return value ? std::optional(*value) : std::nullopt;
    }
    case Kind::kFunction: {
      const auto& function = object.As<Function>();
      return function.attribute ? function.attribute(name) : std::nullopt;
    }
    case Kind::kTuple:
      if (!object.As<List>().is_group) return std::nullopt;
      if (name == "grouper") return object.items()[0];
      if (name == "list") return object.items()[1];
      return std::nullopt;
    case Kind::kRange: {
      const auto& range = object.As<Range>();
      if (name == "start") return Value::Int(range.start);
      if (name == "stop") return Value::Int(range.stop);
      if (name == "step") return Value::Int(range.step);
      return std::nullopt;
    }
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") return Value::Int(object.int_value());
      if (name == "imag") return Value::Int(0);
      if (name == "denominator") return Value::Int(1);
      return std::nullopt;
    case Kind::kFloat:
      if (name == "real") return object;
      if (name == "imag") return Value::Float(0);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Value BindMethod(const Value& object, const std::string& name, Method method) {
  Value bound = MakeFunction(
      name, [object, method](Interpreter& in, CallArgs& args) { return method(in, object, args); });
  auto& function = bound.As<Function>();
  function.repr = fmt::format("<built-in method {} of {} object>", name, TypeName(object));
  function.Contain(object.object());
  return bound;
}

// What getattr finds, with what the sandbox makes of it; nothing when getattr finds nothing.
std::optional<Value> FindAttribute(const Value& object, const std::string& name) {
  const bool is_internal = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (is_internal || IsRefusedMutator(object, name)) {
    return Value::Undefined(fmt::format("access to attribute {} of '{}' object is unsafe.",
                                        StringRepr(name), TypeName(object)));
  }
  if (const Method method = FindMethod(object, name)) return BindMethod(object, name, method);
  if (auto plain = PlainAttribute(object, name)) return plain;
  if (object.Is(Kind::kLoop)) {
    Value value = LoopAttribute(object, name);
    return value;
  }
  return std::nullopt;
}

// Index into a sequence; negative counts from the end. Nothing when outside.
std::optional<int64_t> ResolveIndex(int64_t index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? std::optional(index) : std::nullopt;
}

// obj[key]; nothing where Python raises TypeError or LookupError.
std::optional<Value> Subscript(const Value& object, const Value& key) {
  if (object.Is(Kind::kDict)) {
    if (key.Is(Kind::kList) || key.Is(Kind::kDict)) return std::nullopt;
    const Value* value = object.dict().Find(key);
    return value ? std::optional(*value) : std::nullopt;
  }
  if (!key.IsIntegral()) return std::nullopt;
  switch (object.kind()) {
    case Kind::kString: {
      const Str& str = object.string();
      const auto at = ResolveIndex(key.int_value(), int64_t(str.Length()));
      if (!at) return std::nullopt;
      if (str.IsAscii()) return Value::String(str.text.substr(size_t(*at), 1), str.markup);
      const size_t begin = ByteOffset(str.text, size_t(*at));
      size_t end = begin;
      NextCodePoint(str.text, end);
      return Value::String(str.text.substr(begin, end - begin), str.markup);
    }
    case Kind::kList:
    case Kind::kTuple: {
      const auto at = ResolveIndex(key.int_value(), int64_t(object.items().size()));
      return at ? std::optional(object.items()[size_t(*at)]) : std::nullopt;
    }
    case Kind::kRange: {
      const auto& range = object.As<Range>();
      const auto at = ResolveIndex(key.int_value(), range.size);
      return at ? std::optional(Value::Int(range.start + range.step * *at)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Value Interpreter::GetAttribute(const Value& object, const std::string& name) {
  if (object.IsUndefined()) throw TemplateError(object.UndefinedMessage());
  if (object.Is(Kind::kDict)) Charge(1);
  if (auto value = FindAttribute(object, name)) return std::move(*value);
  if (object.Is(Kind::kDict)) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return UndefinedAttribute(object, Value::String(name));
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.IsUndefined()) throw TemplateError(object.UndefinedMessage());
  if (object.IsString()) Charge(int64_t(object.str().size() / 256));
  if (auto value = Subscript(object, key)) return std::move(*value);
  if (key.IsString()) {
    if (auto value = FindAttribute(object, key.str())) return std::move(*value);
  }
  return UndefinedAttribute(object, key);
}

}  // namespace nibble::jinja
