#include "grammar/configurations.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace nibble::grammar {
namespace {

uint64_t Mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15ULL;
  return h ^ (h >> 29);
}

template <class Items>
uint64_t HashItems(const Items& items, uint64_t seed) {
  uint64_t h = seed;
  for (const auto& item : items) h = Mix(h, uint64_t{item.state} << 32 | item.stack);
  return h;
}

}  // namespace

void Configurations::Seen::Clear() {
  count_ = 0;
  if (++epoch_ != 0) return;
  slots_.assign(slots_.size(), {});
  epoch_ = 1;
}

bool Configurations::Seen::Insert(Item item) {
  if (2 * (count_ + 1) > slots_.size()) Grow();
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(0, uint64_t{item.state} << 32 | item.stack) & mask;
  while (slots_[at].epoch == epoch_) {
    if (slots_[at].item == item) return false;
    at = (at + 1) & mask;
  }
  slots_[at] = {item, epoch_};
  ++count_;
  return true;
}

void Configurations::Seen::Grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const uint32_t epoch = epoch_;
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.epoch == epoch) Insert(slot.item);
  }
}

Configurations::Configurations(std::shared_ptr<const Automaton> automaton)
    : automaton_(std::move(automaton)),
      rule_of_rank_(automaton_->rules.size()),
      pending_(automaton_->rules.size()),
      buckets_(static_cast<size_t>(automaton_->classes)) {
  for (uint32_t r = 0; r < automaton_->rules.size(); ++r) {
    rule_of_rank_[automaton_->rules[r].rank] = r;
  }
  configurations_.push_back({.expanded = true});  // kDead
  next_.assign(static_cast<size_t>(automaton_->classes), kDead);
  stack_items_.push_back({kAccept, kBottom});
  stacks_.push_back({.first = 0, .count = 1, .depth = 0});
  stack_index_.emplace(HashItems(stack_items_, 1), kBottom);
  // The root is called by nobody, behind no byte.
  closed_.clear();
  accepts_ = automaton_->root_matches_empty;
  AddCall({.rule = automaton_->root, .target = 0, .tail = true}, kBottom);
  OpenRules();
  start_ = Intern();
}

size_t Configurations::bytes() const {
  constexpr size_t kIndexEntry = 48;  // a node of a hash table and its bucket
  return stacks_.size() * (sizeof(Stack) + kIndexEntry) + stack_items_.size() * sizeof(Item) +
         configurations_.size() * (sizeof(Configuration) + kIndexEntry) +
         items_.size() * sizeof(Item) + next_.size() * sizeof(Id);
}

void Configurations::Push(uint32_t state, uint32_t stack) {
  if (stacks_[stack].depth + automaton_->need[state] >
      static_cast<uint32_t>(automaton_->max_depth)) {
    return;
  }
  const Item item{state, stack};
  if (seen_.Insert(item)) work_.push_back(item);
}

// returns: whether the item's rule has read a byte, so that its end leads back to its callers.
void Configurations::Visit(Item item, bool returns) {
  const Automaton& a = *automaton_;
  --work_left_;
  if (returns && a.final[item.state]) {
    // By index: Push adds to no list of frames, but AddCall may.
    const Stack stack = stacks_[item.stack];
    work_left_ -= stack.count;
    for (uint32_t i = 0; i < stack.count; ++i) {
      const Item frame = stack_items_[stack.first + i];
      if (frame.state == kAccept) {
        accepts_ = true;
      } else {
        Push(frame.state, frame.stack);
      }
    }
  }
  for (const uint32_t target : a.empties(item.state)) Push(target, item.stack);
  work_left_ -= static_cast<int64_t>(a.empties(item.state).size());
  for (const Automaton::Call& call : a.calls(item.state)) AddCall(call, item.stack);
  if (!a.bytes(item.state).empty()) closed_.push_back(item);
}

// A frame is added only where the stack then has room for what it takes at least to come back.
void Configurations::AddCall(const Automaton::Call& call, uint32_t stack) {
  const Automaton& a = *automaton_;
  const auto most = static_cast<uint32_t>(a.max_depth);
  const Automaton::Rule& rule = a.rules[call.rule];
  const uint32_t depth = stacks_[stack].depth;
  if (depth + (call.tail ? 0 : 1) + a.need[rule.start] > most) return;
  if (!call.tail && depth + a.need[call.target] > most) return;
  --work_left_;
  std::vector<Item>& pending = pending_[rule.rank];
  if (pending.empty()) {
    pending_ranks_.push_back(rule.rank);
    std::ranges::push_heap(pending_ranks_, std::greater<>());
  }
  if (call.tail) {
    const Stack& below = stacks_[stack];
    work_left_ -= below.count;
    for (uint32_t i = 0; i < below.count; ++i) pending.push_back(stack_items_[below.first + i]);
  } else {
    pending.push_back({call.target, stack});
  }
}

// Begins the rules that are called, callers first, so that a new stack is whole before its rule
// begins. Nothing returns here: that is what the empty edges beside calls are for.
void Configurations::OpenRules() {
  while (!pending_ranks_.empty()) {
    std::ranges::pop_heap(pending_ranks_, std::greater<>());
    const uint32_t rank = pending_ranks_.back();
    pending_ranks_.pop_back();
    const uint32_t stack = InternStack(pending_[rank]);
    pending_[rank].clear();
    seen_.Clear();
    Push(automaton_->rules[rule_of_rank_[rank]].start, stack);
    while (!work_.empty()) {
      const Item item = work_.back();
      work_.pop_back();
      Visit(item, false);
    }
  }
}

