#include "grammar/char_dfa.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

constexpr size_t kMostMinimised = 128;  // its time grows with the square
constexpr uint32_t kNowhere = UINT32_MAX;
thread_local int64_t states_left = INT64_MAX;

const CodePointSet& Characters() {
  static const CodePointSet kSet{{0, 0xD7FF}, {0xE000, kLastCodePoint}};
  return kSet;
}

std::unexpected<Error> TooMany() {
  return BadInput("more than {} states are needed", CharDfa::kMostStates);
}

std::vector<CharDfa::Edge> Merged(std::vector<CharDfa::Edge> edges) {
  std::ranges::sort(edges, {}, &CharDfa::Edge::low);
  std::vector<CharDfa::Edge> out;
  for (const CharDfa::Edge& edge : edges) {
    if (!out.empty() && out.back().target == edge.target && out.back().high + 1 == edge.low) {
      out.back().high = edge.high;
    } else {
      out.push_back(edge);
    }
  }
  return out;
}

// The edges with a target for every character.
std::vector<CharDfa::Edge> Whole(const CharDfa::State& state, uint32_t otherwise) {
  std::vector<CharDfa::Edge> out = state.edges;
  CodePointSet taken;
  for (const CharDfa::Edge& edge : state.edges) taken.Add(edge.low, edge.high);
  const CodePointSet missing = Characters().Minus(taken);
  for (const CodePointRange& range : missing.Ranges()) {
    out.push_back({range.low, range.high, otherwise});
  }
  return Merged(std::move(out));
}

// An expression as states over characters, with anchors as edges that only the ends let pass.
struct RegexNfa {
  struct Step {
    const CodePointSet* set;
    uint32_t target;
  };
  struct State {
    std::vector<Step> steps;
    std::vector<uint32_t> empty, at_begin, at_end;
  };
  std::vector<State> states;
  uint32_t start = 0;
  uint32_t end = 0;
};

class NfaBuilder {
 public:
  explicit NfaBuilder(const RegexTree& tree) : tree_(tree) {}

  Result<RegexNfa> Build() {
    nfa_.end = New();
    NIBBLE_TRY(nfa_.start, Before(tree_.root, nfa_.end));
    return std::move(nfa_);
  }

 private:
  using Kind = RegexTree::Kind;

  uint32_t New() {
    nfa_.states.emplace_back();
    return static_cast<uint32_t>(nfa_.states.size() - 1);
  }
  RegexNfa::State& At(uint32_t s) { return nfa_.states[s]; }

  Result<uint32_t> Before(uint32_t id, uint32_t next) {
    if (nfa_.states.size() > CharDfa::kMostStates) return TooMany();
    const RegexTree::Node& node = tree_.nodes[id];
    switch (node.kind) {
      case Kind::kChars: {
        const uint32_t s = New();
        At(s).steps.push_back({&node.set, next});
        return s;
      }
      case Kind::kBegin:
      case Kind::kEnd: {
        const uint32_t s = New();
        (node.kind == Kind::kBegin ? At(s).at_begin : At(s).at_end).push_back(next);
        return s;
      }
      case Kind::kSequence:
        for (size_t i = node.parts.size(); i > 0; --i) {
          NIBBLE_TRY(next, Before(node.parts[i - 1], next));
        }
        return next;
      case Kind::kChoice: {
        const uint32_t s = New();
        for (const uint32_t part : node.parts) {
          NIBBLE_TRY(const uint32_t way, Before(part, next));
          At(s).empty.push_back(way);
        }
        return s;
      }
      case Kind::kRepeat:
        break;
    }
    return BeforeRepeat(node, next);
  }

  Result<uint32_t> BeforeRepeat(const RegexTree::Node& node, uint32_t next) {
    uint32_t target = next;
    if (node.max == kUnbounded) {
      target = New();
      NIBBLE_TRY(const uint32_t once, Before(node.parts[0], target));
      At(target).empty = {once, next};
    } else {
      for (int i = node.min; i < node.max; ++i) {
        NIBBLE_TRY(const uint32_t once, Before(node.parts[0], target));
        target = New();
        At(target).empty = {once, next};
      }
    }
    for (int i = 0; i < node.min; ++i) {
      NIBBLE_TRY(target, Before(node.parts[0], target));
    }
    return target;
  }

  const RegexTree& tree_;
  RegexNfa nfa_;
};

// The subset construction (Rabin and Scott 1959).
class Determiniser {
 public:
  Determiniser(const RegexNfa& nfa, bool whole) : nfa_(nfa), whole_(whole) {}

