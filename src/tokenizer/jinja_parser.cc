#include "tokenizer/jinja_parser.h"

#include <algorithm>

#include "tokenizer/jinja_parser_base.h"
#include "tokenizer/jinja_symbols.h"

namespace nibble::jinja {
namespace {

// Statements: what stands between {% and %}.
class Parser : private ExprParser {
 public:
  Parser(std::vector<Token> tokens, Program& program) : ExprParser(std::move(tokens), program) {}

  void Run() {
    program_.body = ParseBody({});
    if (!unknown_.empty()) {
      const Expr* expr = unknown_.front();
      FailAt(expr->line,
             fmt::format("No {} named '{}'.", expr->kind == ExprKind::kFilter ? "filter" : "test",
                         expr->name));
    }
  }

 private:
  Stmt* New(StmtKind kind, int line) {
    Stmt& stmt = program_.stmts.emplace_back();
    stmt.kind = kind;
    stmt.line = line;
    return &stmt;
  }

  // Statements and text up to a tag named one of `end_names`, which stays current.
  Body ParseBody(Names end_names) {
    const Nested nested(*this);
    Body body;
    while (true) {
      switch (Current().kind) {
        case TokenKind::kData:
          body.push_back(ParseData());
          break;
        case TokenKind::kVariableBegin: {
          Stmt* output = New(StmtKind::kOutput, Current().line);
          Next();
          output->exprs.push_back(ParseTuple());
          if (!Is(TokenKind::kVariableEnd)) {
            Fail(fmt::format("expected token 'end of print statement', got '{}'", Describe()));
          }
          Next();
          body.push_back(output);
          break;
        }
        case TokenKind::kBlockBegin:
          Next();
          for (const std::string_view name : end_names) {
            if (IsName(name)) return body;
          }
          body.push_back(ParseStatement());
          ExpectBlockEnd();
          break;
        default:
          if (end_names.size() == 0) return body;
          Fail(
              fmt::format("Unexpected end of template. Jinja was looking for the following tag: "
                          "'{}'.",
                          *(end_names.end() - 1)));
      }
    }
  }

  Stmt* ParseData() {
    Stmt* output = New(StmtKind::kOutput, Current().line);
    Expr& data = program_.exprs.emplace_back();
    data.line = Current().line;
    data.value = Value::String(Current().text);
    output->exprs.push_back(&data);
    Next();
    return output;
  }

  void ExpectBlockEnd() {
    if (!Is(TokenKind::kBlockEnd)) {
      Fail(fmt::format("expected token 'end of statement block', got '{}'", Describe()));
    }
    Next();
  }

  // "%}", the body, and stops at the end tag's name.
  Body ParseBlockBody(Names end_names) {
    SkipOperator(":");
    ExpectBlockEnd();
    return ParseBody(end_names);
  }

  // A body whose end tag is read too. Its frame is a new one: unknown filters are errors again.
  Body ParseInnerBody(std::string_view end_name) {
    const bool outer_soft = std::exchange(soft_, false);
    Body body = ParseBlockBody({end_name});
    Next();
    soft_ = outer_soft;
    return body;
  }

  // The body of a macro, a call block or a generation block: a function of its own.
  Body ParseFunctionBody(std::string_view end_name, Signature& signature) {
    macros_.push_back(&signature);
    const int outer_loops = std::exchange(loops_, 0);
    const int outer_loop_frames = std::exchange(loop_frames_, 0);
    Body body = ParseInnerBody(end_name);
    loops_ = outer_loops;
    loop_frames_ = outer_loop_frames;
    macros_.pop_back();
    const auto declares = [&](std::string_view name) {
      return std::ranges::find(signature.names, name) != signature.names.end();
    };
    if (declares("varargs")) signature.uses_varargs = false;
    if (declares("kwargs")) signature.uses_kwargs = false;
    return body;
  }

  Stmt* ParseStatement() {
    if (!Is(TokenKind::kName)) Fail("tag name expected");
    const std::string tag = Current().text;
    const int line = Current().line;
    Next();
    if (tag == "if") return ParseIf(line);
    if (tag == "for") return ParseFor(line);
    if (tag == "set") return ParseSet(line);
    if (tag == "macro") return ParseMacro(line);
    if (tag == "call") return ParseCallBlock(line);
    if (tag == "filter") return ParseFilterBlock(line);
    if (tag == "with") return ParseWith(line);
    if (tag == "print") return ParsePrint(line);
    if (tag == "block") return ParseNamedBlock(line);
    if (tag == "autoescape") return ParseAutoescape(line);
    if (tag == "break" || tag == "continue") return ParseLoopControl(tag, line);
    if (tag == "generation") {
      Stmt* stmt = New(StmtKind::kGeneration, line);
      stmt->bodies.push_back(ParseFunctionBody("endgeneration", stmt->signature));
      return stmt;
    }
    if (tag == "include" || tag == "import" || tag == "extends" || tag == "from") {
      return ParseRefused(tag, line);
    }
    FailAt(line, fmt::format("Encountered unknown tag '{}'.", tag));
  }

