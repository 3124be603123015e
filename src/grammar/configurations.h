#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace nibble::grammar {

// The configurations that an automaton gets into, each made once: a deterministic automaton that is
// built as far as texts lead. After Earley (1970) and Tomita's graph of stacks (1985), with the
// sets of both hash-consed: a configuration is a set of (state, stack), a stack a set of (state to
// go on at, stack below). Texts that leave the same ways open share everything, so that ambiguity
// costs no more than polynomial time, and a configuration is an integer that can be compared and
// kept.
class Configurations {
 public:
  using Id = uint32_t;
  static constexpr Id kDead = 0;  // no text goes on from here, and none ends here

  explicit Configurations(std::shared_ptr<const Automaton> automaton);

  Id start() const { return start_; }
  // The configuration behind one more byte of a class. kDead is final, and is what everything is
  // once `exhausted`.
  Id Next(Id from, Automaton::Class byte) {
    const Configuration& c = configurations_[from];
    return c.expanded ? next_[c.next + byte] : Expand(from, byte);
  }
  Id NextByte(Id from, uint8_t byte) { return Next(from, automaton_->class_of[byte]); }
  // Whether the text may end here.
  bool accepting(Id id) const { return configurations_[id].accepting; }
  // Whether some byte may follow.
  bool open(Id id) const { return configurations_[id].count > 0; }

  const Automaton& automaton() const { return *automaton_; }
  size_t size() const { return configurations_.size(); }
  size_t bytes() const;
  // The same configuration in another object over the same automaton.
  Id CopyTo(Configurations& other, Id id) const;

  // From now on at most so many edges are followed to find new configurations; then all of them
  // are kDead.
  void AllowWork(int64_t edges) { work_left_ = edges; }
  bool exhausted() const { return work_left_ < 0; }

 private:
  // A state and what is below it; in a stack: the state to go on at, and its stack.
  struct Item {
    uint32_t state = 0;
    uint32_t stack = 0;
    auto operator<=>(const Item&) const = default;
  };
  static constexpr uint32_t kAccept = UINT32_MAX;  // the state behind the root
  static constexpr uint32_t kBottom = 0;           // the stack that holds only it
  struct Stack {
    uint32_t first = 0;  // into stack_items_
    uint32_t count = 0;
    uint32_t depth = 0;
  };
  struct Configuration {
    uint32_t first = 0;  // into items_
    uint32_t count = 0;
    uint32_t next = 0;  // into next_, when expanded
    bool accepting = false;
    bool expanded = false;
  };

  // Pairs seen in one closure.
  class Seen {
   public:
    void Clear();
    bool Insert(Item item);  // false: it was there

   private:
    struct Slot {
      Item item;
      uint32_t epoch = 0;
    };
    void Grow();
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    uint32_t epoch_ = 1;
    size_t count_ = 0;
  };

  Id Expand(Id from, Automaton::Class byte);
  // The configuration that begins with these items, all behind at least one byte.
  Id Close(std::span<const Item> kernel);
  void Push(uint32_t state, uint32_t stack);
  void Visit(Item item, bool returns);
  void AddCall(const Automaton::Call& call, uint32_t stack);
  void OpenRules();
  uint32_t InternStack(std::vector<Item>& frames);
  Id Intern();

  std::span<const Item> frames(uint32_t stack) const {
    return std::span(stack_items_).subspan(stacks_[stack].first, stacks_[stack].count);
  }
  std::span<const Item> items(Id id) const {
    return std::span(items_).subspan(configurations_[id].first, configurations_[id].count);
  }

  std::shared_ptr<const Automaton> automaton_;
  std::vector<uint32_t> rule_of_rank_;
  std::vector<Stack> stacks_;
  std::vector<Item> stack_items_;
  std::unordered_multimap<uint64_t, uint32_t> stack_index_;
  std::vector<Configuration> configurations_;
  std::vector<Item> items_;
  std::unordered_multimap<uint64_t, Id> index_;
  std::vector<Id> next_;
  Id start_ = kDead;
  int64_t work_left_ = INT64_MAX;

  // Of the closure at hand.
  Seen seen_;
  std::vector<Item> work_;
  std::vector<Item> closed_;
  bool accepts_ = false;
  std::vector<std::vector<Item>> pending_;  // per rank: frames of the rule's new stack
  std::vector<uint32_t> pending_ranks_;     // a heap, least first
  std::vector<std::vector<Item>> buckets_;  // per class
};

}  // namespace nibble::grammar
