#include "grammar/automaton.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

#include "grammar/automaton_builder.h"

namespace nibble::grammar {
namespace {

constexpr uint32_t kNone = RawAutomaton::kNone;

// Lists of edges by a state: [begin[s], begin[s + 1]) in order.
template <class Edge, class Key>
class Grouped {
 public:
  Grouped(const std::vector<Edge>& edges, uint32_t keys, Key key)
      : begin_(keys + 1, 0), order_(edges.size()) {
    for (const Edge& edge : edges) ++begin_[key(edge) + 1];
    for (uint32_t i = 0; i < keys; ++i) begin_[i + 1] += begin_[i];
    std::vector<uint32_t> at(begin_.begin(), begin_.end() - 1);
    for (uint32_t i = 0; i < edges.size(); ++i) order_[at[key(edges[i])]++] = i;
  }
  std::span<const uint32_t> of(uint32_t k) const {
    return std::span(order_).subspan(begin_[k], begin_[k + 1] - begin_[k]);
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<uint32_t> order_;  // indices of edges
};

class Refiner {
 public:
  Refiner(const GrammarSource& source, const AutomatonLimits& limits, RawAutomaton raw)
      : source_(source), limits_(limits), raw_(std::move(raw)) {}

  Result<Automaton> Refine() {
    NIBBLE_RETURN_IF_ERROR(CheckUses());
    FindEmpty();
    FindNeeds();
    if (limits_.refuse_useless_rules) {
      for (const RawAutomaton::Rule& rule : raw_.rules) {
        if (need_[rule.start] != kNone) continue;
        return BadInput("{} can never end", RuleName(source_.rule(rule.id)));
      }
    }
    const RawAutomaton::Rule& root = raw_.rules.front();
    if (need_[root.start] == kNone) {
      return BadInput("nothing matches the grammar: {} can never end",
                      RuleName(source_.rule(root.id)));
    }
    if (need_[root.start] > static_cast<uint32_t>(limits_.max_depth)) {
      return BadInput("no text matches {} with at most {} rules inside one another",
                      RuleName(source_.rule(root.id)), limits_.max_depth);
    }
    NIBBLE_RETURN_IF_ERROR(Rank());
    return Assemble();
  }

 private:
  Status CheckUses() const {
    if (!limits_.refuse_useless_rules || raw_.rules.size() == source_.rule_count()) return {};
    std::vector<bool> used(source_.rule_count(), false);
    for (const RawAutomaton::Rule& rule : raw_.rules) used[static_cast<uint32_t>(rule.id)] = true;
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i]) continue;
      return BadInput("{} is not reached from '{}'", RuleName(source_.rule(static_cast<RuleId>(i))),
                      source_.rule(source_.root()).name);
    }
    return {};
  }

  // Which rules match the empty text: a fixed point, walked backwards from the rules' ends.
  void FindEmpty() {
    std::vector<bool> reaches(raw_.states, false);  // its rule's end without a byte
    empty_.assign(raw_.rules.size(), false);
    std::vector<uint32_t> rule_of_start(raw_.states, kNone);
    for (uint32_t i = 0; i < raw_.rules.size(); ++i) rule_of_start[raw_.rules[i].start] = i;
    const Grouped in(raw_.empties, raw_.states, [](const auto& e) { return e.target; });
    const Grouped call_in(raw_.calls, raw_.states, [](const auto& e) { return e.target; });
    const Grouped by_rule(raw_.calls, static_cast<uint32_t>(raw_.rules.size()),
                          [](const auto& e) { return e.rule; });
    std::vector<uint32_t> work;
    const auto reach = [&](uint32_t state) {
      if (reaches[state]) return;
      reaches[state] = true;
      work.push_back(state);
    };
    for (const RawAutomaton::Rule& rule : raw_.rules) reach(rule.end);
    while (!work.empty()) {
      const uint32_t state = work.back();
      work.pop_back();
      for (const uint32_t i : in.of(state)) reach(raw_.empties[i].source);
      for (const uint32_t i : call_in.of(state)) {
        if (empty_[raw_.calls[i].rule]) reach(raw_.calls[i].source);
      }
      if (const uint32_t rule = rule_of_start[state]; rule != kNone) {
        empty_[rule] = true;
        for (const uint32_t i : by_rule.of(rule)) {
          if (reaches[raw_.calls[i].target]) reach(raw_.calls[i].source);
        }
      }
    }
  }

  bool IsTail(const RawAutomaton::CallEdge& call) const { return end_of_rule_[call.target]; }

