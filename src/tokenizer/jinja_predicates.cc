// jinja2's built-in tests: `value is name(args)`.
#include <algorithm>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_str_methods.h"

namespace nibble::jinja {
namespace {

const Value& Only(const char* name, CallArgs& args) {
  return Arguments(name, args, {"other"}, 1).Get(0);
}

template <Kind kKind>
bool IsKind(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("test", args, {});
  return value.Is(kKind);
}

bool Defined(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("defined", args, {});
  return !value.IsUndefined();
}

template <bool kTrue>
bool IsBool(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("test", args, {});
  return value.Is(Kind::kBool) && value.bool_value() == kTrue;
}

bool Number(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("number", args, {});
  return value.IsNumber();
}

bool HasRest(Interpreter& in, const Value& value, const Value& divisor, int64_t rest) {
  return Equal(BinaryOp(in, Op::kMod, value, divisor), Value::Int(rest));
}

bool Odd(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments none("odd", args, {});
  return HasRest(in, value, Value::Int(2), 1);
}

bool Even(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments none("even", args, {});
  return HasRest(in, value, Value::Int(2), 0);
}

bool DivisibleBy(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments bound("divisibleby", args, {"num"}, 1);
  return HasRest(in, value, bound.Get(0), 0);
}

bool Lower(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments none("lower", args, {});
  return IsLowerCased(in.Str(value));
}

bool Upper(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments none("upper", args, {});
  return IsUpperCased(in.Str(value));
}

bool Sequence(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("sequence", args, {});
  return HasLength(value) && !value.Is(Kind::kDictView);
}

bool Iterable(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("iterable", args, {});
  return IsIterable(value) || value.Is(Kind::kLoop);
}

bool Callable(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("callable", args, {});
  return value.Is(Kind::kFunction) || value.Is(Kind::kLoop) || value.IsUndefined();
}

bool SameAs(Interpreter&, const Value& value, CallArgs& args) {
  return SameObject(value, Only("sameas", args));
}

bool Escaped(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("escaped", args, {});
  return value.IsMarkup();
}

bool In(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments bound("in", args, {"seq"}, 1);
  return in.Contains(bound.Get(0), value);
}

bool IsFilter(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("filter", args, {});
  HashOf(value);
  return value.IsString() && FindFilter(value.str());
}

bool IsTest(Interpreter&, const Value& value, CallArgs& args) {
  const Arguments none("test", args, {});
  HashOf(value);
  return value.IsString() && FindTest(value.str());
}

template <Op kOp>
bool Compared(Interpreter& in, const Value& value, CallArgs& args) {
  if (!args.keyword.empty()) Raise("a comparison takes no keyword arguments");
  const Value& other = Only("comparison", args);
  in.Charge(std::min(value.weight(), other.weight()));
  if (kOp == Op::kEq) return Equal(value, other);
  if (kOp == Op::kNe) return !Equal(value, other);
  const auto order = Compare(value, other, OpText(kOp));
  if (!order) return false;
  if (kOp == Op::kLt) return *order < 0;
  if (kOp == Op::kLe) return *order <= 0;
  return kOp == Op::kGt ? *order > 0 : *order >= 0;
}

struct NamedTest {
  std::string_view name;
  TestFunction test;
};

constexpr NamedTest kTests[] = {
    {"boolean", IsKind<Kind::kBool>},
    {"callable", Callable},
    {"defined", Defined},
    {"divisibleby", DivisibleBy},
    {"eq", Compared<Op::kEq>},
    {"equalto", Compared<Op::kEq>},
    {"==", Compared<Op::kEq>},
    {"escaped", Escaped},
    {"even", Even},
    {"false", IsBool<false>},
    {"filter", IsFilter},
    {"float", IsKind<Kind::kFloat>},
    {"ge", Compared<Op::kGe>},
    {">=", Compared<Op::kGe>},
    {"greaterthan", Compared<Op::kGt>},
    {"gt", Compared<Op::kGt>},
    {">", Compared<Op::kGt>},
    {"in", In},
    {"integer", IsKind<Kind::kInt>},
    {"iterable", Iterable},
    {"le", Compared<Op::kLe>},
    {"<=", Compared<Op::kLe>},
    {"lessthan", Compared<Op::kLt>},
    {"lower", Lower},
    {"lt", Compared<Op::kLt>},
    {"<", Compared<Op::kLt>},
    {"mapping", IsKind<Kind::kDict>},
    {"ne", Compared<Op::kNe>},
    {"!=", Compared<Op::kNe>},
    {"none", IsKind<Kind::kNone>},
    {"number", Number},
    {"odd", Odd},
    {"sameas", SameAs},
    {"sequence", Sequence},
    {"string", IsKind<Kind::kString>},
    {"test", IsTest},
    {"true", IsBool<true>},
    {"undefined", IsKind<Kind::kUndefined>},
    {"upper", Upper},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* it = std::ranges::find(kTests, name, &NamedTest::name);
  return it == std::end(kTests) ? nullptr : it->test;
}

}  // namespace nibble::jinja
