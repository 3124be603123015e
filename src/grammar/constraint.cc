#include "grammar/constraint.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace nibble::grammar {
namespace {

// Pieces of a character have no characters.
constexpr int kNoneKnown = -1;

void SetBit(std::vector<uint64_t>& bits, int32_t id) {
  bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

std::optional<TokenId> OnlyBit(const std::vector<uint64_t>& bits) {
  const auto set = [](uint64_t word) { return word != 0; };
  const auto first = std::ranges::find_if(bits, set);
  if (first == bits.end() || !std::has_single_bit(*first)) return std::nullopt;
  if (std::any_of(first + 1, bits.end(), set)) return std::nullopt;
  return TokenId{static_cast<int32_t>((first - bits.begin()) * 64) + std::countr_zero(*first)};
}

}  // namespace

Constraint::Constraint(std::shared_ptr<const Automaton> automaton,
                       std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      limits_(limits),
      configurations_(std::make_shared<Configurations>(automaton_)),
      reaches_(*automaton_) {}

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
    mask_of_.clear();
    reaches_.Forget();
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
  if (const auto found = mask_of_.find(state.id_); found != mask_of_.end()) {
    masks_.splice(masks_.begin(), masks_, found->second);
    return masks_.front().mask;
  }
  const std::shared_ptr<TokenMask> mask = Compute(state.id_);
  if (configurations_->exhausted()) {
    // What was begun is not kept.
    return BadInput("the grammar is too ambiguous here: more than {} steps for one token",
                    limits_.max_work);
  }
  if (std::ranges::all_of(mask->bits, [](uint64_t word) { return word == 0; })) {
    return BadInput("no token of the vocabulary begins what the grammar lets follow here");
  }
  Keep(state.id_, mask);
  return mask;
}

std::shared_ptr<TokenMask> Constraint::Compute(Configurations::Id id) {
  auto mask = std::make_shared<TokenMask>();
  mask->bits.assign(vocabulary_->words(), 0);
  if (alive_.empty()) FindAlive();
  size_t tree = 0;
  Walk(id, vocabulary_->others(), alive_[tree++], kNoneKnown, mask->bits);
  for (const Vocabulary::Group& group : vocabulary_->groups()) {
    Configurations::Id from = id;
    for (const char byte : group.lead) {
      from = configurations_->NextByte(from, static_cast<uint8_t>(byte));
    }
    if (from != Configurations::kDead) AddGroup(from, group, tree, mask->bits);
    tree += Vocabulary::kKinds;
  }
  if (configurations_->accepting(id)) {
    for (const TokenId end : vocabulary_->ends()) SetBit(mask->bits, end.value());
  }
  mask->only = OnlyBit(mask->bits);
  return mask;
}

void Constraint::AddGroup(Configurations::Id from, const Vocabulary::Group& group, size_t tree,
                          std::vector<uint64_t>& bits) {
  const Reach reach = reaches_.Find(*configurations_, from);
  int passed = -1;  // bucket of the kind behind, which holds this one
  for (size_t k = Vocabulary::kKinds; k-- > 0;) {
    const auto [pass, stop] = reach.of[k];
    const Vocabulary::Slice& slice = group.slices[k];
    if (const int bucket = Vocabulary::BucketUpTo(pass); bucket > passed) {
      const std::vector<uint64_t>& more = slice.up_to[static_cast<size_t>(bucket)];
      for (size_t w = 0; w < bits.size(); ++w) bits[w] |= more[w];
      passed = bucket;
    }
    const int known = passed < 0 ? kNoneKnown : Vocabulary::MostCharsOf(passed);
    if (stop > std::max(known, 0) + 1) Walk(from, slice.tree, alive_[tree + k], known, bits);
  }
}

// Nodes below which some token has no byte that the grammar nowhere takes; the others would be
// looked at wherever their first bytes fit.
void Constraint::FindAlive() {
  std::vector<bool> taken(static_cast<size_t>(automaton_->classes), false);
  for (const Automaton::ByteEdge& edge : automaton_->byte_edges) {
    for (size_t c = edge.low; c <= edge.high; ++c) taken[c] = true;
  }
  const auto find = [&](const TokenTree& tree) {
    std::vector<bool> alive(tree.nodes.size());
    for (size_t i = tree.nodes.size(); i-- > 0;) {
      const TokenTree::Node& node = tree.nodes[i];
      bool any = node.token >= 0;
      for (uint32_t c = node.first; !any && c < node.first + node.children; ++c) any = alive[c];
      alive[i] = any && (i == 0 || taken[automaton_->class_of[node.byte]]);
    }
    alive_.push_back(std::move(alive));
  };
  find(vocabulary_->others());
  for (const Vocabulary::Group& group : vocabulary_->groups()) {
    for (const Vocabulary::Slice& slice : group.slices) find(slice.tree);
  }
}

void Constraint::Walk(Configurations::Id id, const TokenTree& tree, const std::vector<bool>& alive,
                      int known_chars, std::vector<uint64_t>& bits) {
  const auto& class_of = automaton_->class_of;
  const auto push = [&](uint32_t node, Configurations::Id from) {
    const TokenTree::Node& n = tree.nodes[node];
    if (n.children > 0) path_.push_back({n.first, n.first + n.children, from});
  };
  push(0, id);
  while (!path_.empty()) {
    const auto [begin, end, from] = path_.back();
    path_.pop_back();
    for (uint32_t i = begin; i < end; ++i) {
      const TokenTree::Node& node = tree.nodes[i];
      if (node.most_chars <= known_chars || !alive[i]) continue;
      const Configurations::Id to = configurations_->Next(from, class_of[node.byte]);
      if (to == Configurations::kDead) continue;
      if (node.token >= 0) {
        SetBit(bits, node.token);
        for (int32_t same = node.token; node.more != 0;) {
          same = vocabulary_->next_same(same);
          if (same < 0) break;
          SetBit(bits, same);
        }
      }
      push(i, to);
    }
  }
}

void Constraint::Keep(Configurations::Id id, std::shared_ptr<const TokenMask> mask) {
  const size_t bytes = vocabulary_->words() * 8 + 128;
  while (!masks_.empty() && mask_bytes_ + bytes > limits_.max_mask_bytes) {
    mask_of_.erase(masks_.back().of);
    masks_.pop_back();
    mask_bytes_ -= bytes;
  }
  masks_.push_front({id, std::move(mask)});
  mask_of_.emplace(id, masks_.begin());
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

Constraint::Ahead Constraint::LookAhead(State state, size_t most_tokens, size_t most_bytes) {
  Ahead ahead;
  while (ahead.only.size() < most_tokens && !state.ended_) {
    const auto mask = Mask(state);
    // What is wrong is said when the token is drawn.
    if (!mask || !(*mask)->only || vocabulary_->IsEnd(*(*mask)->only)) break;
    const TokenId token = *(*mask)->only;
    // The last token needs no row behind it.
    if (!Accept(state, token) || MustEnd(state)) return ahead;
    ahead.only.push_back(token);
  }
  ahead.bytes = ForcedBytes(state, most_bytes);
  return ahead;
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