Configurations::Id Configurations::Close(std::span<const Item> kernel) {
  closed_.clear();
  accepts_ = false;
  seen_.Clear();
  for (const Item& item : kernel) Push(item.state, item.stack);
  while (!work_.empty()) {
    const Item item = work_.back();
    work_.pop_back();
    Visit(item, true);
  }
  OpenRules();
  if (exhausted()) return kDead;
  return Intern();
}

uint32_t Configurations::InternStack(std::vector<Item>& frames_wanted) {
  std::ranges::sort(frames_wanted);
  const auto repeated = std::ranges::unique(frames_wanted);
  frames_wanted.erase(repeated.begin(), repeated.end());
  const uint64_t hash = HashItems(frames_wanted, 1);
  const auto [begin, end] = stack_index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (std::ranges::equal(frames(it->second), frames_wanted)) return it->second;
  }
  Stack stack{.first = static_cast<uint32_t>(stack_items_.size()),
              .count = static_cast<uint32_t>(frames_wanted.size())};
  for (const Item& frame : frames_wanted) {
    if (frame.state != kAccept) stack.depth = std::max(stack.depth, stacks_[frame.stack].depth + 1);
  }
  stack_items_.insert(stack_items_.end(), frames_wanted.begin(), frames_wanted.end());
  const auto id = static_cast<uint32_t>(stacks_.size());
  stacks_.push_back(stack);
  stack_index_.emplace(hash, id);
  return id;
}

Configurations::Id Configurations::Intern() {
  if (closed_.empty() && !accepts_) return kDead;
  std::ranges::sort(closed_);
  const auto repeated = std::ranges::unique(closed_);
  closed_.erase(repeated.begin(), repeated.end());
  const uint64_t hash = HashItems(closed_, accepts_ ? 3 : 2);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Configuration& known = configurations_[it->second];
    if (known.accepting == accepts_ && std::ranges::equal(items(it->second), closed_)) {
      return it->second;
    }
  }
  const auto id = static_cast<Id>(configurations_.size());
  configurations_.push_back({.first = static_cast<uint32_t>(items_.size()),
                             .count = static_cast<uint32_t>(closed_.size()),
                             .accepting = accepts_});
  items_.insert(items_.end(), closed_.begin(), closed_.end());
  index_.emplace(hash, id);
  return id;
}

Configurations::Id Configurations::Expand(Id from, Automaton::Class byte) {
  if (exhausted()) return kDead;
  const Automaton& a = *automaton_;
  for (std::vector<Item>& bucket : buckets_) bucket.clear();
  for (const Item& item : items(from)) {
    for (const Automaton::ByteEdge& edge : a.bytes(item.state)) {
      work_left_ -= 1 + edge.high - edge.low;
      for (size_t c = edge.low; c <= edge.high; ++c) {
        buckets_[c].push_back({edge.target, item.stack});
      }
    }
  }
  std::vector<Id> row(buckets_.size(), kDead);
  std::unordered_multimap<uint64_t, size_t> done;  // classes whose buckets are the same
  for (size_t c = 0; c < buckets_.size(); ++c) {
    if (buckets_[c].empty()) continue;
    if (c > 0 && buckets_[c] == buckets_[c - 1]) {
      row[c] = row[c - 1];
      continue;
    }
    const uint64_t hash = HashItems(buckets_[c], 5);
    const auto [begin, end] = done.equal_range(hash);
    const auto same =
        std::find_if(begin, end, [&](const auto& e) { return buckets_[e.second] == buckets_[c]; });
    if (same != end) {
      row[c] = row[same->second];
      continue;
    }
    row[c] = Close(buckets_[c]);
    done.emplace(hash, c);
  }
  if (exhausted()) return kDead;  // a row that is not whole is not kept
  Configuration& c = configurations_[from];
  c.next = static_cast<uint32_t>(next_.size());
  c.expanded = true;
  next_.insert(next_.end(), row.begin(), row.end());
  return row[byte];
}

Configurations::Id Configurations::CopyTo(Configurations& other, Id id) const {
  if (id == kDead) return kDead;
  // Stacks below come first, because they were made first.
  std::unordered_map<uint32_t, uint32_t> copied{{kBottom, kBottom}};
  std::vector<uint32_t> wanted;
  for (const Item& item : items(id)) wanted.push_back(item.stack);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!copied.emplace(wanted[i], 0).second) continue;
    for (const Item& frame : frames(wanted[i])) wanted.push_back(frame.stack);
  }
  copied[kBottom] = kBottom;
  std::ranges::sort(wanted);
  for (const uint32_t stack : wanted) {
    if (stack == kBottom) continue;
    std::vector<Item> moved;
    for (const Item& frame : frames(stack)) moved.push_back({frame.state, copied.at(frame.stack)});
    copied[stack] = other.InternStack(moved);
  }
  other.closed_.clear();
  for (const Item& item : items(id)) {
    other.closed_.push_back({item.state, copied.at(item.stack)});
  }
  other.accepts_ = configurations_[id].accepting;
  return other.Intern();
}

}  // namespace nibble::grammar
