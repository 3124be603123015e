#include "tokenizer/jinja.h"

#include <new>

#include "container/json.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/jinja_value.h"

namespace nibble {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Value;

JinjaValue Wrap(Value value) { return JinjaValue(std::make_shared<const Value>(std::move(value))); }

// Depth is bounded by the JSON parser's limits.
Value FromJsonNode(const JsonValue& json) {
  switch (json.kind()) {
    case JsonKind::kNull:
      return Value::None();
    case JsonKind::kBool:
      return Value::Bool(*json.AsBool());
    case JsonKind::kInt:
      return Value::Int(*json.AsInt());
    case JsonKind::kDouble:
      return Value::Float(*json.AsDouble());
    case JsonKind::kString:
      return Value::String(std::string(*json.AsString()));
    case JsonKind::kArray: {
      std::vector<Value> items;
      const JsonArray elements = *json.AsArray();
      for (const JsonValue item : elements) items.push_back(FromJsonNode(item));
      return Value::MakeList(std::move(items));
    }
    case JsonKind::kObject: {
      auto dict = std::make_shared<Dict>();
      const JsonObject members = *json.AsObject();
      for (const auto [key, value] : members) dict->Set(key, FromJsonNode(value));
      return jinja::MakeDict(std::move(dict));
    }
  }
  return Value::None();
}

std::unexpected<Error> ToError(const jinja::TemplateError& error, int line) {
  return BadInput("line {}: {}", error.line > 0 ? error.line : line, error.message);
}

std::unexpected<Error> NoMemory() { return Fail(ErrorKind::kNoRoom, "chat template: no memory"); }

}  // namespace

JinjaValue::JinjaValue() : value_(std::make_shared<const Value>(Value::None())) {}
JinjaValue JinjaValue::Bool(bool value) { return Wrap(Value::Bool(value)); }
JinjaValue JinjaValue::Int(int64_t value) { return Wrap(Value::Int(value)); }
JinjaValue JinjaValue::Float(double value) { return Wrap(Value::Float(value)); }
JinjaValue JinjaValue::String(std::string value) { return Wrap(Value::String(std::move(value))); }

JinjaValue JinjaValue::List(std::vector<JinjaValue> items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const JinjaValue& item : items) values.push_back(item.value());
  return Wrap(Value::MakeList(std::move(values)));
}

JinjaValue JinjaValue::Object(std::vector<Member> members) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : members) dict->Set(key, value.value());
  return Wrap(jinja::MakeDict(std::move(dict)));
}

Result<JinjaValue> JinjaValue::FromJson(std::string_view text) {
  try {
    NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(text)));
    return Wrap(FromJsonNode(document.root()));
  } catch (const jinja::TemplateError& error) {
    return BadInput("{}", error.message);
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

bool JinjaValue::IsNone() const { return value_->IsNone(); }
bool JinjaValue::IsList() const { return value_->Is(Kind::kList); }
bool JinjaValue::IsObject() const { return value_->Is(Kind::kDict); }
bool JinjaValue::IsString() const { return value_->IsString(); }

size_t JinjaValue::Size() const {
  if (IsList()) return value_->items().size();
  return IsObject() ? value_->dict().size() : 0;
}

JinjaValue JinjaValue::At(size_t index) const {
  return index < Size() && IsList() ? Wrap(value_->items()[index]) : JinjaValue();
}

std::optional<JinjaValue> JinjaValue::Get(std::string_view key) const {
  const Value* found = IsObject() ? value_->dict().Find(key) : nullptr;
  return found ? std::optional(Wrap(*found)) : std::nullopt;
}

std::vector<JinjaValue::Member> JinjaValue::Members() const {
  std::vector<Member> out;
  if (!IsObject()) return out;
  for (const auto& [key, value] : value_->dict().items()) out.emplace_back(key.str(), Wrap(value));
  return out;
}

std::string JinjaValue::ToString() const { return jinja::ToStr(*value_); }

JinjaValue JinjaValue::With(const std::vector<Member>& members) const {
  auto dict = IsObject() ? std::make_shared<Dict>(value_->dict()) : std::make_shared<Dict>();
  for (const auto& [key, value] : members) dict->Set(key, value.value());
  return Wrap(jinja::MakeDict(std::move(dict)));
}

JinjaTemplate::JinjaTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

Result<JinjaTemplate> JinjaTemplate::Parse(std::string_view source, const JinjaOptions& options) {
  constexpr size_t kMaxBytes = 1u << 20;  // the largest published one has 17 kB
  if (source.size() > kMaxBytes) {
    return BadInput("the template has {} bytes, at most {} are read", source.size(), kMaxBytes);
  }
  try {
    return JinjaTemplate(jinja::ParseTemplate(source, options));
  } catch (const jinja::TemplateError& error) {
    return ToError(error, 1);
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

Result<std::string> JinjaTemplate::Render(const JinjaValue& context,
                                          const JinjaRenderOptions& options) const {
  if (!context.IsObject()) return BadInput("a template's context must be an object");
  jinja::Interpreter interpreter(*program_, context.value(), options);
  try {
    return interpreter.Run();
  } catch (const jinja::TemplateError& error) {
    return ToError(error, interpreter.line());
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace nibble