  // Least depth of the stack that leads from a state to its rule's end; kNone: none does. Knuth's
  // generalisation of Dijkstra's algorithm (1977): max(a, b + 1) grows with both.
  void FindNeeds() {
    need_.assign(raw_.states, kNone);
    end_of_rule_.assign(raw_.states, false);
    for (const RawAutomaton::Rule& rule : raw_.rules) end_of_rule_[rule.end] = true;
    std::vector<uint32_t> rule_of_start(raw_.states, kNone);
    for (uint32_t i = 0; i < raw_.rules.size(); ++i) rule_of_start[raw_.rules[i].start] = i;
    const Grouped byte_in(raw_.bytes, raw_.states, [](const auto& e) { return e.target; });
    const Grouped empty_in(raw_.empties, raw_.states, [](const auto& e) { return e.target; });
    const Grouped call_in(raw_.calls, raw_.states, [](const auto& e) { return e.target; });
    const Grouped by_rule(raw_.calls, static_cast<uint32_t>(raw_.rules.size()),
                          [](const auto& e) { return e.rule; });
    using Entry = std::pair<uint32_t, uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (const RawAutomaton::Rule& rule : raw_.rules) queue.emplace(0, rule.end);
    const auto offer_call = [&](const RawAutomaton::CallEdge& call) {
      if (empty_[call.rule] && need_[call.target] != kNone) {
        queue.emplace(need_[call.target], call.source);
      }
      const uint32_t inside = need_[raw_.rules[call.rule].start];
      if (inside == kNone || need_[call.target] == kNone) return;
      const uint32_t through = IsTail(call) ? inside : inside + 1;
      queue.emplace(std::max(through, need_[call.target]), call.source);
    };
    while (!queue.empty()) {
      const auto [need, state] = queue.top();
      queue.pop();
      if (need_[state] != kNone) continue;
      need_[state] = need;
      for (const uint32_t i : byte_in.of(state)) queue.emplace(need, raw_.bytes[i].source);
      for (const uint32_t i : empty_in.of(state)) queue.emplace(need, raw_.empties[i].source);
      for (const uint32_t i : call_in.of(state)) offer_call(raw_.calls[i]);
      if (const uint32_t rule = rule_of_start[state]; rule != kNone) {
        for (const uint32_t i : by_rule.of(rule)) offer_call(raw_.calls[i]);
      }
    }
  }

  // Orders the rules so that one that calls another before any byte comes first. A cycle is left
  // recursion.
  Status Rank() {
    const auto rules = static_cast<uint32_t>(raw_.rules.size());
    std::vector<std::vector<uint32_t>> corners = LeftCorners();
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(rules, Mark::kNew);
    std::vector<uint32_t> finished;
    struct Frame {
      uint32_t rule;
      size_t next;
    };
    for (uint32_t first = 0; first < rules; ++first) {
      if (marks[first] != Mark::kNew) continue;
      std::vector<Frame> stack{{first, 0}};
      marks[first] = Mark::kOpen;
      while (!stack.empty()) {
        Frame& top = stack.back();
        if (top.next == corners[top.rule].size()) {
          marks[top.rule] = Mark::kDone;
          finished.push_back(top.rule);
          stack.pop_back();
          continue;
        }
        const uint32_t callee = corners[top.rule][top.next++];
        if (marks[callee] == Mark::kOpen) {
          return BadInput("{} is left recursive: it can begin with itself by way of '{}'",
                          RuleName(source_.rule(raw_.rules[callee].id)),
                          source_.rule(raw_.rules[top.rule].id).name);
        }
        if (marks[callee] == Mark::kDone) continue;
        marks[callee] = Mark::kOpen;
        stack.push_back({callee, 0});
      }
    }
    rank_.assign(rules, 0);
    for (uint32_t i = 0; i < rules; ++i) rank_[finished[rules - 1 - i]] = i;
    return {};
  }

  // Per rule: the rules that it can call before it has read a byte.
  std::vector<std::vector<uint32_t>> LeftCorners() const {
    const Grouped empty_out(raw_.empties, raw_.states, [](const auto& e) { return e.source; });
    const Grouped call_out(raw_.calls, raw_.states, [](const auto& e) { return e.source; });
    std::vector<std::vector<uint32_t>> corners(raw_.rules.size());
    std::vector<uint32_t> seen(raw_.states, kNone);
    for (uint32_t r = 0; r < raw_.rules.size(); ++r) {
      std::vector<uint32_t> work;
      const auto visit = [&](uint32_t state) {
        if (seen[state] == r || need_[state] == kNone) return;
        seen[state] = r;
        work.push_back(state);
      };
      visit(raw_.rules[r].start);
      while (!work.empty()) {
        const uint32_t state = work.back();
        work.pop_back();
        for (const uint32_t i : empty_out.of(state)) visit(raw_.empties[i].target);
        for (const uint32_t i : call_out.of(state)) {
          const RawAutomaton::CallEdge& call = raw_.calls[i];
          if (empty_[call.rule]) visit(call.target);
          if (Possible(call)) corners[r].push_back(call.rule);
        }
      }
    }
    return corners;
  }

  bool Possible(const RawAutomaton::CallEdge& call) const {
    return need_[call.target] != kNone && need_[raw_.rules[call.rule].start] != kNone;
  }

