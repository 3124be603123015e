#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

[[noreturn]] void RaiseOverflow() { Raise("integer result does not fit 64 bits"); }

int64_t Checked(bool overflow, int64_t value) {
  if (overflow) RaiseOverflow();
  return value;
}

[[noreturn]] void RaiseOperands(const char* op, const Value& a, const Value& b) {
  Raise("unsupported operand type(s) for {}: '{}' and '{}'", op, TypeName(a), TypeName(b));
}

Value Repeat(Interpreter& in, const Value& sequence, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (sequence.IsString()) {
    const std::string& text = sequence.str();
    if (!text.empty() && times > int64_t(in.max_string() / text.size())) {
      in.CheckStringSize(SIZE_MAX);
    }
    std::string out;
    out.reserve(text.size() * size_t(times));
    for (int64_t i = 0; i < times && !text.empty(); ++i) out += text;
    return Value::String(std::move(out), sequence.IsMarkup());
  }
  const auto& items = sequence.items();
  if (!items.empty()) {
    in.CheckItemCount(times > kMaxValueWeight ? times : times * int64_t(items.size()));
  }
  std::vector<Value> out;
  for (int64_t i = 0; i < times && !items.empty(); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.Is(Kind::kList) ? Value::MakeList(std::move(out))
                                  : Value::MakeTuple(std::move(out));
}

Value Multiply(Interpreter& in, const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) {
    int64_t out;
    const bool overflow = __builtin_mul_overflow(a.int_value(), b.int_value(), &out);
    return Value::Int(Checked(overflow, out));
  }
  if (a.IsNumber() && b.IsNumber()) return Value::Float(a.float_value() * b.float_value());
  if ((a.IsString() || a.IsSequence()) && b.IsIntegral()) return Repeat(in, a, b.int_value());
  if (a.IsIntegral() && (b.IsString() || b.IsSequence())) return Repeat(in, b, a.int_value());
  if (a.IsString() || a.IsSequence() || b.IsString() || b.IsSequence()) {
    const Value& other = a.IsString() || a.IsSequence() ? b : a;
    Raise("can't multiply sequence by non-int of type '{}'", TypeName(other));
  }
  RaiseOperands("*", a, b);
}

Value FloorDivide(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) {
    const int64_t x = a.int_value(), y = b.int_value();
    if (y == 0) Raise("integer division or modulo by zero");
    if (x == INT64_MIN && y == -1) RaiseOverflow();
    return Value::Int(x / y - (x % y != 0 && (x < 0) != (y < 0)));
  }
  const double x = a.float_value(), y = b.float_value();
  if (y == 0) Raise("float floor division by zero");
  double mod = std::fmod(x, y);
  double div = (x - mod) / y;
  if (mod != 0 && (y < 0) != (mod < 0)) div -= 1;
  if (div == 0) return Value::Float(std::copysign(0.0, x / y));
  double floor = std::floor(div);
  if (div - floor > 0.5) floor += 1;
  return Value::Float(floor);
}

Value Modulo(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) {
    const int64_t x = a.int_value(), y = b.int_value();
    if (y == 0) Raise("integer division or modulo by zero");
    if (y == -1) return Value::Int(0);
    const int64_t mod = x % y;
    return Value::Int(mod != 0 && (mod < 0) != (y < 0) ? mod + y : mod);
  }
  const double x = a.float_value(), y = b.float_value();
  if (y == 0) Raise("float modulo");
  const double mod = std::fmod(x, y);
  if (mod == 0) return Value::Float(std::copysign(0.0, y));
  return Value::Float((y < 0) != (mod < 0) ? mod + y : mod);
}

Value Power(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral() && b.int_value() >= 0) {
    int64_t base = a.int_value(), out = 1;
    if (base == 0 || base == 1) return Value::Int(b.int_value() == 0 ? 1 : base);
    for (uint64_t n = uint64_t(b.int_value()); n; n >>= 1) {
      if ((n & 1) && __builtin_mul_overflow(out, base, &out)) RaiseOverflow();
      if (n > 1 && __builtin_mul_overflow(base, base, &base)) RaiseOverflow();
    }
    return Value::Int(out);
  }
  const double x = a.float_value(), y = b.float_value();
  if (x == 0 && y < 0) Raise("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
    Raise("complex results are not supported");
  }
  const double out = std::pow(x, y);
  if (std::isinf(out) && std::isfinite(x) && std::isfinite(y))
    Raise("Numerical result out of range");
  return Value::Float(out);
}

