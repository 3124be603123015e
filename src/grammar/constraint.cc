#include "grammar/constraint.h"

#include <algorithm>
#include <bit>
#include <utility>

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

void SetBit(std::vector<uint64_t>& bits, int32_t id) {
  bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

}  // namespace

Constraint::Constraint(std::shared_ptr<const Automaton> automaton,
                       std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      limits_(limits),
      configurations_(std::make_shared<Configurations>(automaton_)) {
  for (int k = 0; k < Vocabulary::kKinds; ++k) {
    for (int byte = 0; byte < 0x80; ++byte) {
      if (!IsOfKind(static_cast<Vocabulary::Kind>(k), static_cast<uint8_t>(byte))) continue;
      AddOnce(classes_of_kind_[k], automaton_->class_of[static_cast<size_t>(byte)]);
    }
  }
}

Constraint::State Constraint::Start() {
  State state;
  state.configurations_ = configurations_;
  state.id_ = configurations_->start();
  return state;
}

// When there are too many configurations, new ones begin, and each state moves when it is next
// used; the old ones go with the last state that holds them.
void Constraint::Settle(State& state) {
  if (configurations_->bytes() > limits_.max_configuration_bytes) {
    configurations_ = std::make_shared<Configurations>(automaton_);
    masks_.clear();
    mask_bytes_ = 0;
  }
  configurations_->AllowWork(limits_.max_work);
  if (state.configurations_ == configurations_) return;
  state.id_ = state.configurations_->CopyTo(*configurations_, state.id_);
  state.configurations_ = configurations_;
}

Result<std::shared_ptr<const TokenMask>> Constraint::Mask(State& state) {
  if (state.ended_) return BadInput("the answer has ended");
  Settle(state);
  if (const auto found = masks_.find(state.id_); found != masks_.end()) {
    found->second.used = ++clock_;
    return found->second.mask;
  }
  const std::shared_ptr<TokenMask> mask = Compute(state.id_);
  if (configurations_->exhausted()) {
    // What was begun is not kept.
    return BadInput("the grammar is too ambiguous here: more than {} steps for one token",
                    limits_.max_work);
  }
  if (mask->count == 0) {
    return BadInput("no token of the vocabulary begins what the grammar lets follow here");
  }
  Keep(state.id_, mask);
  return mask;
}

std::shared_ptr<TokenMask> Constraint::Compute(Configurations::Id id) {
  auto mask = std::make_shared<TokenMask>();
  mask->bits.assign(vocabulary_->words(), 0);
  const Reach reach = FindReach(id);
  for (const Vocabulary::Slice& slice : vocabulary_->slices()) {
    if (slice.kind != Vocabulary::Kind::kRest &&
        reach.chars[static_cast<int>(slice.kind)] >= slice.chars) {
      for (size_t w = 0; w < mask->bits.size(); ++w) mask->bits[w] |= slice.bits[w];
    } else {
      Walk(id, slice.tree, mask->bits);
    }
  }
  if (configurations_->accepting(id)) {
    for (const TokenId end : vocabulary_->ends()) SetBit(mask->bits, end.value());
  }
  for (size_t w = 0; w < mask->bits.size(); ++w) {
    if (mask->bits[w] == 0) continue;
    mask->only = TokenId{static_cast<int32_t>(w * 64) + std::countr_zero(mask->bits[w])};
    mask->count += std::popcount(mask->bits[w]);
  }
  if (mask->count != 1) mask->only.reset();
  return mask;
}

Constraint::Reach Constraint::FindReach(Configurations::Id id) {
  Reach reach;
  // A kind holds those before it, so that what it reaches they reach.
  for (int k = static_cast<int>(Vocabulary::Kind::kAscii); k >= 0; --k) {
    const int known = k == static_cast<int>(Vocabulary::Kind::kAscii) ? 0 : reach.chars[k + 1];
    reach.chars[k] = known >= Vocabulary::kMostChars
                         ? known
                         : std::max(known, ReachOf(id, static_cast<Vocabulary::Kind>(k)));
  }
  const auto string = static_cast<size_t>(Vocabulary::Kind::kString);
  if (reach.chars[string - 1] > 0) reach.chars[string] = StringReach(id);
  return reach;
}

int Constraint::ReachOf(Configurations::Id id, Vocabulary::Kind kind) {
  std::vector<Configurations::Id> frontier{id};
  const auto& classes = classes_of_kind_[static_cast<size_t>(kind)];
  for (int chars = 0; chars < Vocabulary::kMostChars; ++chars) {
    std::vector<Configurations::Id> next;
    for (const Configurations::Id from : frontier) {
      for (const Automaton::Class c : classes) {
        const Configurations::Id to = configurations_->Next(from, c);
        if (to == Configurations::kDead) return chars;
        AddOnce(next, to);
      }
    }
    std::ranges::sort(next);
    if (next == frontier) return Vocabulary::kMostChars;  // and so on
    if (next.size() > kMostFrontier) return chars;
    frontier = std::move(next);
  }
  return Vocabulary::kMostChars;
}

int Constraint::StringReach(Configurations::Id id) {
  std::vector<Configurations::Id> frontier{id};
  const auto& single = classes_of_kind_[static_cast<size_t>(Vocabulary::Kind::kString)];
  for (int chars = 0; chars < Vocabulary::kMostChars; ++chars) {
    std::vector<Configurations::Id> next;
    std::vector<std::pair<Configurations::Id, uint8_t>> inside;  // and the place in kUtf8
    for (const Configurations::Id from : frontier) {
      for (const Automaton::Class c : single) {
        const Configurations::Id to = configurations_->Next(from, c);
        if (to == Configurations::kDead) return chars;
        AddOnce(next, to);
      }
      inside.emplace_back(from, 0);
    }
    for (size_t i = 0; i < inside.size(); ++i) {
      if (inside.size() > 16 * kMostFrontier) return chars;
      const auto [from, place] = inside[i];
      for (int s = 0; s < kUtf8[place].count; ++s) {
        const Utf8Step& step = kUtf8[place].steps[s];
        for (size_t c = automaton_->class_of[step.low]; c <= automaton_->class_of[step.high]; ++c) {
          const Configurations::Id to =
              configurations_->Next(from, static_cast<Automaton::Class>(c));
          if (to == Configurations::kDead) return chars;
          if (step.next == 0) {
            AddOnce(next, to);
          } else {
            AddOnce(inside, {to, step.next});
          }
        }
      }
    }
    std::ranges::sort(next);
    if (next == frontier) return Vocabulary::kMostChars;
    if (next.size() > kMostFrontier) return chars;
    frontier = std::move(next);
  }
  return Vocabulary::kMostChars;
}

void Constraint::Walk(Configurations::Id id, const TokenTree& tree, std::vector<uint64_t>& bits) {
  if (path_.size() < tree.longest + 1) path_.resize(tree.longest + 1);
  path_[0] = id;
  const auto& class_of = automaton_->class_of;
  const auto size = static_cast<uint32_t>(tree.nodes.size());
  for (uint32_t i = 0; i < size;) {
    const TokenTree::Node& node = tree.nodes[i];
    const Configurations::Id to = configurations_->Next(path_[node.depth], class_of[node.byte]);
    if (to == Configurations::kDead) {
      i = node.end;
      continue;
    }
    path_[size_t{node.depth} + 1] = to;
    for (int32_t token = node.token; token >= 0; token = vocabulary_->next_same(token)) {
      SetBit(bits, token);
    }
    ++i;
  }
}

void Constraint::Keep(Configurations::Id id, std::shared_ptr<const TokenMask> mask) {
  const size_t bytes = vocabulary_->words() * 8 + 128;
  while (!masks_.empty() && mask_bytes_ + bytes > limits_.max_mask_bytes) {
    const auto oldest =
        std::ranges::min_element(masks_, {}, [](const auto& kept) { return kept.second.used; });
    masks_.erase(oldest);
    mask_bytes_ -= bytes;
  }
  masks_.emplace(id, KeptMask{std::move(mask), ++clock_});
  mask_bytes_ += bytes;
}

bool Constraint::Accept(State& state, TokenId token) {
  if (state.ended_ || token.value() < 0 || token.value() >= vocabulary_->size()) return false;
  if (vocabulary_->IsEnd(token)) {
    if (!MayEnd(state)) return false;
    state.ended_ = true;
    return true;
  }
  const std::string_view bytes = vocabulary_->bytes(token);
  return !bytes.empty() && AcceptBytes(state, bytes);
}

bool Constraint::AcceptBytes(State& state, std::string_view bytes) {
  if (state.ended_) return false;
  Settle(state);
  Configurations::Id id = state.id_;
  for (const char byte : bytes) {
    id = configurations_->NextByte(id, static_cast<uint8_t>(byte));
    if (id == Configurations::kDead) return false;
  }
  state.id_ = id;
  return true;
}

bool Constraint::MayEnd(const State& state) const {
  return state.configurations_->accepting(state.id_);
}

bool Constraint::MustEnd(const State& state) const {
  return MayEnd(state) && !state.configurations_->open(state.id_);
}

std::string Constraint::ForcedBytes(State& state, size_t most) {
  std::string out;
  if (state.ended_) return out;
  Settle(state);
  Configurations::Id id = state.id_;
  while (out.size() < most && !configurations_->accepting(id)) {
    int only = -1;
    for (int c = 0; c < automaton_->classes; ++c) {
      if (configurations_->Next(id, static_cast<Automaton::Class>(c)) == Configurations::kDead) {
        continue;
      }
      if (only >= 0 || automaton_->class_size(c) > 1) return out;
      only = c;
    }
    if (only < 0) return out;
    out += static_cast<char>(automaton_->class_first[static_cast<size_t>(only)]);
    id = configurations_->Next(id, static_cast<Automaton::Class>(only));
  }
  return out;
}

}  // namespace nibble::grammar