  Stmt* ParseIf(int line) {
    const bool outer_soft = std::exchange(soft_, true);
    Stmt* stmt = New(StmtKind::kIf, line);
    while (true) {
      stmt->exprs.push_back(ParseTuple(false));
      stmt->bodies.push_back(ParseBlockBody({"elif", "else", "endif"}));
      if (SkipName("elif")) continue;
      if (SkipName("else")) stmt->bodies.push_back(ParseBlockBody({"endif"}));
      Next();
      soft_ = outer_soft;
      return stmt;
    }
  }

  Stmt* ParseFor(int line) {
    Stmt* stmt = New(StmtKind::kFor, line);
    ++loop_frames_;
    stmt->targets.push_back(ParseTarget(false, {"in"}));
    ExpectName("in");
    stmt->exprs.push_back(ParseTuple(false, {"recursive"}));
    const bool outer_soft = std::exchange(soft_, false);
    stmt->exprs.push_back(SkipName("if") ? ParseExpression() : nullptr);
    stmt->recursive = SkipName("recursive");
    ++loops_;
    stmt->bodies.push_back(ParseBlockBody({"endfor", "else"}));
    --loops_;
    if (SkipName("else")) stmt->bodies.push_back(ParseBlockBody({"endfor"}));
    Next();
    --loop_frames_;
    soft_ = outer_soft;
    return stmt;
  }

  Stmt* ParseSet(int line) {
    Stmt* stmt = New(StmtKind::kSet, line);
    stmt->targets.push_back(ParseTarget(true, {}));
    if (SkipOperator("=")) {
      stmt->exprs.push_back(ParseTuple());
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->exprs.push_back(ParseFilter(nullptr, false));
    stmt->bodies.push_back(ParseInnerBody("endset"));
    return stmt;
  }

  void ParseSignature(Signature& signature) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!signature.names.empty()) ExpectOperator(",");
      std::string name = ParseTargetName();
      if (std::ranges::find(signature.names, name) != signature.names.end()) {
        Fail(fmt::format("duplicate argument '{}' in function definition", name));
      }
      signature.names.push_back(std::move(name));
      if (SkipOperator("=")) {
        signature.defaults.push_back(ParseExpression());
      } else if (!signature.defaults.empty()) {
        Fail("non-default argument follows default argument");
      }
    }
    ExpectOperator(")");
  }

  void CheckCaller(const Signature& signature, int line) {
    const size_t required = signature.names.size() - signature.defaults.size();
    for (size_t i = 0; signature.uses_caller && i < required; ++i) {
      if (signature.names[i] != "caller") continue;
      FailAt(line,
             "When defining macros or call blocks the special \"caller\" argument must be "
             "omitted or be given a default.");
    }
  }

  Stmt* ParseMacro(int line) {
    Stmt* stmt = New(StmtKind::kMacro, line);
    stmt->name = ParseTargetName();
    ParseSignature(stmt->signature);
    stmt->bodies.push_back(ParseFunctionBody("endmacro", stmt->signature));
    CheckCaller(stmt->signature, line);
    return stmt;
  }

  Stmt* ParseCallBlock(int line) {
    Stmt* stmt = New(StmtKind::kCallBlock, line);
    if (IsOperator("(")) ParseSignature(stmt->signature);
    stmt->exprs.push_back(ParseExpression());
    if (stmt->exprs[0]->kind != ExprKind::kCall) FailAt(line, "expected call");
    stmt->bodies.push_back(ParseFunctionBody("endcall", stmt->signature));
    CheckCaller(stmt->signature, line);
    return stmt;
  }

  Stmt* ParseFilterBlock(int line) {
    Stmt* stmt = New(StmtKind::kFilterBlock, line);
    const bool outer_soft = std::exchange(soft_, false);
    stmt->exprs.push_back(ParseFilter(nullptr, true));
    soft_ = outer_soft;
    stmt->bodies.push_back(ParseInnerBody("endfilter"));
    return stmt;
  }