Value Divide(const Value& a, const Value& b) {
  const long double x = a.IsIntegral() ? (long double)a.int_value() : a.float_value();
  const long double y = b.IsIntegral() ? (long double)b.int_value() : b.float_value();
  if (y == 0) Raise("division by zero");
  if (a.IsIntegral() && b.IsIntegral()) return Value::Float(double(x / y));
  return Value::Float(a.float_value() / b.float_value());
}

std::vector<Value> Joined(const std::vector<Value>& a, const std::vector<Value>& b) {
  std::vector<Value> out;
  out.reserve(a.size() + b.size());
  out.insert(out.end(), a.begin(), a.end());
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

Value AddStrings(Interpreter& in, const Value& a, const Value& b) {
  in.CheckStringSize(a.str().size() + b.str().size());
  if (a.IsMarkup() == b.IsMarkup()) return Value::String(a.str() + b.str(), a.IsMarkup());
  return a.IsMarkup() ? Value::String(a.str() + EscapeHtml(b.str()), true)
                      : Value::String(EscapeHtml(a.str()) + b.str(), true);
}

}  // namespace

const char* OpText(Op op) {
  static constexpr const char* kTexts[] = {"+",  "-", "*",  "/", "//", "%",  "** or pow()", "==",
                                           "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kTexts[int(op)];
}

Value Add(Interpreter& in, const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) {
    int64_t out;
    const bool overflow = __builtin_add_overflow(a.int_value(), b.int_value(), &out);
    return Value::Int(Checked(overflow, out));
  }
  if (a.IsNumber() && b.IsNumber()) return Value::Float(a.float_value() + b.float_value());
  if (a.IsString() && b.IsString()) return AddStrings(in, a, b);
  if (a.kind() == b.kind() && a.IsSequence()) {
    in.CheckItemCount(int64_t(a.items().size() + b.items().size()));
    auto items = Joined(a.items(), b.items());
    return a.Is(Kind::kList) ? Value::MakeList(std::move(items))
                             : Value::MakeTuple(std::move(items));
  }
  for (const Value* v : {&a, &b}) {
    if (v->IsUndefined()) throw TemplateError(v->UndefinedMessage());
  }
  if (a.IsString()) Raise("can only concatenate str (not \"{}\") to str", TypeName(b));
  if (a.IsSequence()) {
    Raise("can only concatenate {0} (not \"{1}\") to {0}", TypeName(a), TypeName(b));
  }
  RaiseOperands("+", a, b);
}

Value BinaryOp(Interpreter& in, Op op, const Value& a, const Value& b) {
  if (op == Op::kAdd) return Add(in, a, b);
  if (op == Op::kMod && a.IsString()) {
    return Value::String(PercentFormat(in, a.str(), b), a.IsMarkup());
  }
  for (const Value* v : {&a, &b}) {
    if (v->IsUndefined()) throw TemplateError(v->UndefinedMessage());
  }
  if (op == Op::kMul) return Multiply(in, a, b);
  if (!a.IsNumber() || !b.IsNumber()) RaiseOperands(OpText(op), a, b);
  switch (op) {
    case Op::kSub: {
      if (!a.IsIntegral() || !b.IsIntegral()) {
        return Value::Float(a.float_value() - b.float_value());
      }
      int64_t out;
      const bool overflow = __builtin_sub_overflow(a.int_value(), b.int_value(), &out);
      return Value::Int(Checked(overflow, out));
    }
    case Op::kDiv:
      return Divide(a, b);
    case Op::kFloorDiv:
      return FloorDivide(a, b);
    case Op::kMod:
      return Modulo(a, b);
    default:
      return Power(a, b);
  }
}

Value Negate(const Value& value) {
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (value.Is(Kind::kFloat)) return Value::Float(-value.float_value());
  if (!value.IsIntegral()) Raise("bad operand type for unary -: '{}'", TypeName(value));
  if (value.int_value() == INT64_MIN) RaiseOverflow();
  return Value::Int(-value.int_value());
}