  Result<CharDfa> Run() {
    std::vector<uint32_t> first{nfa_.start};
    Close(first, true, false);
    // A state of its own: nothing comes back to the text's beginning.
    out_.emplace_back();
    sets_.push_back(first);
    out_[0].final = Accepts(first, true);
    for (size_t i = 0; i < out_.size(); ++i) {
      if (i == everything_) {
        for (const CodePointRange& r : Characters().Ranges()) {
          out_[i].edges.push_back({r.low, r.high, static_cast<uint32_t>(i)});
        }
        continue;
      }
      NIBBLE_RETURN_IF_ERROR(Expand(i));
    }
    return CharDfa(std::move(out_)).Reduced();
  }

 private:
  Status Expand(size_t i) {
    // Between borders every character leads to the same set.
    std::map<char32_t, std::vector<uint32_t>> opens, closes;
    const std::vector<uint32_t> from = sets_[i];
    const auto add = [&](char32_t low, char32_t high, uint32_t target) {
      opens[low].push_back(target);
      closes[high + 1].push_back(target);
    };
    for (const uint32_t s : from) {
      for (const RegexNfa::Step& step : nfa_.states[s].steps) {
        const CodePointSet set = step.set->Intersect(Characters());
        for (const CodePointRange& r : set.Ranges()) add(r.low, r.high, step.target);
        work_ += set.Ranges().size() + 1;
      }
    }
    if (!whole_) {  // the match may begin behind any character
      for (const CodePointRange& r : Characters().Ranges()) add(r.low, r.high, nfa_.start);
    }
    if (work_ > kMostWork) return TooMany();
    std::map<uint32_t, int> active;
    std::vector<CharDfa::Edge> edges;
    auto open = opens.begin();
    auto close = closes.begin();
    char32_t at = 0;
    while (close != closes.end()) {
      const char32_t border =
          open != opens.end() ? std::min(open->first, close->first) : close->first;
      if (!active.empty() && border > at) {
        NIBBLE_TRY(const uint32_t target, Target(active));
        edges.push_back({at, border - 1, target});
      }
      at = border;
      if (open != opens.end() && open->first == border) {
        for (const uint32_t target : open->second) ++active[target];
        ++open;
      }
      if (close->first == border) {
        for (const uint32_t target : close->second) {
          if (--active[target] == 0) active.erase(target);
        }
        ++close;
      }
    }
    out_[i].edges = Merged(std::move(edges));
    return {};
  }

  Result<uint32_t> Target(const std::map<uint32_t, int>& active) {
    std::vector<uint32_t> set;
    for (const auto& [state, count] : active) set.push_back(state);
    Close(set, false, false);
    work_ += set.size();
    if (work_ > kMostWork) return TooMany();
    // Once it is found, anything may follow.
    const bool found = !whole_ && std::ranges::binary_search(set, nfa_.end);
    if (found && everything_ != kNone) return static_cast<uint32_t>(everything_);
    if (const auto known = index_.find(set); !found && known != index_.end()) return known->second;
    if (out_.size() >= CharDfa::kMostStates || !CharDfa::Budget::Take(1)) return TooMany();
    const auto id = static_cast<uint32_t>(out_.size());
    out_.emplace_back();
    out_.back().final = found || Accepts(set, false);
    sets_.push_back(set);
    if (found) {
      everything_ = id;
    } else {
      index_.emplace(std::move(set), id);
    }
    return id;
  }

  void Close(std::vector<uint32_t>& set, bool begin, bool end) {
    if (seen_.size() != nfa_.states.size()) seen_.assign(nfa_.states.size(), 0);
    ++epoch_;
    std::vector<uint32_t> work;
    const auto visit = [&](uint32_t s) {
      if (seen_[s] == epoch_) return;
      seen_[s] = epoch_;
      work.push_back(s);
    };
    for (const uint32_t s : set) visit(s);
    set.clear();
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      set.push_back(s);
      const RegexNfa::State& state = nfa_.states[s];
      for (const uint32_t t : state.empty) visit(t);
      if (begin) {
        for (const uint32_t t : state.at_begin) visit(t);
      }
      if (end) {
        for (const uint32_t t : state.at_end) visit(t);
      }
    }
    std::ranges::sort(set);
  }

  bool Accepts(std::vector<uint32_t> set, bool begin) {
    Close(set, begin, true);
    return std::ranges::binary_search(set, nfa_.end);
  }

  static constexpr size_t kNone = SIZE_MAX;
  static constexpr size_t kMostWork = 3'000'000;

  const RegexNfa& nfa_;
  bool whole_;
  std::vector<CharDfa::State> out_;
  std::vector<std::vector<uint32_t>> sets_;
  std::map<std::vector<uint32_t>, uint32_t> index_;
  size_t everything_ = kNone;
  size_t work_ = 0;
  std::vector<uint32_t> seen_;
  uint32_t epoch_ = 0;
};

