#include <algorithm>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_scope.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {

Value Interpreter::Eval(const Expr& expr) {
  if (expr.kind == ExprKind::kConst) return expr.value;
  Charge(1);
  const Depth depth(*this);
  return EvalNode(expr);
}

Value Interpreter::EvalNode(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return EvalName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvalItems(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kNot:
      return Value::Bool(!Truthy(Eval(*expr.parts[0])));
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvalUnary(expr);
    case ExprKind::kBinary:
      return EvalBinary(expr);
    case ExprKind::kAnd: {
      Value left = Eval(*expr.parts[0]);
      return Truthy(left) ? Eval(*expr.parts[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = Eval(*expr.parts[0]);
      return Truthy(left) ? left : Eval(*expr.parts[1]);
    }
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kConditional:
      return EvalConditional(expr);
    case ExprKind::kAttribute: {
      const Value object = Eval(*expr.parts[0]);
      line_ = expr.line;
      return GetAttribute(object, expr.name);
    }
    case ExprKind::kItem:
      return EvalItem(expr);
    case ExprKind::kSlice:
      Raise("a slice stands outside of []");
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return ApplyFilter(expr, Eval(*expr.parts[0]));
    case ExprKind::kTest:
      return EvalTest(expr);
  }
  return Value();
}

Value Interpreter::EvalName(const Expr& expr) {
  line_ = expr.line;
  return LookUp(expr.name);
}

namespace {
bool IsHidden(const Value& value) { return value.IsUndefined() && !value.object(); }
}  // namespace

Value Interpreter::LookUp(const std::string& name) {
  const Value* found = nullptr;
  for (const Scope* scope = scope_.get(); scope && !found; scope = scope->parent.get()) {
    found = scope->Find(name);
  }
  if (!found) {
    // A block's frame is in no other: it sees what the top level has assigned.
    found = root_->Find(name);
    if (found && IsHidden(*found)) found = nullptr;
    if (!found) found = context_.dict().Find(name);
    if (!found) return FindGlobal(name);
  }
  if (!IsHidden(*found)) return *found;
  return Value::Undefined(fmt::format("{} is undefined", StringRepr(name)));
}

Value Interpreter::FindGlobal(const std::string& name) {
  if (name == "self" && !program_.blocks.empty()) return MakeSelf();
  Value global = MakeGlobal(name);
  if (!global.IsUndefined()) return global;
  return Value::Undefined(fmt::format("{} is undefined", StringRepr(name)));
}

Value Interpreter::EvalItems(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const Expr* part : expr.parts) items.push_back(Eval(*part));
  return expr.kind == ExprKind::kList ? Value::MakeList(std::move(items))
                                      : Value::MakeTuple(std::move(items));
}

Value Interpreter::EvalDict(const Expr& expr) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    const Value key = Eval(*expr.parts[i]);
    Value value = Eval(*expr.parts[i + 1]);
    line_ = expr.line;
    dict->Set(key, std::move(value));
  }
  return MakeDict(std::move(dict));
}

Value Interpreter::EvalUnary(const Expr& expr) {
  const Value value = Eval(*expr.parts[0]);
  line_ = expr.line;
  if (expr.kind == ExprKind::kNegate) return Negate(value);
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (!value.IsNumber()) Raise("bad operand type for unary +: '{}'", TypeName(value));
  return value.Is(Kind::kBool) ? Value::Int(value.int_value()) : value;
}

Value Interpreter::EvalBinary(const Expr& expr) {
  const Value left = Eval(*expr.parts[0]);
  const Value right = Eval(*expr.parts[1]);
  line_ = expr.line;
  Value result = BinaryOp(*this, expr.ops[0], left, right);
  Account(result);
  return result;
}

bool Interpreter::Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.IsString()) {
        Raise("'in <string>' requires string as left operand, not {}", TypeName(item));
      }
      Charge(int64_t(container.str().size() / 64));
      return container.str().find(item.str()) != std::string::npos;
    case Kind::kDict:
      return container.dict().Find(item) != nullptr;
    default:
      break;
  }
  if (!IsIterable(container)) {
    Raise("argument of type '{}' is not iterable", TypeName(container));
  }
  const auto next = Iterate(container);
  while (const auto candidate = next()) {
    Charge(1 + std::min(candidate->weight(), item.weight()));
    if (SameObject(*candidate, item) || Equal(*candidate, item)) return true;
  }
  return false;
}

Value Interpreter::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = Eval(*expr.parts[i + 1]);
    line_ = expr.line;
    Charge(std::min(left.weight(), right.weight()));
    const Op op = expr.ops[i];
    bool holds = false;
    switch (op) {
      case Op::kEq:
        holds = Equal(left, right);
        break;
      case Op::kNe:
        holds = !Equal(left, right);
        break;
      case Op::kIn:
        holds = Contains(right, left);
        break;
      case Op::kNotIn:
        holds = !Contains(right, left);
        break;
      default: {
        const auto order = Compare(left, right, OpText(op));
        holds = order && (op == Op::kLt   ? *order < 0
                          : op == Op::kLe ? *order <= 0
                          : op == Op::kGt ? *order > 0
                                          : *order >= 0);
      }
    }
    if (!holds) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Interpreter::EvalConcat(const Expr& expr) {
  std::string text;
  bool markup = false;
  for (const Expr* part : expr.parts) {
    const Value value = Eval(*part);
    line_ = expr.line;
    markup |= autoescape_ && value.IsMarkup();
    text += Str(value);
    CheckStringSize(text.size());
  }
  Value result = Value::String(std::move(text), markup);
  Account(result);
  return result;
}

