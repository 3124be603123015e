#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble::server {

// What stands around the reasoning in an answer.
struct ReasoningMarks {
  std::string_view open;
  std::string_view close;
  bool begun = false;  // the prompt ends with `open`: the answer begins inside
};

// Those that a chat template speaks of: <think>, <thinking>, <reasoning>, [THINK],
// <|START_THINKING|>.
std::optional<ReasoningMarks> FindReasoning(std::string_view chat_template,
                                            std::string_view prompt);

// Tells an answer's reasoning from its text, piece by piece. Reasoning is what lies between the
// marks at the answer's beginning; the white space beside the marks belongs to neither. What may be
// the beginning of a mark is held back until it is known.
class ReasoningSplitter {
 public:
  explicit ReasoningSplitter(const ReasoningMarks& marks);

  struct Parts {
    std::string reasoning;
    std::string text;
  };
  Parts Add(std::string_view piece);
  Parts End();  // what was held back

 private:
  enum class State { kBegin, kInside, kBehind, kText };
  bool Advance(Parts& parts);

  ReasoningMarks marks_;
  State state_;
  bool skip_space_ = false;  // behind the opening mark
  std::string pending_;
};

}  // namespace nibble::server
