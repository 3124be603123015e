#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace nibble::grammar {

enum class ExprId : uint32_t {};
enum class RuleId : uint32_t {};

inline constexpr int kUnbounded = -1;

// A grammar as what its text said, whatever language that was in: rules over expressions, which
// AutomatonOf turns into an automaton over bytes. Expressions are shared freely.
class GrammarSource {
 public:
  enum class Kind : uint8_t { kBytes, kChars, kSequence, kChoice, kRepeat, kRule, kGraph };
  struct Expr {
    Kind kind = Kind::kSequence;
    uint32_t first = 0;  // into children, texts, sets, graphs, or the rule
    uint32_t count = 0;  // of children
    int min = 0;         // of kRepeat
    int max = 0;
  };
  struct Rule {
    std::string name;
    int line = 0;  // where it is defined; 0: nowhere to be shown
    bool defined = false;
    ExprId body{};
  };
  // States with edges: an edge matches its label and goes on at its target.
  struct GraphEdge {
    ExprId label{};
    uint32_t target = 0;
  };
  struct GraphState {
    std::vector<GraphEdge> edges;
    bool final = false;
  };
  using Graph = std::vector<GraphState>;  // begins at state 0

  ExprId Empty() { return Sequence({}); }
  ExprId Never() { return Choice({}); }
  ExprId Bytes(std::string text);
  ExprId Chars(CodePointSet set);
  ExprId Sequence(const std::vector<ExprId>& parts) { return Compound(Kind::kSequence, parts); }
  ExprId Choice(const std::vector<ExprId>& parts) { return Compound(Kind::kChoice, parts); }
  // max: kUnbounded, or at least min.
  ExprId Repeat(ExprId body, int min, int max);
  ExprId Optional(ExprId body) { return Repeat(body, 0, 1); }
  ExprId Use(RuleId rule);
  ExprId Add(Graph graph);

  RuleId Declare(std::string name, int line = 0);
  void Define(RuleId rule, ExprId body);
  // A rule of one expression.
  RuleId AddRule(std::string name, ExprId body, int line = 0);

  void SetRoot(RuleId rule) { root_ = rule; }
  RuleId root() const { return root_; }
  size_t rule_count() const { return rules_.size(); }
  Rule& rule(RuleId id) { return rules_[static_cast<uint32_t>(id)]; }
  const Rule& rule(RuleId id) const { return rules_[static_cast<uint32_t>(id)]; }
  const Expr& expr(ExprId id) const { return exprs_[static_cast<uint32_t>(id)]; }
  size_t expr_count() const { return exprs_.size(); }
  ExprId child(const Expr& e, uint32_t i) const { return children_[e.first + i]; }
  const std::string& text(const Expr& e) const { return texts_[e.first]; }
  const CodePointSet& set(const Expr& e) const { return sets_[e.first]; }
  const Graph& graph(const Expr& e) const { return graphs_[e.first]; }

 private:
  ExprId Push(Expr e);
  ExprId Compound(Kind kind, const std::vector<ExprId>& parts);

  std::vector<Expr> exprs_;
  std::vector<ExprId> children_;
  std::vector<std::string> texts_;
  std::vector<CodePointSet> sets_;
  std::vector<Graph> graphs_;
  std::vector<Rule> rules_;
  RuleId root_{};
};

}  // namespace nibble::grammar
