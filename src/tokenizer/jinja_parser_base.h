#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace nibble::jinja {

// Recursive descent over the tokens of one template: the part that reads expressions. Precedence
// is jinja2's: or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix, filters and tests.
class ExprParser {
 protected:
  using Names = std::initializer_list<std::string_view>;

  ExprParser(std::vector<Token> tokens, Program& program)
      : program_(program), tokens_(std::move(tokens)) {}

  const Expr* ParseExpression(bool with_conditional = true);
  // Of a tuple in parentheses or without; `end_names` end it.
  const Expr* ParseTuple(bool with_conditional = true, Names end_names = {},
                         bool in_parentheses = false);
  const Expr* ParsePrimary();
  // Filters behind `input`, which may be null; with `at_name` the first | is already read.
  const Expr* ParseFilter(const Expr* input, bool at_name);

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool Is(TokenKind kind) const { return Current().kind == kind; }
  bool IsOperator(std::string_view text) const { return IsOperator(Current(), text); }
  static bool IsOperator(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kOperator && token.text == text;
  }
  bool IsName(std::string_view text) const { return IsName(Current(), text); }
  static bool IsName(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kName && token.text == text;
  }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  void ExpectOperator(std::string_view text);
  void ExpectName(std::string_view text);
  std::string ExpectAnyName();
  bool IsTupleEnd(Names end_names) const;

  [[noreturn]] void Fail(std::string message) const { FailAt(Current().line, std::move(message)); }
  [[noreturn]] static void FailAt(int line, std::string message);
  std::string Describe() const;  // the current token, for messages

  // Guards recursion of the parser.
  class Nested {
   public:
    explicit Nested(ExprParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExprParser& parser_;
  };

  Program& program_;
  // jinja2 checks the names of filters and tests at compile time, but not below an `if`.
  bool soft_ = false;
  std::vector<const Expr*> unknown_;  // filters and tests that are an error wherever they stand
  std::vector<Signature*> macros_;    // around the current place

 private:
  Expr* New(ExprKind kind, int line);
  const Expr* Done(Expr* expr) const;  // checks its depth
  const Expr* NewBinary(ExprKind kind, int line, const Expr* left, const Expr* right);

  const Expr* ParseConditional();
  const Expr* ParseOr();
  const Expr* ParseAnd();
  const Expr* ParseNot();
  const Expr* ParseCompare();
  const Expr* ParseSum();
  const Expr* ParseConcat();
  const Expr* ParseProduct();
  const Expr* ParsePower();
  const Expr* ParseUnary(bool with_filter = true);
  const Expr* ParseNameOrConstant();
  const Expr* ParseList();
  const Expr* ParseDict();
  const Expr* ParsePostfix(const Expr* expr);
  const Expr* ParseFiltersAndTests(const Expr* expr);
  const Expr* ParseSubscript(const Expr* object);
  const Expr* ParseSubscribed();
  const Expr* ParseCall(const Expr* callee);
  const Expr* ParseTest(const Expr* input);
  void ParseCallArguments(Expr* call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace nibble::jinja
