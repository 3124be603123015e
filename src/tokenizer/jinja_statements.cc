#include <algorithm>

#include "base/text.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_scope.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {

Interpreter::Flow Interpreter::ExecBody(const Body& body) {
  for (const Stmt* stmt : body) {
    const Flow flow = Exec(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Exec(const Stmt& stmt) {
  Charge(1);
  const Depth depth(*this);
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kOutput:
      ExecOutput(stmt);
      break;
    case StmtKind::kIf:
      return ExecIf(stmt);
    case StmtKind::kFor:
      ExecFor(stmt);
      break;
    case StmtKind::kSet:
      Assign(stmt.targets[0], Eval(*stmt.exprs[0]));
      break;
    case StmtKind::kSetBlock:
      ExecSetBlock(stmt);
      break;
    case StmtKind::kMacro:
      scope_->Set(stmt.name, MakeMacro(stmt));
      break;
    case StmtKind::kCallBlock:
      ExecCallBlock(stmt);
      break;
    case StmtKind::kFilterBlock:
      return ExecFilterBlock(stmt);
    case StmtKind::kWith:
      return ExecWith(stmt);
    case StmtKind::kBlock:
      ExecBlock(stmt);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kGeneration: {
      const Redirect redirect(*this, out_, NewScope(stmt, 0, scope_));
      ExecBody(stmt.bodies[0]);
      break;
    }
    case StmtKind::kAutoescape:
      return ExecAutoescape(stmt);
    case StmtKind::kRefused:
      Raise("{{% {} %}} is refused: a chat template cannot load other templates", stmt.name);
  }
  return Flow::kNormal;
}

void Interpreter::Write(std::string_view text) {
  CheckStringSize(out_->size() + text.size());
  Charge(int64_t(text.size() / 64));
  *out_ += text;
}

// What filter and call blocks give must be text already.
void Interpreter::WriteText(const Value& value) {
  if (!value.IsString()) Raise("expected str instance, {} found", TypeName(value));
  Write(value.str());
}

void Interpreter::ExecOutput(const Stmt& stmt) {
  for (const Expr* expr : stmt.exprs) {
    const Value value = Eval(*expr);
    line_ = expr->line;
    const bool is_data = expr->kind == ExprKind::kConst;
    if (autoescape_ && !is_data && !value.IsMarkup()) {
      Write(EscapeHtml(Str(value)));
    } else if (value.IsString()) {
      Write(value.str());
    } else {
      Write(Str(value));
    }
  }
}

Interpreter::Flow Interpreter::ExecIf(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (Truthy(Eval(*stmt.exprs[i]))) return ExecBody(stmt.bodies[i]);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) return ExecBody(stmt.bodies.back());
  return Flow::kNormal;
}

void Interpreter::ExecFor(const Stmt& stmt) {
  const Value iterable = Eval(*stmt.exprs[0]);
  line_ = stmt.line;
  RunLoop(stmt, iterable, 0);
}

// The items that pass the loop's `if`, drawn one by one.
std::function<std::optional<Value>()> Interpreter::Filtered(const Stmt& stmt,
                                                            const Value& iterable) {
  auto next = Iterate(iterable);
  const Expr* test = stmt.exprs[1];
  if (!test) return next;
  auto scope = std::make_shared<Scope>(scope_);
  return [this, &stmt, test, scope, next = std::move(next)]() -> std::optional<Value> {
    while (auto item = next()) {
      const Redirect redirect(*this, out_, scope);
      scope->variables.clear();
      Assign(stmt.targets[0], *item);
      if (Truthy(Eval(*test))) return item;
    }
    return std::nullopt;
  };
}

void Interpreter::RunLoop(const Stmt& stmt, const Value& iterable, int depth0) {
  auto loop = std::make_shared<Loop>();
  loop->next = Filtered(stmt, iterable);
  if (!stmt.exprs[1] && HasLength(iterable)) loop->known_length = LengthOf(iterable);
  loop->depth0 = depth0;
  if (stmt.recursive) {
    loop->recurse = [this, &stmt, scope = scope_, depth0](const Value& items) {
      return RunLoopCall(stmt, items, scope, depth0 + 1);
    };
  }
  const bool ran = RunIterations(stmt, loop);
  loop->next = nullptr;  // these two may hold the frames around
  loop->recurse = nullptr;
  if (ran || stmt.bodies.size() < 2) return;
  const Redirect redirect(*this, out_, NewScope(stmt, 1, scope_));
  ExecBody(stmt.bodies[1]);
}

// True when the body ran at least once.
bool Interpreter::RunIterations(const Stmt& stmt, const std::shared_ptr<Loop>& loop) {
  const Value loop_value = Value::FromObject(Kind::kLoop, loop);
  auto frame = std::make_shared<Scope>(scope_);
  bool ran = false;
  while (loop->Advance()) {
    ran = true;
    Charge(1);
    frame->variables.clear();
    if (frame->captured) frame = std::make_shared<Scope>(scope_);
    Hide(stmt.hidden[0], *frame);
    const Redirect redirect(*this, out_, frame);
    frame->Set("loop", loop_value);
    Assign(stmt.targets[0], loop->current);
    if (ExecBody(stmt.bodies[0]) == Flow::kBreak) break;
  }
  if (!frame->captured) frame->variables.clear();
  return ran;
}

Value Interpreter::RunLoopCall(const Stmt& stmt, const Value& iterable,
                               std::shared_ptr<Scope> scope, int depth0) {
  const Depth depth(*this);
  std::string text;
  const Redirect redirect(*this, &text, std::move(scope));
  RunLoop(stmt, iterable, depth0);
  return TextValue(std::move(text));
}

void Interpreter::Hide(const std::vector<std::string>& names, Scope& scope) {
  for (const std::string& name : names) scope.Set(name, Value());
}

std::shared_ptr<Scope> Interpreter::NewScope(const Stmt& stmt, size_t body,
                                             std::shared_ptr<Scope> around) {
  auto scope = std::make_shared<Scope>(std::move(around));
  Hide(stmt.hidden[body], *scope);
  return scope;
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    line_ = target.line;
    const size_t wanted = target.parts.size();
    if (!IsIterable(value)) Raise("cannot unpack non-iterable {} object", TypeName(value));
    std::vector<Value> items;
    const auto next = Iterate(value);
    while (auto item = next()) {
      if (items.size() == wanted) Raise("too many values to unpack (expected {})", wanted);
      items.push_back(std::move(*item));
    }
    if (items.size() < wanted) {
      Raise("not enough values to unpack (expected {}, got {})", wanted, items.size());
    }
    for (size_t i = 0; i < wanted; ++i) Assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name, value);
    return;
  }
  const Value ns = LookUp(target.name);
  line_ = target.line;
  if (!ns.Is(Kind::kNamespace)) Raise("cannot assign attribute on non-namespace object");
  if (target.attribute.starts_with('_')) {
    Raise(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. "
        "Please rename the attribute.",
        StringRepr(target.attribute));
  }
  Dict& attributes = ns.As<Namespace>().attributes;
  attributes.depth = 1;  // a namespace is no container that nests: it may be its own member
  attributes.weight = 1;
  attributes.Set(target.attribute, value);
}

