#include "grammar/reach.h"

#include <algorithm>

namespace nibble::grammar {
namespace {

// Configurations that are looked at side by side to see how far a kind of text reaches.
constexpr size_t kMostFrontier = 16;

// The ways through one UTF-8 character: what bytes a place may have and which place follows.
// Place 0 is between characters.
struct Utf8Step {
  uint8_t low, high;
  uint8_t next;
};
struct Utf8Place {
  Utf8Step steps[8];
  int count;
};
constexpr Utf8Place kUtf8[] = {
    {{{0xC2, 0xDF, 1},
      {0xE0, 0xE0, 2},
      {0xE1, 0xEC, 3},
      {0xED, 0xED, 4},
      {0xEE, 0xEF, 3},
      {0xF0, 0xF0, 5},
      {0xF1, 0xF3, 6},
      {0xF4, 0xF4, 7}},
     8},
    {{{0x80, 0xBF, 0}}, 1},
    {{{0xA0, 0xBF, 1}}, 1},
    {{{0x80, 0xBF, 1}}, 1},
    {{{0x80, 0x9F, 1}}, 1},
    {{{0x90, 0xBF, 3}}, 1},
    {{{0x80, 0xBF, 3}}, 1},
    {{{0x80, 0x8F, 3}}, 1},
};

template <class T>
void AddOnce(std::vector<T>& list, const T& item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

}  // namespace

ReachFinder::ReachFinder(const Automaton& automaton) : automaton_(automaton) {
  for (size_t k = 0; k < classes_.size(); ++k) {
    for (int byte = 0; byte < 0x80; ++byte) {
      if (!IsOfKind(static_cast<Vocabulary::Kind>(k), static_cast<uint8_t>(byte))) continue;
      AddOnce(classes_[k], automaton_.class_of[static_cast<size_t>(byte)]);
    }
  }
}

const Reach& ReachFinder::Find(Configurations& configurations, Configurations::Id id) {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  const Reach reach = Explore(configurations, id);
  return known_.emplace(id, reach).first->second;
}

Reach ReachFinder::Explore(Configurations& configurations, Configurations::Id id) {
  Reach reach;
  Reach::Chars wider;  // of the kind before, which holds this one
  for (size_t k = reach.of.size(); k-- > 0;) {
    // Where all texts of a kind go on without end, so do those of the kinds that it holds.
    Reach::Chars& chars = reach.of[k];
    chars = wider;
    if (wider.pass < Vocabulary::kMostChars) {
      chars = ExploreKind(configurations, id, static_cast<Vocabulary::Kind>(k));
      chars.pass = std::max(chars.pass, wider.pass);
      chars.stop = std::min(chars.stop, wider.stop);
    }
    wider = chars;
  }
  return reach;
}

Reach::Chars ReachFinder::ExploreKind(Configurations& configurations, Configurations::Id id,
                                      Vocabulary::Kind kind) {
  Reach::Chars out;
  Ids frontier{id};
  bool all = true;
  for (int chars = 0; chars < Vocabulary::kMostChars; ++chars) {
    Ids next = Step(configurations, frontier, kind, all);
    if (all) out.pass = chars + 1;
    // Where not even one follows, the trees' first bytes show the rest as fast.
    if (out.pass == 0) return out;
    if (next.empty()) {
      out.stop = chars + 1;
      return out;
    }
    std::ranges::sort(next);
    if (next == frontier) {  // and so on
      if (all) out.pass = Vocabulary::kMostChars;
      return out;
    }
    if (next.size() > kMostFrontier) return out;
    frontier = std::move(next);
  }
  return out;
}

ReachFinder::Ids ReachFinder::Step(Configurations& configurations, const Ids& from,
                                   Vocabulary::Kind kind, bool& all) {
  Ids next;
  for (const Configurations::Id id : from) {
    for (const Automaton::Class c : classes_[static_cast<size_t>(kind)]) {
      const Configurations::Id to = configurations.Next(id, c);
      if (to == Configurations::kDead) {
        all = false;
      } else {
        AddOnce(next, to);
      }
    }
  }
  if (kind == Vocabulary::Kind::kString) StepBeyondAscii(configurations, from, next, all);
  return next;
}

void ReachFinder::StepBeyondAscii(Configurations& configurations, const Ids& from, Ids& next,
                                  bool& all) {
  std::vector<std::pair<Configurations::Id, uint8_t>> inside;  // and the place in kUtf8
  for (const Configurations::Id id : from) inside.emplace_back(id, 0);
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside.size() > 16 * kMostFrontier) {
      // Too many ways: as if some led nowhere, others anywhere.
      all = false;
      next.resize(kMostFrontier + 1);
      return;
    }
    const auto [id, place] = inside[i];
    for (int s = 0; s < kUtf8[place].count; ++s) {
      const Utf8Step& step = kUtf8[place].steps[s];
      for (size_t c = automaton_.class_of[step.low]; c <= automaton_.class_of[step.high]; ++c) {
        const Configurations::Id to = configurations.Next(id, static_cast<Automaton::Class>(c));
        if (to == Configurations::kDead) {
          all = false;
        } else if (step.next == 0) {
          AddOnce(next, to);
        } else {
          AddOnce(inside, {to, step.next});
        }
      }
    }
  }
}

}  // namespace nibble::grammar
