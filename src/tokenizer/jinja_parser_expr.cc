#include <algorithm>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_parser_base.h"

namespace nibble::jinja {
namespace {

// Both above what Python's own recursion limit lets jinja2 parse and compile.
constexpr int kMaxNesting = 300;
constexpr int kMaxTreeDepth = 400;

struct OpName {
  std::string_view text;
  Op op;
};
constexpr OpName kCompareOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                  {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
constexpr OpName kSumOps[] = {{"+", Op::kAdd}, {"-", Op::kSub}};
constexpr OpName kProductOps[] = {
    {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};

template <size_t N>
const OpName* FindOp(const OpName (&table)[N], const Token& token) {
  if (token.kind != TokenKind::kOperator) return nullptr;
  const auto* it = std::ranges::find(table, std::string_view(token.text), &OpName::text);
  return it == std::end(table) ? nullptr : it;
}

}  // namespace

ExprParser::Nested::Nested(ExprParser& parser) : parser_(parser) {
  if (++parser.nesting_ > kMaxNesting) parser.Fail("the template nests too deeply");
}

void ExprParser::FailAt(int line, std::string message) {
  TemplateError error(std::move(message));
  error.line = line;
  throw error;
}

std::string ExprParser::Describe() const {
  switch (Current().kind) {
    case TokenKind::kData:
      return "template data";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return Current().text;
  }
}

bool ExprParser::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Next();
  return true;
}

bool ExprParser::SkipName(std::string_view text) {
  if (!IsName(text)) return false;
  Next();
  return true;
}

void ExprParser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) Fail(fmt::format("expected token '{}', got '{}'", text, Describe()));
}

void ExprParser::ExpectName(std::string_view text) {
  if (!SkipName(text)) Fail(fmt::format("expected token '{}', got '{}'", text, Describe()));
}

std::string ExprParser::ExpectAnyName() {
  if (!Is(TokenKind::kName)) Fail(fmt::format("expected token 'name', got '{}'", Describe()));
  std::string name = Current().text;
  Next();
  return name;
}

bool ExprParser::IsTupleEnd(Names end_names) const {
  return Is(TokenKind::kVariableEnd) || Is(TokenKind::kBlockEnd) || IsOperator(")") ||
         std::ranges::any_of(end_names, [&](std::string_view name) { return IsName(name); });
}

Expr* ExprParser::New(ExprKind kind, int line) {
  Expr& expr = program_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = line;
  return &expr;
}

const Expr* ExprParser::Done(Expr* expr) const {
  int depth = 0;
  const auto see = [&](const Expr* part) {
    if (part) depth = std::max(depth, part->depth);
  };
  std::ranges::for_each(expr->parts, see);
  for (const auto& [name, value] : expr->keywords) see(value);
  see(expr->star_args);
  see(expr->star_kwargs);
  expr->depth = depth + 1;
  if (expr->depth > kMaxTreeDepth) FailAt(expr->line, "an expression nests too deeply");
  return expr;
}

const Expr* ExprParser::NewBinary(ExprKind kind, int line, const Expr* left, const Expr* right) {
  Expr* expr = New(kind, line);
  expr->parts = {left, right};
  return Done(expr);
}

const Expr* ExprParser::ParseExpression(bool with_conditional) {
  const Nested nested(*this);
  return with_conditional ? ParseConditional() : ParseOr();
}

// a if b else c. What stands in it is compiled as below an `if`: unknown names are no error yet.
const Expr* ExprParser::ParseConditional() {
  const size_t unknown_before = unknown_.size();
  const int line = Current().line;
  const Expr* then = ParseOr();
  while (SkipName("if")) {
    const Expr* test = ParseOr();
    const Expr* other = nullptr;
    if (SkipName("else")) {
      const Nested nested(*this);
      other = ParseConditional();
    }
    Expr* expr = New(ExprKind::kConditional, line);
    expr->parts = {test, then, other};
    then = Done(expr);
    unknown_.resize(unknown_before);
  }
  return then;
}

const Expr* ExprParser::ParseOr() {
  const int line = Current().line;
  const Expr* left = ParseAnd();
  while (SkipName("or")) left = NewBinary(ExprKind::kOr, line, left, ParseAnd());
  return left;
}

const Expr* ExprParser::ParseAnd() {
  const int line = Current().line;
  const Expr* left = ParseNot();
  while (SkipName("and")) left = NewBinary(ExprKind::kAnd, line, left, ParseNot());
  return left;
}

const Expr* ExprParser::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseCompare();
  const Nested nested(*this);
  Expr* expr = New(ExprKind::kNot, line);
  expr->parts = {ParseNot()};
  return Done(expr);
}