void Interpreter::ExecSetBlock(const Stmt& stmt) {
  std::string text;
  {
    const Redirect redirect(*this, &text, NewScope(stmt, 0, scope_));
    ExecBody(stmt.bodies[0]);
  }
  Value value = TextValue(std::move(text));
  Account(value);
  if (stmt.exprs[0]) value = ApplyFilterChain(*stmt.exprs[0], value);
  Assign(stmt.targets[0], value);
}

Value Interpreter::ApplyFilterChain(const Expr& expr, const Value& input) {
  const Expr* inner = expr.parts[0];
  return ApplyFilter(expr, inner ? ApplyFilterChain(*inner, input) : input);
}

Interpreter::Flow Interpreter::ExecFilterBlock(const Stmt& stmt) {
  std::string text;
  {
    const Redirect redirect(*this, &text, NewScope(stmt, 0, scope_));
    const Flow flow = ExecBody(stmt.bodies[0]);
    if (flow != Flow::kNormal) return flow;
  }
  WriteText(ApplyFilterChain(*stmt.exprs[0], TextValue(std::move(text))));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecWith(const Stmt& stmt) {
  const auto scope = NewScope(stmt, 0, scope_);
  std::vector<Value> values;
  for (const Expr* expr : stmt.exprs) values.push_back(Eval(*expr));
  const Redirect redirect(*this, out_, scope);
  for (size_t i = 0; i < values.size(); ++i) Assign(stmt.targets[i], values[i]);
  return ExecBody(stmt.bodies[0]);
}

Interpreter::Flow Interpreter::ExecAutoescape(const Stmt& stmt) {
  const bool outer = autoescape_;
  const Redirect redirect(*this, out_, NewScope(stmt, 0, scope_));
  const bool inner = Truthy(Eval(*stmt.exprs[0]));
  autoescape_ = inner;
  const Flow flow = ExecBody(stmt.bodies[0]);
  autoescape_ = outer;
  return flow;
}

// A block sees the context and what the template set at its top level; a scoped one sees all.
void Interpreter::ExecBlock(const Stmt& stmt) {
  const Redirect redirect(*this, out_, std::make_shared<Scope>(stmt.recursive ? scope_ : root_));
  ExecBody(stmt.bodies[0]);
}

Value Interpreter::MakeSelf() {
  Value self = MakeFunction("self", [](Interpreter&, CallArgs&) -> Value {
    Raise("'TemplateReference' object is not callable");
  });
  self.As<Function>().attribute = [this](const std::string& name) -> std::optional<Value> {
    for (const auto& [block_name, block] : program_.blocks) {
      if (block_name != name) continue;
      return MakeFunction(name, [block](Interpreter& in, CallArgs&) {
        std::string text;
        const Redirect redirect(in, &text, in.NewScope(*block, 0, nullptr));
        in.ExecBody(block->bodies[0]);
        return in.TextValue(std::move(text));
      });
    }
    return std::nullopt;
  };
  return self;
}

void Interpreter::Capture(const std::shared_ptr<Scope>& scope) {
  Charge(16);
  for (auto at = scope; at && !at->captured; at = at->parent) {
    at->captured = true;
    captured_.push_back(at);
  }
}

Value Interpreter::MakeMacro(const Stmt& stmt) {
  Capture(scope_);
  // A plain pointer: captured_ keeps the frame until the end, and so no cycle arises.
  Scope* const scope = scope_.get();
  Value macro = MakeFunction(stmt.name, [&stmt, scope](Interpreter& in, CallArgs& args) {
    return in.CallMacro(stmt, *scope, args);
  });
  auto& function = macro.As<Function>();
  const bool is_anonymous = stmt.kind != StmtKind::kMacro;
  function.repr =
      "<Macro " + (is_anonymous ? std::string("anonymous") : StringRepr(stmt.name)) + ">";
  function.attribute = [&stmt](const std::string& name) -> std::optional<Value> {
    if (name == "name") return Value::String(stmt.name);
    if (name == "catch_kwargs") return Value::Bool(stmt.signature.uses_kwargs);
    if (name == "catch_varargs") return Value::Bool(stmt.signature.uses_varargs);
    if (name == "caller") return Value::Bool(stmt.signature.uses_caller);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const std::string& argument : stmt.signature.names) {
      names.push_back(Value::String(argument));
    }
    return Value::MakeTuple(std::move(names));
  };
  return macro;
}

