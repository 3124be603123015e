#include "grammar/expression.h"

#include <utility>

namespace nibble::grammar {

ExprId GrammarSource::Push(Expr e) {
  exprs_.push_back(e);
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId GrammarSource::Compound(Kind kind, const std::vector<ExprId>& parts) {
  if (parts.size() == 1) return parts.front();
  const auto first = static_cast<uint32_t>(children_.size());
  children_.insert(children_.end(), parts.begin(), parts.end());
  return Push({.kind = kind, .first = first, .count = static_cast<uint32_t>(parts.size())});
}

ExprId GrammarSource::Bytes(std::string text) {
  texts_.push_back(std::move(text));
  return Push({.kind = Kind::kBytes, .first = static_cast<uint32_t>(texts_.size() - 1)});
}

ExprId GrammarSource::Chars(CodePointSet set) {
  set.Ranges();
  sets_.push_back(std::move(set));
  return Push({.kind = Kind::kChars, .first = static_cast<uint32_t>(sets_.size() - 1)});
}

ExprId GrammarSource::Repeat(ExprId body, int min, int max) {
  const auto first = static_cast<uint32_t>(children_.size());
  children_.push_back(body);
  return Push({.kind = Kind::kRepeat, .first = first, .count = 1, .min = min, .max = max});
}

ExprId GrammarSource::Use(RuleId rule) {
  return Push({.kind = Kind::kRule, .first = static_cast<uint32_t>(rule)});
}

ExprId GrammarSource::Add(Graph graph) {
  graphs_.push_back(std::move(graph));
  return Push({.kind = Kind::kGraph, .first = static_cast<uint32_t>(graphs_.size() - 1)});
}

RuleId GrammarSource::Declare(std::string name, int line) {
  rules_.push_back({.name = std::move(name), .line = line});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarSource::Define(RuleId id, ExprId body) {
  rule(id).body = body;
  rule(id).defined = true;
}

RuleId GrammarSource::AddRule(std::string name, ExprId body, int line) {
  const RuleId id = Declare(std::move(name), line);
  Define(id, body);
  return id;
}

}  // namespace nibble::grammar