  // Keeps what lies on some way from the root's start to its end.
  Automaton Assemble() {
    Automaton out;
    NumberStates();
    out.max_depth = limits_.max_depth;
    out.need.resize(kept_.size());
    out.final.resize(kept_.size());
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      out.need[i] = static_cast<uint16_t>(std::min<uint32_t>(need_[kept_[i]], UINT16_MAX));
      out.final[i] = end_of_rule_[kept_[i]];
    }
    AssignClasses(out);
    const Grouped bytes(raw_.bytes, raw_.states, [](const auto& e) { return e.source; });
    const Grouped empties(raw_.empties, raw_.states, [](const auto& e) { return e.source; });
    const Grouped calls(raw_.calls, raw_.states, [](const auto& e) { return e.source; });
    for (const uint32_t state : kept_) {
      out.byte_begin.push_back(static_cast<uint32_t>(out.byte_edges.size()));
      out.empty_begin.push_back(static_cast<uint32_t>(out.empty_edges.size()));
      out.call_begin.push_back(static_cast<uint32_t>(out.call_edges.size()));
      for (const uint32_t i : bytes.of(state)) {
        const RawAutomaton::ByteEdge& e = raw_.bytes[i];
        if (number_[e.target] == kNone) continue;
        out.byte_edges.push_back({out.class_of[e.low], out.class_of[e.high], number_[e.target]});
      }
      for (const uint32_t i : empties.of(state)) AddEmpty(out, raw_.empties[i].target);
      for (const uint32_t i : calls.of(state)) {
        const RawAutomaton::CallEdge& call = raw_.calls[i];
        if (empty_[call.rule]) AddEmpty(out, call.target);
        if (!Possible(call)) continue;
        out.call_edges.push_back({call.rule, number_[call.target], IsTail(call)});
      }
    }
    out.byte_begin.push_back(static_cast<uint32_t>(out.byte_edges.size()));
    out.empty_begin.push_back(static_cast<uint32_t>(out.empty_edges.size()));
    out.call_begin.push_back(static_cast<uint32_t>(out.call_edges.size()));
    for (uint32_t i = 0; i < raw_.rules.size(); ++i) {
      const uint32_t start = number_[raw_.rules[i].start];
      out.rules.push_back(
          {source_.rule(raw_.rules[i].id).name, start == kNone ? 0 : start, rank_[i]});
    }
    out.root_matches_empty = empty_[0];
    return out;
  }

  void AddEmpty(Automaton& out, uint32_t target) const {
    if (number_[target] != kNone) out.empty_edges.push_back(number_[target]);
  }

  void NumberStates() {
    const Grouped bytes(raw_.bytes, raw_.states, [](const auto& e) { return e.source; });
    const Grouped empties(raw_.empties, raw_.states, [](const auto& e) { return e.source; });
    const Grouped calls(raw_.calls, raw_.states, [](const auto& e) { return e.source; });
    number_.assign(raw_.states, kNone);
    const auto keep = [&](uint32_t state) {
      if (number_[state] != kNone || need_[state] == kNone) return;
      number_[state] = static_cast<uint32_t>(kept_.size());
      kept_.push_back(state);
    };
    keep(raw_.rules.front().start);
    for (size_t i = 0; i < kept_.size(); ++i) {
      const uint32_t state = kept_[i];
      for (const uint32_t e : bytes.of(state)) keep(raw_.bytes[e].target);
      for (const uint32_t e : empties.of(state)) keep(raw_.empties[e].target);
      for (const uint32_t e : calls.of(state)) {
        if (empty_[raw_.calls[e].rule]) keep(raw_.calls[e].target);
        if (!Possible(raw_.calls[e])) continue;
        keep(raw_.rules[raw_.calls[e].rule].start);
        keep(raw_.calls[e].target);
      }
    }
  }

  void AssignClasses(Automaton& out) const {
    std::array<bool, 257> border{};
    border[0] = true;
    for (const RawAutomaton::ByteEdge& e : raw_.bytes) {
      if (number_[e.source] == kNone || number_[e.target] == kNone) continue;
      border[e.low] = true;
      border[size_t{e.high} + 1] = true;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      if (border[byte])
        out.class_first[static_cast<size_t>(out.classes++)] = static_cast<uint8_t>(byte);
      out.class_of[byte] = static_cast<uint8_t>(out.classes - 1);
    }
  }

  const GrammarSource& source_;
  const AutomatonLimits& limits_;
  RawAutomaton raw_;
  std::vector<bool> empty_;  // per rule: matches the empty text
  std::vector<bool> end_of_rule_;
  std::vector<uint32_t> need_;
  std::vector<uint32_t> rank_;
  std::vector<uint32_t> number_;  // of raw states; kNone: left out
  std::vector<uint32_t> kept_;
};

}  // namespace

Result<Automaton> AutomatonOf(const GrammarSource& source, const AutomatonLimits& limits) {
  NIBBLE_TRY(RawAutomaton raw, BuildRaw(source, limits));
  return Refiner(source, limits, std::move(raw)).Refine();
}

}  // namespace nibble::grammar