// jinja2's Macro.__call__: fills `scope` and marks the arguments that were given.
void Interpreter::BindMacroArguments(const Stmt& stmt, CallArgs& args, Scope& scope,
                                     std::vector<bool>& given) {
  const Signature& signature = stmt.signature;
  const size_t count = signature.names.size();
  const size_t positional = std::min(count, args.positional.size());
  bool found_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = signature.names[i];
    std::optional<Value> value;
    if (i < positional) {
      value = args.positional[i];
    } else {
      value = args.TakeKeyword(name);
    }
    // With all positions filled, or seen among the rest, an explicit `caller` is taken.
    found_caller |= name == "caller" && (i >= positional || positional == count);
    given[i] = value.has_value();
    if (value) scope.Set(name, std::move(*value));
  }
  if (signature.uses_caller && !found_caller) {
    auto caller = args.TakeKeyword("caller");
    scope.Set("caller", caller && !caller->IsNone() ? std::move(*caller)
                                                    : Value::Undefined("No caller defined"));
  }
  if (signature.uses_kwargs) {
    auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : args.keyword) rest->Set(name, std::move(value));
    scope.Set("kwargs", MakeDict(std::move(rest)));
  } else if (!args.keyword.empty()) {
    if (args.FindKeyword("caller")) {
      Raise(
          "macro {} was invoked with two values for the special caller argument. This is most "
          "likely a bug.",
          StringRepr(stmt.name));
    }
    Raise("macro {} takes no keyword argument {}", StringRepr(stmt.name),
          StringRepr(args.keyword[0].first));
  }
  if (signature.uses_varargs) {
    scope.Set("varargs", Value::MakeTuple(
                             {args.positional.begin() + long(positional), args.positional.end()}));
  } else if (args.positional.size() > count) {
    Raise("macro {} takes not more than {} argument(s)", StringRepr(stmt.name), count);
  }
}

Value Interpreter::CallMacro(const Stmt& stmt, Scope& around, CallArgs& args) {
  const auto scope = NewScope(stmt, 0, std::shared_ptr<Scope>(std::shared_ptr<Scope>(), &around));
  const Signature& signature = stmt.signature;
  std::vector<bool> given(signature.names.size());
  Hide(signature.names, *scope);  // a default sees the parameters before its own
  BindMacroArguments(stmt, args, *scope, given);
  std::string text;
  const Redirect redirect(*this, &text, scope);
  const size_t first_default = signature.names.size() - signature.defaults.size();
  for (size_t i = 0; i < signature.names.size(); ++i) {
    if (given[i]) continue;
    const std::string& name = signature.names[i];
    scope->Set(name, i >= first_default ? Eval(*signature.defaults[i - first_default])
                                        : Value::Undefined(fmt::format(
                                              "parameter {} was not provided", StringRepr(name))));
  }
  ExecBody(stmt.bodies[0]);
  Value result = TextValue(std::move(text));
  Account(result);
  return result;
}

void Interpreter::ExecCallBlock(const Stmt& stmt) {
  const Expr& call = *stmt.exprs[0];
  const Value callee = Eval(*call.parts[0]);
  CallArgs args = EvalArguments(call);
  if (args.FindKeyword("caller")) Raise("got multiple values for keyword argument 'caller'");
  args.keyword.emplace_back("caller", MakeMacro(stmt));
  WriteText(Call(callee, std::move(args)));
}

}  // namespace nibble::jinja