const Expr* ExprParser::ParseCompare() {
  const int line = Current().line;
  const Expr* first = ParseSum();
  std::vector<const Expr*> parts = {first};
  std::vector<Op> ops;
  while (true) {
    if (const OpName* op = FindOp(kCompareOps, Current())) {
      Next();
      ops.push_back(op->op);
    } else if (SkipName("in")) {
      ops.push_back(Op::kIn);
    } else if (IsName("not") && IsName(Ahead(), "in")) {
      Next();
      Next();
      ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    parts.push_back(ParseSum());
  }
  if (ops.empty()) return first;
  Expr* expr = New(ExprKind::kCompare, line);
  expr->parts = std::move(parts);
  expr->ops = std::move(ops);
  return Done(expr);
}

const Expr* ExprParser::ParseSum() {
  const int line = Current().line;
  const Expr* left = ParseConcat();
  while (const OpName* op = FindOp(kSumOps, Current())) {
    Next();
    Expr* expr = New(ExprKind::kBinary, line);
    expr->ops = {op->op};
    expr->parts = {left, ParseConcat()};
    left = Done(expr);
  }
  return left;
}

const Expr* ExprParser::ParseConcat() {
  const int line = Current().line;
  const Expr* first = ParseProduct();
  if (!IsOperator("~")) return first;
  std::vector<const Expr*> parts = {first};
  while (SkipOperator("~")) parts.push_back(ParseProduct());
  Expr* expr = New(ExprKind::kConcat, line);
  expr->parts = std::move(parts);
  return Done(expr);
}

const Expr* ExprParser::ParseProduct() {
  const int line = Current().line;
  const Expr* left = ParsePower();
  while (const OpName* op = FindOp(kProductOps, Current())) {
    Next();
    Expr* expr = New(ExprKind::kBinary, line);
    expr->ops = {op->op};
    expr->parts = {left, ParsePower()};
    left = Done(expr);
  }
  return left;
}

const Expr* ExprParser::ParsePower() {
  const int line = Current().line;
  const Expr* left = ParseUnary();
  while (SkipOperator("**")) {
    Expr* expr = New(ExprKind::kBinary, line);
    expr->ops = {Op::kPow};
    expr->parts = {left, ParseUnary()};
    left = Done(expr);
  }
  return left;
}

const Expr* ExprParser::ParseUnary(bool with_filter) {
  const Nested nested(*this);
  const int line = Current().line;
  const Expr* node = nullptr;
  if (IsOperator("-") || IsOperator("+")) {
    Expr* expr = New(IsOperator("-") ? ExprKind::kNegate : ExprKind::kPlus, line);
    Next();
    expr->parts = {ParseUnary(false)};
    node = Done(expr);
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(node);
  return with_filter ? ParseFiltersAndTests(node) : node;
}

const Expr* ExprParser::ParseNameOrConstant() {
  const Token& token = Current();
  Expr* expr = New(ExprKind::kConst, token.line);
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->value = Value::Bool(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    expr->value = Value::None();
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
    for (Signature* macro : macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
    }
  }
  Next();
  return expr;
}

const Expr* ExprParser::ParsePrimary() {
  const Nested nested(*this);
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString: {
      Expr* expr = New(ExprKind::kConst, token.line);
      std::string text;
      for (; Is(TokenKind::kString); Next()) text += Current().text;
      expr->value = Value::String(std::move(text));
      return expr;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      Expr* expr = New(ExprKind::kConst, token.line);
      expr->value = token.number;
      Next();
      return expr;
    }
    default:
      break;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  if (!SkipOperator("(")) Fail(fmt::format("unexpected '{}'", Describe()));
  const Expr* tuple = ParseTuple(true, {}, true);
  ExpectOperator(")");
  return tuple;
}

const Expr* ExprParser::ParseTuple(bool with_conditional, Names end_names, bool in_parentheses) {
  const int line = Current().line;
  std::vector<const Expr*> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) ExpectOperator(",");
    if (IsTupleEnd(end_names)) break;
    parts.push_back(ParseExpression(with_conditional));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return parts[0];
  if (!is_tuple && !in_parentheses) {
    Fail(fmt::format("Expected an expression, got '{}'", Describe()));
  }
  Expr* expr = New(ExprKind::kTuple, line);
  expr->parts = std::move(parts);
  return Done(expr);
}

const Expr* ExprParser::ParseList() {
  Expr* expr = New(ExprKind::kList, Current().line);
  ExpectOperator("[");
  while (!IsOperator("]")) {
    if (!expr->parts.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    expr->parts.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return Done(expr);
}

const Expr* ExprParser::ParseDict() {
  Expr* expr = New(ExprKind::kDict, Current().line);
  ExpectOperator("{");
  while (!IsOperator("}")) {
    if (!expr->parts.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    expr->parts.push_back(ParseExpression());
    ExpectOperator(":");
    expr->parts.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return Done(expr);
}

const Expr* ExprParser::ParsePostfix(const Expr* expr) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      expr = ParseSubscript(expr);
    } else if (IsOperator("(")) {
      expr = ParseCall(expr);
    } else {
      return expr;
    }
  }
}

const Expr* ExprParser::ParseFiltersAndTests(const Expr* expr) {
  while (true) {
    if (IsOperator("|")) {
      expr = ParseFilter(expr, false);
    } else if (IsName("is")) {
      expr = ParseTest(expr);
    } else if (IsOperator("(")) {
      expr = ParseCall(expr);
    } else {
      return expr;
    }
  }
}

const Expr* ExprParser::ParseSubscript(const Expr* object) {
  const int line = Current().line;
  if (SkipOperator(".")) {
    const Token token = Current();
    Next();
    if (token.kind == TokenKind::kName) {
      Expr* expr = New(ExprKind::kAttribute, line);
      expr->name = token.text;
      expr->parts = {object};
      return Done(expr);
    }
    if (token.kind != TokenKind::kInteger) FailAt(token.line, "expected name or number");
    Expr* index = New(ExprKind::kConst, token.line);
    index->value = token.number;
    return NewBinary(ExprKind::kItem, line, object, index);
  }
  ExpectOperator("[");
  std::vector<const Expr*> parts;
  while (!IsOperator("]")) {
    if (!parts.empty()) ExpectOperator(",");
    parts.push_back(ParseSubscribed());
  }
  ExpectOperator("]");
  if (parts.size() == 1) return NewBinary(ExprKind::kItem, line, object, parts[0]);
  Expr* tuple = New(ExprKind::kTuple, line);
  tuple->parts = std::move(parts);
  return NewBinary(ExprKind::kItem, line, object, Done(tuple));
}

const Expr* ExprParser::ParseSubscribed() {
  const int line = Current().line;
  const Expr* start = nullptr;
  if (!IsOperator(":")) {
    start = ParseExpression();
    if (!IsOperator(":")) return start;
  }
  Next();
  Expr* slice = New(ExprKind::kSlice, line);
  const auto at_end = [&] { return IsOperator("]") || IsOperator(","); };
  const Expr* stop = IsOperator(":") || at_end() ? nullptr : ParseExpression();
  const Expr* step = nullptr;
  if (SkipOperator(":") && !at_end()) step = ParseExpression();
  slice->parts = {start, stop, step};
  return Done(slice);
}

void ExprParser::ParseCallArguments(Expr* call) {
  const int line = Current().line;
  ExpectOperator("(");
  bool has_positional_only = true;
  bool first = true;
  const auto ensure = [line](bool ok) {
    if (!ok) FailAt(line, "invalid syntax for function call expression");
  };
  while (!IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    first = false;
    if (SkipOperator("*")) {
      ensure(!call->star_args && !call->star_kwargs);
      call->star_args = ParseExpression();
    } else if (SkipOperator("**")) {
      ensure(!call->star_kwargs);
      call->star_kwargs = ParseExpression();
    } else if (Is(TokenKind::kName) && IsOperator(Ahead(), "=")) {
      ensure(!call->star_kwargs);
      std::string key = ExpectAnyName();
      Next();
      for (const auto& [name, value] : call->keywords) {
        if (name == key) FailAt(line, "keyword argument repeated: " + key);
      }
      call->keywords.emplace_back(std::move(key), ParseExpression());
      has_positional_only = false;
    } else {
      ensure(!call->star_args && !call->star_kwargs && has_positional_only);
      call->parts.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
}

const Expr* ExprParser::ParseCall(const Expr* callee) {
  Expr* call = New(ExprKind::kCall, Current().line);
  call->parts = {callee};
  ParseCallArguments(call);
  return Done(call);
}

const Expr* ExprParser::ParseFilter(const Expr* input, bool at_name) {
  while (at_name || SkipOperator("|")) {
    at_name = false;
    Expr* filter = New(ExprKind::kFilter, Current().line);
    filter->name = ExpectAnyName();
    while (SkipOperator(".")) filter->name += "." + ExpectAnyName();
    filter->parts = {input};
    if (IsOperator("(")) ParseCallArguments(filter);
    filter->filter = FindFilter(filter->name);
    if (!filter->filter && !soft_) unknown_.push_back(filter);
    input = Done(filter);
  }
  return input;
}

const Expr* ExprParser::ParseTest(const Expr* input) {
  Expr* test = New(ExprKind::kTest, Current().line);
  Next();
  const bool negated = SkipName("not");
  test->name = ExpectAnyName();
  while (SkipOperator(".")) test->name += "." + ExpectAnyName();
  test->parts = {input};
  const bool starts_value = Is(TokenKind::kName) || Is(TokenKind::kString) ||
                            Is(TokenKind::kInteger) || Is(TokenKind::kFloat) || IsOperator("[") ||
                            IsOperator("{");
  if (IsOperator("(")) {
    ParseCallArguments(test);
  } else if (starts_value && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Fail("You cannot chain multiple tests with is");
    test->parts.push_back(ParsePostfix(ParsePrimary()));
  }
  test->test = FindTest(test->name);
  if (!test->test && !soft_) unknown_.push_back(test);
  const Expr* result = Done(test);
  if (!negated) return result;
  Expr* inverse = New(ExprKind::kNot, test->line);
  inverse->parts = {result};
  return Done(inverse);
}

}  // namespace nibble::jinja
