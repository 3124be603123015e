#include "server/reasoning.h"

#include <algorithm>

namespace nibble::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr ReasoningMarks kMarks[] = {{"<think>", "</think>"},
                                     {"<thinking>", "</thinking>"},
                                     {"<reasoning>", "</reasoning>"},
                                     {"[THINK]", "[/THINK]"},
                                     {"<|START_THINKING|>", "<|END_THINKING|>"}};

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

void DropLeadingSpace(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
}

// Bytes at the end of `text` that may become `mark`.
size_t BegunMark(std::string_view text, std::string_view mark) {
  size_t length = std::min(text.size(), mark.size() - 1);
  while (length > 0 && !text.ends_with(mark.substr(0, length))) --length;
  return length;
}

}  // namespace

std::optional<ReasoningMarks> FindReasoning(std::string_view chat_template,
                                            std::string_view prompt) {
  for (ReasoningMarks marks : kMarks) {
    // A template that only cuts reasoning off names the closing mark alone.
    if (chat_template.find(marks.close) == chat_template.npos &&
        chat_template.find(marks.open) == chat_template.npos) {
      continue;
    }
    marks.begun = TrimRight(prompt).ends_with(marks.open);
    return marks;
  }
  return std::nullopt;
}

ReasoningSplitter::ReasoningSplitter(const ReasoningMarks& marks)
    : marks_(marks),
      state_(marks.begun ? State::kInside : State::kBegin),
      skip_space_(marks.begun) {}

ReasoningSplitter::Parts ReasoningSplitter::Add(std::string_view piece) {
  Parts parts;
  pending_ += piece;
  while (Advance(parts)) {
  }
  return parts;
}

// One state; false: more text is needed.
bool ReasoningSplitter::Advance(Parts& parts) {
  switch (state_) {
    case State::kBegin: {
      const size_t first = std::min(pending_.find_first_not_of(kSpace), pending_.size());
      const std::string_view rest = std::string_view(pending_).substr(first);
      if (marks_.open.starts_with(rest) && rest.size() < marks_.open.size()) return false;
      if (!rest.starts_with(marks_.open)) {
        state_ = State::kText;
        return true;
      }
      pending_.erase(0, first + marks_.open.size());
      skip_space_ = true;
      state_ = State::kInside;
      return true;
    }
    case State::kInside: {
      if (skip_space_) DropLeadingSpace(pending_);
      if (!pending_.empty()) skip_space_ = false;
      const std::string_view all = pending_;
      const size_t close = all.find(marks_.close);
      if (close != all.npos) {
        parts.reasoning += TrimRight(all.substr(0, close));
        pending_.erase(0, close + marks_.close.size());
        state_ = State::kBehind;
        return true;
      }
      const size_t known = all.size() - BegunMark(all, marks_.close);
      const size_t sure = TrimRight(all.substr(0, known)).size();
      parts.reasoning += all.substr(0, sure);
      pending_.erase(0, sure);
      return false;
    }
    case State::kBehind:
      DropLeadingSpace(pending_);
      if (pending_.empty()) return false;
      state_ = State::kText;
      return true;
    case State::kText:
      parts.text += pending_;
      pending_.clear();
      return false;
  }
  return false;
}

ReasoningSplitter::Parts ReasoningSplitter::End() {
  Parts parts;
  (state_ == State::kInside ? parts.reasoning : parts.text) = std::move(pending_);
  pending_.clear();
  state_ = State::kText;
  return parts;
}

}  // namespace nibble::server
