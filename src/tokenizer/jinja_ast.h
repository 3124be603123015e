#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace nibble::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& input, CallArgs& args);
using TestFunction = bool (*)(Interpreter&, const Value& input, CallArgs& args);

enum class ExprKind {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kAnd,
  kOr,
  kCompare,
  kConcat,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest
};

enum class Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 1;
  int depth = 1;     // of the tree below
  std::string name;  // variable, attribute, filter or test
  Value value;       // constant
  // Operands in order: the parts of a list, tuple, concatenation or comparison; key, value, key,
  // value of a dict; test, then, else (may be null) of a conditional; object, index of an item;
  // start, stop, step (may be null) of a slice; callee or input, then arguments, of a call, filter
  // (input may be null: a filter block's) or test.
  std::vector<const Expr*> parts;
  std::vector<Op> ops;  // one of a binary operation, n-1 of a comparison
  std::vector<std::pair<std::string, const Expr*>> keywords;
  const Expr* star_args = nullptr;
  const Expr* star_kwargs = nullptr;
  FilterFunction filter = nullptr;  // null: unknown, raised when reached
  TestFunction test = nullptr;
};

enum class StmtKind {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBlock,
  kBreak,
  kContinue,
  kGeneration,
  kAutoescape,
  kRefused
};

struct Stmt;
using Body = std::vector<Stmt*>;

struct Signature {
  std::vector<std::string> names;
  std::vector<const Expr*> defaults;  // of the last names
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

// Where an assignment goes: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int line = 1;
  std::string name;
  std::string attribute;  // not empty: of a namespace
  bool is_tuple = false;
  std::vector<Target> parts;
};

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  int line = 1;
  std::string name;                // of a macro, a block, a refused tag
  std::vector<const Expr*> exprs;  // outputs; tests of if and elif; iterable and filter of for;
                                   // value of set; filter; call; values of with
  std::vector<Target> targets;
  std::vector<Body> bodies;  // one per test, and else
  Signature signature;
  bool recursive = false;  // of a block: scoped
  // Per body, the names that are undefined when its frame begins, whatever the context holds.
  std::vector<std::vector<std::string>> hidden;
};

struct Program {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  Body body;
  std::vector<std::string> hidden;
  std::vector<std::pair<std::string, const Stmt*>> blocks;
};

}  // namespace nibble::jinja