// Python's slice.indices: positions start, start + step, ... of which there are `count`.
Value SliceOf(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.Is(Kind::kDict)) Raise("unhashable type: 'slice'");
  if (!object.IsString() && !object.IsSequence() && !object.Is(Kind::kRange)) {
    Raise("'{}' object is not subscriptable", TypeName(object));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->IsNone() && !bound->IsIntegral()) {
      Raise("slice indices must be integers or None or have an __index__ method");
    }
  }
  const int64_t by = step.IsNone() ? 1 : step.int_value();
  if (by == 0) Raise("slice step cannot be zero");
  const int64_t size = LengthOf(object);
  const auto clamp = [&](const Value& bound, int64_t fallback) {
    if (bound.IsNone()) return fallback;
    int64_t at = bound.int_value();
    if (at < 0) at = at < -size ? -1 : at + size;
    if (by > 0) return std::clamp<int64_t>(at, 0, size);
    return std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t first = clamp(start, by > 0 ? 0 : size - 1);
  const int64_t end = clamp(stop, by > 0 ? size : -1);
  const uint64_t distance = by > 0 ? (end > first ? uint64_t(end - first) : 0)
                                   : (first > end ? uint64_t(first - end) : 0);
  const uint64_t width = by > 0 ? uint64_t(by) : 0 - uint64_t(by);
  const uint64_t count = distance == 0 ? 0 : (distance - 1) / width + 1;
  const auto at = [&](uint64_t i) { return size_t(first + int64_t(i) * by); };
  if (object.IsString()) {
    const Str& str = object.string();
    if (by == 1) {
      const size_t from = str.IsAscii() ? size_t(first) : ByteOffset(str.text, size_t(first));
      const std::string_view rest = std::string_view(str.text).substr(from);
      const size_t bytes = str.IsAscii() ? count : ByteOffset(rest, count);
      return Value::String(std::string(rest.substr(0, bytes)), str.markup);
    }
    const auto chars = SplitCodePoints(str.text);
    std::string out;
    for (uint64_t i = 0; i < count; ++i) out += chars[at(i)];
    return Value::String(std::move(out), str.markup);
  }
  if (object.Is(Kind::kRange)) {
    const auto& from = object.As<Range>();
    auto range = std::make_shared<Range>();
    range->start = from.start + first * from.step;
    range->step = from.step * std::clamp<int64_t>(by, -1'000'000, 1'000'000);
    range->size = int64_t(count);
    range->stop = range->start + range->step * int64_t(count);
    return Value::FromObject(Kind::kRange, std::move(range));
  }
  std::vector<Value> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(object.items()[at(i)]);
  return object.Is(Kind::kList) ? Value::MakeList(std::move(out))
                                : Value::MakeTuple(std::move(out));
}

int64_t RequireInt(const Value& value) {
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (!value.IsIntegral()) {
    Raise("'{}' object cannot be interpreted as an integer", TypeName(value));
  }
  return value.int_value();
}

Arguments::Arguments(const char* function, CallArgs& args, std::initializer_list<const char*> names,
                     size_t required)
    : function_(function), values_(names.size()) {
  if (args.positional.size() > names.size()) {
    Raise("{}() takes at most {} argument(s) ({} given)", function, names.size(),
          args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [key, value] : args.keyword) {
    const auto it = std::find_if(names.begin(), names.end(),
                                 [&key = key](const char* name) { return key == name; });
    if (it == names.end()) Raise("{}() got an unexpected keyword argument '{}'", function, key);
    const size_t at = size_t(it - names.begin());
    if (values_[at]) Raise("{}() got multiple values for argument '{}'", function, key);
    values_[at] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      Raise("{}() missing required argument: '{}'", function, *(names.begin() + long(i)));
    }
  }
}

int64_t Arguments::Int(size_t i, int64_t fallback) const {
  return values_[i] ? RequireInt(*values_[i]) : fallback;
}

bool Arguments::Bool(size_t i, bool fallback) const {
  return values_[i] ? Truthy(*values_[i]) : fallback;
}

const std::string& Arguments::Text(size_t i) const {
  const Value& value = *values_[i];
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (!value.IsString()) {
    Raise("{}() argument must be str, not {}", function_, TypeName(value));
  }
  return value.str();
}

}  // namespace nibble::jinja