// Pairs of states; with_missing: also those where one of the two has gone nowhere.
Result<CharDfa> Product(const CharDfa& a, const CharDfa& b, bool either) {
  using Pair = std::pair<uint32_t, uint32_t>;
  const auto final_in = [](const CharDfa& dfa, uint32_t s) {
    return s != kNowhere && dfa.states()[s].final;
  };
  static const CharDfa::State kDead;
  const auto state = [](const CharDfa& dfa, uint32_t s) -> const CharDfa::State& {
    return s == kNowhere ? kDead : dfa.states()[s];
  };
  std::map<Pair, uint32_t> index;
  std::vector<Pair> pairs;
  const auto id_of = [&](Pair pair) {
    const auto [found, is_new] = index.try_emplace(pair, static_cast<uint32_t>(pairs.size()));
    if (is_new) pairs.push_back(pair);
    return found->second;
  };
  id_of({0, 0});
  std::vector<CharDfa::State> out;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > CharDfa::kMostStates || !CharDfa::Budget::Take(1)) return TooMany();
    const auto [x, y] = pairs[i];
    CharDfa::State made;
    made.final = either ? final_in(a, x) || final_in(b, y) : final_in(a, x) && final_in(b, y);
    const auto left = either ? Whole(state(a, x), kNowhere) : state(a, x).edges;
    const auto right = either ? Whole(state(b, y), kNowhere) : state(b, y).edges;
    for (size_t p = 0, q = 0; p < left.size() && q < right.size();) {
      const char32_t low = std::max(left[p].low, right[q].low);
      const char32_t high = std::min(left[p].high, right[q].high);
      if (low <= high && !(left[p].target == kNowhere && right[q].target == kNowhere)) {
        made.edges.push_back({low, high, id_of({left[p].target, right[q].target})});
      }
      if (left[p].high < right[q].high) {
        ++p;
      } else {
        ++q;
      }
    }
    made.edges = Merged(std::move(made.edges));
    out.push_back(std::move(made));
  }
  return CharDfa(std::move(out)).Reduced();
}

std::vector<CharDfa::State> WithoutDead(const std::vector<CharDfa::State>& states) {
  std::vector<std::vector<uint32_t>> into(states.size());
  for (uint32_t s = 0; s < states.size(); ++s) {
    for (const CharDfa::Edge& edge : states[s].edges) into[edge.target].push_back(s);
  }
  std::vector<bool> live(states.size(), false);
  std::vector<uint32_t> work;
  for (uint32_t s = 0; s < states.size(); ++s) {
    if (!states[s].final) continue;
    live[s] = true;
    work.push_back(s);
  }
  while (!work.empty()) {
    const uint32_t s = work.back();
    work.pop_back();
    for (const uint32_t from : into[s]) {
      if (live[from]) continue;
      live[from] = true;
      work.push_back(from);
    }
  }
  // In the order in which they are reached.
  std::vector<uint32_t> number(states.size(), kNowhere);
  std::vector<uint32_t> order{0};
  number[0] = 0;
  std::vector<CharDfa::State> out;
  for (size_t i = 0; i < order.size(); ++i) {
    CharDfa::State kept{.edges = {}, .final = states[order[i]].final};
    for (CharDfa::Edge edge : states[order[i]].edges) {
      if (!live[edge.target]) continue;
      if (number[edge.target] == kNowhere) {
        number[edge.target] = static_cast<uint32_t>(order.size());
        order.push_back(edge.target);
      }
      edge.target = number[edge.target];
      kept.edges.push_back(edge);
    }
    out.push_back(std::move(kept));
  }
  return out;
}

