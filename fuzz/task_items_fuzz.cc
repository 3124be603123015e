// deps: eval
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "eval/generated_tasks.h"
#include "eval/task_items.h"

// The first byte is the task and how many items are asked for, the rest its file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int limit = data[0] / 8;
  const int task = data[0] % 8;
  if (task < 4) {
    static_cast<void>(nibble::ParseChoiceItems(static_cast<nibble::ChoiceTask>(task), text, limit));
    return 0;
  }
  const auto items = nibble::ParsePromptItems(text, limit);
  if (!items) return 0;
  for (const nibble::PromptItem& item : *items) {
    if (item.rule != nibble::AnswerRule::kRegex) {  // those may take seconds by their bound
      static_cast<void>(nibble::JudgeAnswer(item, item.prompt));
    }
  }
  return 0;
}
