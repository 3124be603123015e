#include "grammar/automaton_builder.h"

#include <string>

namespace nibble::grammar {
namespace {

constexpr int kMaxNesting = 2000;

// Builds backwards: an expression is built in front of the state that follows it.
class RawBuilder {
 public:
  RawBuilder(const GrammarSource& source, const AutomatonLimits& limits)
      : source_(source), limits_(limits), index_(source.rule_count(), RawAutomaton::kNone) {}

  Result<RawAutomaton> Build() {
    IndexOf(source_.root());
    for (size_t i = 0; i < raw_.rules.size(); ++i) {  // grows meanwhile
      const GrammarSource::Rule& rule = source_.rule(raw_.rules[i].id);
      if (!rule.defined) return BadInput("{} is used and nowhere defined", RuleName(rule));
      current_ = &rule;
      const uint32_t end = NewState();
      raw_.rules[i].end = end;
      NIBBLE_TRY(const uint32_t start, Before(rule.body, end, 0));
      // A state of its own, that no loop comes back to.
      raw_.rules[i].start = NewState();
      AddEmpty(raw_.rules[i].start, start);
    }
    NIBBLE_RETURN_IF_ERROR(CheckSize());
    return std::move(raw_);
  }

 private:
  using Kind = GrammarSource::Kind;
  using Expr = GrammarSource::Expr;

  uint32_t NewState() { return raw_.states++; }
  void AddEmpty(uint32_t source, uint32_t target) { raw_.empties.push_back({source, target}); }

  uint32_t IndexOf(RuleId id) {
    uint32_t& index = index_[static_cast<uint32_t>(id)];
    if (index == RawAutomaton::kNone) {
      index = static_cast<uint32_t>(raw_.rules.size());
      raw_.rules.push_back({.id = id});
    }
    return index;
  }

  Status CheckSize() const {
    if (raw_.states <= limits_.max_states &&
        raw_.bytes.size() + raw_.empties.size() + raw_.calls.size() <= limits_.max_edges) {
      return {};
    }
    return BadInput("the grammar is too large: more than {} states or {} edges, reached in {}",
                    limits_.max_states, limits_.max_edges, RuleName(*current_));
  }

  Result<uint32_t> Before(ExprId id, uint32_t next, int depth) {
    NIBBLE_RETURN_IF_ERROR(CheckSize());
    if (depth > kMaxNesting) {
      return BadInput("{} nests deeper than {}", RuleName(*current_), kMaxNesting);
    }
    const Expr& e = source_.expr(id);
    switch (e.kind) {
      case Kind::kBytes:
        return BeforeBytes(source_.text(e), next);
      case Kind::kChars:
        return BeforeChars(e, next);
      case Kind::kSequence: {
        for (uint32_t i = e.count; i > 0; --i) {
          NIBBLE_TRY(next, Before(source_.child(e, i - 1), next, depth + 1));
        }
        return next;
      }
      case Kind::kChoice: {
        const uint32_t start = NewState();
        for (uint32_t i = 0; i < e.count; ++i) {
          NIBBLE_TRY(const uint32_t one, Before(source_.child(e, i), next, depth + 1));
          AddEmpty(start, one);
        }
        return start;
      }
      case Kind::kRepeat:
        return BeforeRepeat(e, next, depth);
      case Kind::kRule: {
        const uint32_t start = NewState();
        raw_.calls.push_back({start, IndexOf(static_cast<RuleId>(e.first)), next});
        return start;
      }
      case Kind::kGraph:
        break;
    }
    return BeforeGraph(source_.graph(e), next, depth);
  }

  uint32_t BeforeBytes(const std::string& text, uint32_t next) {
    for (size_t i = text.size(); i > 0; --i) {
      const uint32_t start = NewState();
      const auto byte = static_cast<uint8_t>(text[i - 1]);
      raw_.bytes.push_back({start, byte, byte, next});
      next = start;
    }
    return next;
  }

  // Sequences that end alike share their ends.
  uint32_t BeforeChars(const Expr& e, uint32_t next) {
    const auto [found, is_new] = chars_.try_emplace({e.first, next}, 0);
    if (!is_new) return found->second;
    const uint32_t start = NewState();
    found->second = start;
    std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> ends;
    VisitUtf8(source_.set(e), [&](const DigitRange* bytes, int count) {
      uint32_t target = next;
      for (int i = count - 1; i > 0; --i) {
        const auto [end, first] =
            ends.try_emplace({bytes[i].low, bytes[i].high, target}, raw_.states);
        if (first) {
          const uint32_t state = NewState();
          raw_.bytes.push_back({state, bytes[i].low, bytes[i].high, target});
        }
        target = end->second;
      }
      raw_.bytes.push_back({start, bytes[0].low, bytes[0].high, target});
    });
    return start;
  }

  Result<uint32_t> BeforeRepeat(const Expr& e, uint32_t next, int depth) {
    const ExprId body = source_.child(e, 0);
    uint32_t target = next;
    if (e.max == kUnbounded) {
      const uint32_t loop = NewState();
      NIBBLE_TRY(const uint32_t once, Before(body, loop, depth + 1));
      AddEmpty(loop, once);
      AddEmpty(loop, next);
      target = loop;
    } else {
      for (int i = e.min; i < e.max; ++i) {
        NIBBLE_TRY(const uint32_t once, Before(body, target, depth + 1));
        const uint32_t choice = NewState();
        AddEmpty(choice, once);
        AddEmpty(choice, next);
        target = choice;
      }
    }
    for (int i = 0; i < e.min; ++i) {
      NIBBLE_TRY(target, Before(body, target, depth + 1));
      NIBBLE_RETURN_IF_ERROR(CheckSize());
    }
    return target;
  }

  Result<uint32_t> BeforeGraph(const GrammarSource::Graph& graph, uint32_t next, int depth) {
    const uint32_t first = raw_.states;
    raw_.states += static_cast<uint32_t>(graph.size());
    for (uint32_t i = 0; i < graph.size(); ++i) {
      if (graph[i].final) AddEmpty(first + i, next);
      for (const GrammarSource::GraphEdge& edge : graph[i].edges) {
        NIBBLE_TRY(const uint32_t start, Before(edge.label, first + edge.target, depth + 1));
        AddEmpty(first + i, start);
      }
    }
    return first;
  }

  struct PairHash {
    size_t operator()(const std::pair<uint32_t, uint32_t>& p) const {
      return (uint64_t{p.first} << 32 | p.second) * 0x9E3779B97F4A7C15ULL >> 7;
    }
  };

  const GrammarSource& source_;
  const AutomatonLimits& limits_;
  const GrammarSource::Rule* current_ = nullptr;
  std::vector<uint32_t> index_;  // of rules, into raw_.rules
  std::unordered_map<std::pair<uint32_t, uint32_t>, uint32_t, PairHash> chars_;
  RawAutomaton raw_;
};

}  // namespace

std::string RuleName(const GrammarSource::Rule& rule) {
  if (rule.line > 0) return fmt::format("rule '{}' (line {})", rule.name, rule.line);
  return fmt::format("rule '{}'", rule.name);
}

Result<RawAutomaton> BuildRaw(const GrammarSource& source, const AutomatonLimits& limits) {
  return RawBuilder(source, limits).Build();
}

}  // namespace nibble::grammar
