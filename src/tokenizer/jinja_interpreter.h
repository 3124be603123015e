#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace nibble::jinja {

// Variables of one frame. A name is looked up here, then in the frames around, then in the context.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> around) : parent(std::move(around)) {}
  const Value* Find(std::string_view name) const;
  void Set(const std::string& name, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  bool captured = false;  // by a macro, so it outlives its frame
};

// The `loop` variable. Items are drawn one by one: a loop's filter may depend on what the body did.
struct Loop : Object {
  std::function<std::optional<Value>()> next;
  std::optional<int64_t> known_length;
  std::deque<Value> ahead;
  int64_t index0 = -1;
  int depth0 = 0;
  Value previous, current;
  std::optional<std::vector<Value>> last_changed;
  std::function<Value(const Value& iterable)> recurse;  // empty: not recursive

  bool Advance();       // false at the end
  const Value* Peek();  // the next item, null at the end
  int64_t Length();
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Value& context, const JinjaRenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string Run();
  int line() const { return line_; }

  // What filters, tests and methods need.
  void Charge(int64_t steps);
  void CheckStringSize(size_t bytes) const;  // raises when a string of that size is too large
  void CheckItemCount(int64_t count);        // likewise for a list
  Value GetAttribute(const Value& object, const std::string& name);
  Value GetItem(const Value& object, const Value& key);
  Value Call(const Value& callee, CallArgs args);
  Value CallFilter(const std::string& name, const Value& input, CallArgs args);
  bool CallTest(const std::string& name, const Value& input, CallArgs args);
  std::vector<Value> Collect(const Value& iterable);         // list(iterable)
  bool Contains(const Value& container, const Value& item);  // item in container
  std::string Str(const Value& value) { return ToStr(value, limits_.max_output_bytes); }
  size_t max_string() const { return limits_.max_output_bytes; }
  JinjaTime Now() const;
  Value NewNamespace(CallArgs& args);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Depth;
  class Redirect;

  // Statements (jinja_statements.cc).
  Flow ExecBody(const Body& body);
  Flow Exec(const Stmt& stmt);
  void ExecOutput(const Stmt& stmt);
  Flow ExecIf(const Stmt& stmt);
  void ExecFor(const Stmt& stmt);
  void RunLoop(const Stmt& stmt, const Value& iterable, int depth0);
  bool RunIterations(const Stmt& stmt, const std::shared_ptr<Loop>& loop);
  Value RunLoopCall(const Stmt& stmt, const Value& iterable, std::shared_ptr<Scope> scope,
                    int depth0);
  std::function<std::optional<Value>()> Filtered(const Stmt& stmt, const Value& iterable);
  void ExecSetBlock(const Stmt& stmt);
  Flow ExecWith(const Stmt& stmt);
  Flow ExecFilterBlock(const Stmt& stmt);
  Flow ExecAutoescape(const Stmt& stmt);
  void ExecCallBlock(const Stmt& stmt);
  void ExecBlock(const Stmt& stmt);
  void Assign(const Target& target, const Value& value);
  // Names that a frame begins with as undefined are in it as plain Value().
  static void Hide(const std::vector<std::string>& names, Scope& scope);
  // The frame of a statement's body.
  std::shared_ptr<Scope> NewScope(const Stmt& stmt, size_t body, std::shared_ptr<Scope> around);
  Value MakeMacro(const Stmt& stmt);
  Value CallMacro(const Stmt& stmt, Scope& around, CallArgs& args);
  Value MakeSelf();
  void BindMacroArguments(const Stmt& stmt, CallArgs& args, Scope& scope, std::vector<bool>& given);
  void Capture(const std::shared_ptr<Scope>& scope);
  void Write(std::string_view text);
  void WriteText(const Value& value);
  Value TextValue(std::string text) const { return Value::String(std::move(text), autoescape_); }

  // Expressions (jinja_eval.cc).
  Value Eval(const Expr& expr);
  Value EvalNode(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalItems(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalUnary(const Expr& expr);
  Value EvalBinary(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  Value EvalConditional(const Expr& expr);
  Value EvalItem(const Expr& expr);
  Value EvalSlice(const Value& object, const Expr& slice);
  Value EvalCall(const Expr& expr);
  Value ApplyFilter(const Expr& expr, const Value& input);
  // Of a filter or set block: the innermost filter takes `input`.
  Value ApplyFilterChain(const Expr& expr, const Value& input);
  Value EvalTest(const Expr& expr);
  CallArgs EvalArguments(const Expr& expr);
  Value LookUp(const std::string& name);
  Value FindGlobal(const std::string& name);
  void Account(const Value& made);

  const Program& program_;
  const Value& context_;
  const JinjaRenderOptions& options_;
  const JinjaLimits& limits_;
  std::chrono::steady_clock::time_point deadline_;
  int64_t steps_ = 0;
  int64_t next_time_check_ = 0;
  size_t string_bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  bool autoescape_ = false;
  std::string* out_ = nullptr;
  std::shared_ptr<Scope> root_;
  std::shared_ptr<Scope> scope_;
  // What can form cycles is kept here and emptied at the end.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// The positional and keyword arguments of a call, matched to parameter names; raises TypeError's
// text when they do not fit. Absent ones stay null.
class Arguments {
 public:
  Arguments(const char* function, CallArgs& args, std::initializer_list<const char*> names,
            size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i]; }
  bool Has(size_t i) const { return values_[i] != nullptr; }
  const Value& Get(size_t i) const { return *values_[i]; }
  Value GetOr(size_t i, Value fallback) const { return values_[i] ? *values_[i] : fallback; }
  int64_t Int(size_t i, int64_t fallback) const;  // raises unless an integer
  bool Bool(size_t i, bool fallback) const;       // truth value
  // Text of a string; raises on anything else.
  const std::string& Text(size_t i) const;

 private:
  const char* function_;
  std::vector<const Value*> values_;
};

// The same for Python's built-in methods that take no keyword arguments.
class Positional : public Arguments {
 public:
  Positional(const char* function, CallArgs& args, std::initializer_list<const char*> names,
             size_t required = 0)
      : Arguments(function, args, names, required) {
    if (!args.keyword.empty()) Raise("{}() takes no keyword arguments", function);
  }
};

int64_t RequireInt(const Value& value);  // an int or bool, else raises as Python does

// Operators (jinja_operators.cc).
Value Add(Interpreter& in, const Value& a, const Value& b);
Value BinaryOp(Interpreter& in, Op op, const Value& a, const Value& b);
Value Negate(const Value& value);
const char* OpText(Op op);
Value SliceOf(const Value& object, const Value& start, const Value& stop, const Value& step);
// Python's `text % args` and text.format(args).
std::string PercentFormat(Interpreter& in, const std::string& text, const Value& args);
std::string BraceFormat(Interpreter& in, const std::string& text, const CallArgs& args);
std::string FormatValue(Interpreter& in, const Value& value, const std::string& spec);
std::string FormatFloat(double value, char type, int precision, bool alternate);

// A method of str, list, tuple, dict, ...; null when there is none of that name.
using Method = Value (*)(Interpreter&, const Value& self, CallArgs& args);
Method FindMethod(const Value& object, std::string_view name);
bool IsRefusedMutator(const Value& object, std::string_view name);

// jinja_json.cc
Value ToJson(Interpreter& in, const Value& value, CallArgs& args);
// jinja_time.cc
std::string FormatTime(const JinjaTime& time, const std::string& format);
// jinja_globals.cc: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
Value MakeGlobal(const std::string& name);
void FillDict(Interpreter& in, Dict& dict, const CallArgs& args);

}  // namespace nibble::jinja