Value Interpreter::EvalConditional(const Expr& expr) {
  if (Truthy(Eval(*expr.parts[0]))) return Eval(*expr.parts[1]);
  if (expr.parts[2]) return Eval(*expr.parts[2]);
  return Value::Undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      expr.line));
}

Value Interpreter::EvalSlice(const Value& object, const Expr& slice) {
  Value bounds[3];
  for (int i = 0; i < 3; ++i) {
    bounds[i] = slice.parts[i] ? Eval(*slice.parts[i]) : Value::None();
  }
  line_ = slice.line;
  if (object.IsUndefined()) throw TemplateError(object.UndefinedMessage());
  Value result = SliceOf(object, bounds[0], bounds[1], bounds[2]);
  Account(result);
  return result;
}

Value Interpreter::EvalItem(const Expr& expr) {
  const Value object = Eval(*expr.parts[0]);
  if (expr.parts[1]->kind == ExprKind::kSlice) return EvalSlice(object, *expr.parts[1]);
  if (expr.parts[1]->kind == ExprKind::kTuple) {
    // x[1:2, 3]: no value takes such an index.
    const auto& parts = expr.parts[1]->parts;
    const bool has_slice =
        std::ranges::any_of(parts, [](const Expr* part) { return part->kind == ExprKind::kSlice; });
    if (has_slice) {
      if (object.IsUndefined()) throw TemplateError(object.UndefinedMessage());
      return UndefinedAttribute(object, Value::None());
    }
  }
  const Value key = Eval(*expr.parts[1]);
  line_ = expr.line;
  return GetItem(object, key);
}

CallArgs Interpreter::EvalArguments(const Expr& expr) {
  CallArgs args;
  args.positional.reserve(expr.parts.size());
  for (size_t i = 1; i < expr.parts.size(); ++i) args.positional.push_back(Eval(*expr.parts[i]));
  for (const auto& [name, value] : expr.keywords) args.keyword.emplace_back(name, Eval(*value));
  if (expr.star_args) {
    for (Value& item : Collect(Eval(*expr.star_args))) args.positional.push_back(std::move(item));
  }
  if (expr.star_kwargs) {
    const Value extra = Eval(*expr.star_kwargs);
    line_ = expr.line;
    if (!extra.Is(Kind::kDict)) {
      Raise("argument after ** must be a mapping, not {}", TypeName(extra));
    }
    for (const auto& [key, value] : extra.dict().items()) {
      if (!key.IsString()) Raise("keywords must be strings");
      if (args.FindKeyword(key.str())) {
        Raise("got multiple values for keyword argument '{}'", key.str());
      }
      args.keyword.emplace_back(key.str(), value);
    }
  }
  line_ = expr.line;
  return args;
}

Value Interpreter::EvalCall(const Expr& expr) {
  const Expr& callee = *expr.parts[0];
  Value result;
  if (callee.kind == ExprKind::kAttribute) {
    // A method called at once needs no bound method.
    const Value object = Eval(*callee.parts[0]);
    line_ = callee.line;
    if (const Method method = FindMethod(object, callee.name)) {
      CallArgs args = EvalArguments(expr);
      result = method(*this, object, args);
    } else {
      const Value function = GetAttribute(object, callee.name);
      result = Call(function, EvalArguments(expr));
    }
  } else {
    const Value function = Eval(callee);
    result = Call(function, EvalArguments(expr));
  }
  Account(result);
  return result;
}

Value Interpreter::Call(const Value& callee, CallArgs args) {
  if (callee.IsUndefined()) throw TemplateError(callee.UndefinedMessage());
  if (callee.Is(Kind::kLoop)) {
    auto& loop = callee.As<Loop>();
    if (!loop.recurse) {
      Raise("The loop must have the 'recursive' marker to be called recursively.");
    }
    const Arguments bound("__call__", args, {"iterable"}, 1);
    return loop.recurse(bound.Get(0));
  }
  if (!callee.Is(Kind::kFunction)) Raise("'{}' object is not callable", TypeName(callee));
  const Depth depth(*this);
  return callee.As<Function>().call(*this, args);
}

Value Interpreter::ApplyFilter(const Expr& expr, const Value& input) {
  CallArgs args = EvalArguments(expr);
  if (!expr.filter) Raise("No filter named '{}' found.", expr.name);
  Value result = expr.filter(*this, input, args);
  Account(result);
  return result;
}

Value Interpreter::EvalTest(const Expr& expr) {
  const Value input = Eval(*expr.parts[0]);
  CallArgs args = EvalArguments(expr);
  if (!expr.test) Raise("No test named '{}' found.", expr.name);
  return Value::Bool(expr.test(*this, input, args));
}

Value Interpreter::CallFilter(const std::string& name, const Value& input, CallArgs args) {
  const FilterFunction filter = FindFilter(name);
  if (!filter) Raise("No filter named '{}'.", name);
  Charge(1);
  Value result = filter(*this, input, args);
  Account(result);
  return result;
}

bool Interpreter::CallTest(const std::string& name, const Value& input, CallArgs args) {
  const TestFunction test = FindTest(name);
  if (!test) Raise("No test named '{}'.", name);
  Charge(1);
  return test(*this, input, args);
}

}  // namespace nibble::jinja