  Stmt* ParseWith(int line) {
    Stmt* stmt = New(StmtKind::kWith, line);
    while (!Is(TokenKind::kBlockEnd)) {
      if (!stmt->targets.empty()) ExpectOperator(",");
      stmt->targets.push_back(ParseTarget(false, {}));
      ExpectOperator("=");
      stmt->exprs.push_back(ParseExpression());
    }
    stmt->bodies.push_back(ParseInnerBody("endwith"));
    return stmt;
  }

  Stmt* ParsePrint(int line) {
    Stmt* stmt = New(StmtKind::kOutput, line);
    while (!Is(TokenKind::kBlockEnd)) {
      if (!stmt->exprs.empty()) ExpectOperator(",");
      stmt->exprs.push_back(ParseExpression());
    }
    return stmt;
  }

  Stmt* ParseNamedBlock(int line) {
    Stmt* stmt = New(StmtKind::kBlock, line);
    stmt->name = ExpectAnyName();
    stmt->recursive = SkipName("scoped");  // sees the variables around it
    const bool required = SkipName("required");
    if (IsOperator("-")) Fail("Block names in Jinja may not contain hyphens");
    const int outer_loops = std::exchange(loops_, 0);
    stmt->bodies.push_back(ParseInnerBody("endblock"));
    loops_ = outer_loops;
    SkipName(stmt->name);
    if (required) FailAt(line, "Required blocks need a template that extends this one");
    for (const auto& [name, block] : program_.blocks) {
      if (name == stmt->name) FailAt(line, fmt::format("block '{}' defined twice", name));
    }
    program_.blocks.emplace_back(stmt->name, stmt);
    return stmt;
  }

  Stmt* ParseAutoescape(int line) {
    Stmt* stmt = New(StmtKind::kAutoescape, line);
    stmt->exprs.push_back(ParseExpression());
    stmt->bodies.push_back(ParseInnerBody("endautoescape"));
    return stmt;
  }

  Stmt* ParseLoopControl(const std::string& tag, int line) {
    if (loops_ == 0) FailAt(line, fmt::format("'{}' outside loop", tag));
    return New(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
  }

  // Tags that load other templates parse, and raise when reached: there is no loader.
  Stmt* ParseRefused(const std::string& tag, int line) {
    Stmt* stmt = New(StmtKind::kRefused, line);
    stmt->name = tag;
    stmt->exprs.push_back(ParseExpression());
    while (!Is(TokenKind::kBlockEnd)) {
      if (Is(TokenKind::kEnd)) Fail("unexpected end of template");
      Next();
    }
    return stmt;
  }

  std::string ParseTargetName() {
    const int line = Current().line;
    std::string name = ExpectAnyName();
    CheckAssignable(name, line);
    return name;
  }

  void CheckAssignable(const std::string& name, int line) const {
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name == reserved) FailAt(line, fmt::format("can't assign to '{}'", name));
    }
  }

  Target ParseTarget(bool with_namespace, Names end_names) {
    const int line = Current().line;
    std::vector<Target> parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty()) ExpectOperator(",");
      if (IsTupleEnd(end_names)) break;
      parts.push_back(ParseTargetItem(with_namespace));
      if (!IsOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !parts.empty()) return std::move(parts[0]);
    if (!is_tuple) Fail(fmt::format("Expected an expression, got '{}'", Describe()));
    Target target;
    target.line = line;
    target.is_tuple = true;
    target.parts = std::move(parts);
    return target;
  }

  Target ParseTargetItem(bool with_namespace) {
    if (with_namespace && Is(TokenKind::kName) && IsOperator(Ahead(), ".")) {
      Target target;
      target.line = Current().line;
      target.name = ParseTargetName();
      Next();
      target.attribute = ExpectAnyName();
      return target;
    }
    return ToTarget(*ParsePrimary());
  }

  Target ToTarget(const Expr& expr) {
    Target target;
    target.line = expr.line;
    if (expr.kind == ExprKind::kName) {
      if (loop_frames_ > 0 && expr.name == "loop") {
        FailAt(expr.line, "Can't assign to special loop variable in for-loop");
      }
      target.name = expr.name;
    } else if (expr.kind == ExprKind::kTuple) {
      target.is_tuple = true;
      for (const Expr* part : expr.parts) target.parts.push_back(ToTarget(*part));
    } else {
      FailAt(expr.line, "can't assign to an expression");
    }
    return target;
  }

  int loops_ = 0;        // loops that break and continue can leave here
  int loop_frames_ = 0;  // for statements around, in the same function
};

}  // namespace

std::shared_ptr<const Program> ParseTemplate(std::string_view source, const JinjaOptions& options) {
  auto program = std::make_shared<Program>();
  Parser(Tokenize(source, options), *program).Run();
  FindHiddenNames(*program);
  return program;
}

}  // namespace nibble::jinja