// Moore's refinement (1956).
std::vector<CharDfa::State> Minimised(const std::vector<CharDfa::State>& states) {
  std::vector<uint32_t> part(states.size());
  for (size_t i = 0; i < states.size(); ++i) part[i] = states[i].final ? 1 : 0;
  size_t parts = 0;
  while (true) {
    std::map<std::vector<uint32_t>, uint32_t> known;
    std::vector<uint32_t> next(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      std::vector<CharDfa::Edge> edges = states[i].edges;
      for (CharDfa::Edge& edge : edges) edge.target = part[edge.target];
      std::vector<uint32_t> key{part[i]};
      for (const CharDfa::Edge& edge : Merged(std::move(edges))) {
        key.insert(key.end(), {edge.low, edge.high, edge.target});
      }
      next[i] =
          known.try_emplace(std::move(key), static_cast<uint32_t>(known.size())).first->second;
    }
    part = std::move(next);
    if (known.size() == parts) break;
    parts = known.size();
  }
  // State 0 was looked at first, so that its part is 0.
  std::vector<CharDfa::State> out(parts);
  std::vector<bool> done(parts, false);
  for (size_t i = 0; i < states.size(); ++i) {
    if (done[part[i]]) continue;
    done[part[i]] = true;
    out[part[i]].final = states[i].final;
    out[part[i]].edges = states[i].edges;
    for (CharDfa::Edge& edge : out[part[i]].edges) edge.target = part[edge.target];
    out[part[i]].edges = Merged(std::move(out[part[i]].edges));
  }
  return out;
}

}  // namespace

CharDfa::Budget::Budget(int64_t states) : before_(states_left) { states_left = states; }
CharDfa::Budget::~Budget() { states_left = before_; }
bool CharDfa::Budget::Take(int64_t states) {
  states_left -= states;
  return states_left >= 0;
}

CharDfa CharDfa::Everything() {
  State state{.edges = {}, .final = true};
  for (const CodePointRange& r : Characters().Ranges()) state.edges.push_back({r.low, r.high, 0});
  return CharDfa({state});
}

CharDfa CharDfa::OfTexts(const std::vector<std::string>& texts) {
  std::vector<std::map<char32_t, uint32_t>> trie(1);
  std::vector<bool> final(1, false);
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = DecodeUtf8Safely(text, i);
      i += c.length;
      const auto [found, is_new] = trie[at].try_emplace(c.code, static_cast<uint32_t>(trie.size()));
      at = found->second;
      if (is_new) {
        trie.emplace_back();
        final.push_back(false);
      }
    }
    final[at] = true;
  }
  std::vector<State> states(trie.size());
  for (size_t i = 0; i < trie.size(); ++i) {
    states[i].final = final[i];
    for (const auto& [c, target] : trie[i]) states[i].edges.push_back({c, c, target});
  }
  return CharDfa(std::move(states));
}

Result<CharDfa> CharDfa::OfLength(int64_t min, int64_t max) {
  const int64_t last = max == kUnbounded ? min : max;
  if (last >= static_cast<int64_t>(kMostStates) || !Budget::Take(last)) return TooMany();
  std::vector<State> states(static_cast<size_t>(last) + 1);
  for (int64_t i = 0; i <= last; ++i) {
    State& state = states[static_cast<size_t>(i)];
    state.final = i >= min;
    if (i == last && max != kUnbounded) continue;
    const auto target = static_cast<uint32_t>(std::min(i + 1, last));
    for (const CodePointRange& r : Characters().Ranges()) {
      state.edges.push_back({r.low, r.high, target});
    }
  }
  return CharDfa(std::move(states));
}

Result<CharDfa> CharDfa::OfRegex(const RegexTree& tree, bool whole) {
  NIBBLE_TRY(const RegexNfa nfa, NfaBuilder(tree).Build());
  return Determiniser(nfa, whole).Run();
}

Result<CharDfa> CharDfa::Intersect(const CharDfa& other) const {
  return Product(*this, other, false);
}

Result<CharDfa> CharDfa::Unite(const CharDfa& other) const { return Product(*this, other, true); }

CharDfa CharDfa::Complement() const {
  std::vector<State> states = states_;
  const auto sink = static_cast<uint32_t>(states.size());
  states.emplace_back();
  for (State& state : states) {
    state.edges = Whole(state, sink);
    state.final = !state.final;
  }
  return CharDfa(std::move(states)).Reduced();
}

CharDfa CharDfa::Reduced() const {
  std::vector<State> states = WithoutDead(states_);
  if (states.size() > 1 && states.size() <= kMostMinimised) states = Minimised(states);
  return CharDfa(std::move(states));
}

bool CharDfa::Contains(std::string_view text) const {
  uint32_t at = 0;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = DecodeUtf8Safely(text, i);
    i += c.length;
    const auto edge = std::ranges::find_if(
        states_[at].edges, [&](const Edge& e) { return e.low <= c.code && c.code <= e.high; });
    if (edge == states_[at].edges.end()) return false;
    at = edge->target;
  }
  return states_[at].final;
}

bool CharDfa::IsEmpty() const {
  const std::vector<State> states = WithoutDead(states_);
  return states.size() == 1 && !states[0].final && states[0].edges.empty();
}

}  // namespace nibble::grammar
