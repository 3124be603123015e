#include "eval/generated_tasks.h"

#include <deque>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A decimal number in one spelling: no separators, no zeros in front or at a fraction's end.
struct Number {
  std::string digits;
  size_t end = 0;  // behind it in the text
};

// The number whose first digit is at `at`.
Number ReadNumber(std::string_view text, size_t at) {
  const bool negative = at > 0 && text[at - 1] == '-' && (at < 2 || !IsDigit(text[at - 2]));
  Number number;
  bool fraction = false;
  for (number.end = at; number.end < text.size(); ++number.end) {
    const char c = text[number.end];
    const bool digit_follows = number.end + 1 < text.size() && IsDigit(text[number.end + 1]);
    if (IsDigit(c)) {
      number.digits += c;
    } else if (c == '.' && !fraction && digit_follows) {
      fraction = true;
      number.digits += c;
    } else if (c != ',' || fraction || !digit_follows) {
      break;
    }
  }
  if (fraction) {
    number.digits.erase(number.digits.find_last_not_of('0') + 1);
    if (number.digits.ends_with('.')) number.digits.pop_back();
  }
  const size_t integer = std::min(number.digits.find('.'), number.digits.size());
  const size_t first = std::min(number.digits.find_first_not_of('0'), integer - 1);
  number.digits.erase(0, first);
  if (negative && number.digits != "0") number.digits.insert(0, 1, '-');
  return number;
}

std::optional<std::string> FindNumber(std::string_view text, bool last) {
  std::optional<std::string> found;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!IsDigit(text[at])) continue;
    const Number number = ReadNumber(text, at);
    found = number.digits;
    if (!last) break;
    at = number.end - 1;
  }
  return found;
}

Result<bool> Matches(std::string_view expression, std::string_view answer) {
  NIBBLE_TRY(const Regex regex, Regex::Compile(expression, RegexDialect::kRust));
  std::vector<MatchRange> found;
  NIBBLE_RETURN_IF_ERROR(RegexMatcher(regex, answer.size()).FindAll(answer, found));
  return !found.empty();
}

// A prompt in the engine's hands; one that is given up early is cancelled.
class RunningPrompt {
 public:
  static Result<std::unique_ptr<RunningPrompt>> Start(Engine& engine, const PromptItem& item) {
    NIBBLE_TRY(std::vector<TokenId> ids, engine.tokenizer().Encode(item.prompt));
    const int room = engine.plan().max_context;
    if (std::ssize(ids) >= room) {
      return BadInput("{} tokens in the prompt, but the model has room for {} with the answer",
                      ids.size(), room);
    }
    auto prompt = std::unique_ptr<RunningPrompt>(new RunningPrompt(engine));
    Request request;
    request.prompt = std::move(ids);
    request.max_tokens = item.max_tokens;
    request.stop = item.stop;
    NIBBLE_TRY(prompt->id_, engine.Submit(std::move(request), prompt->stream_));
    prompt->running_ = true;
    return prompt;
  }
  ~RunningPrompt() {
    if (!running_) return;
    engine_.Cancel(id_);
    Collect(*stream_);
  }
  RunningPrompt(const RunningPrompt&) = delete;
  RunningPrompt& operator=(const RunningPrompt&) = delete;

  Result<GeneratedAnswer> Finish() {
    std::vector<Answer> answers = Collect(*stream_);
    running_ = false;
    Answer& answer = answers.front();
    if (answer.finish.error) return std::unexpected(*answer.finish.error);
    if (answer.finish.reason == FinishReason::kCancelled) {
      return Fail(ErrorKind::kCancelled, "evaluation cancelled");
    }
    return GeneratedAnswer{.text = std::move(answer.text),
                           .tokens = answer.finish.usage.generated_tokens,
                           .cut = answer.finish.reason == FinishReason::kLength};
  }

 private:
  explicit RunningPrompt(Engine& engine) : engine_(engine) {}

  Engine& engine_;
  std::shared_ptr<EventStream> stream_ = std::make_shared<EventStream>();
  RequestId id_;
  bool running_ = false;
};

}  // namespace

Result<bool> JudgeAnswer(const PromptItem& item, std::string_view answer) {
  switch (item.rule) {
    case AnswerRule::kExact:
      return Trim(answer) == Trim(item.expected);
    case AnswerRule::kNumber:
      return FindNumber(answer, true) == FindNumber(item.expected, false);
    case AnswerRule::kRegex:
      return Matches(item.expected, answer);
  }
  return false;
}

Result<std::vector<GeneratedAnswer>> AnswerPrompts(Engine& engine,
                                                   std::span<const PromptItem> items,
                                                   const TaskProgress& progress) {
  constexpr size_t kInFlight = 64;  // the engine runs as many of them as it has room for
  std::deque<std::unique_ptr<RunningPrompt>> running;
  std::vector<GeneratedAnswer> answers;
  for (size_t started = 0; answers.size() < items.size();) {
    if (started < items.size() && running.size() < kInFlight) {
      const PromptItem& item = items[started++];
      auto prompt = RunningPrompt::Start(engine, item);
      if (!prompt) return Within(fmt::format("line {}", item.line), prompt.error());
      running.push_back(*std::move(prompt));
      continue;
    }
    const PromptItem& item = items[answers.size()];
    NIBBLE_TRY(GeneratedAnswer answer, running.front()->Finish());
    running.pop_front();
    const auto right = JudgeAnswer(item, answer.text);
    if (!right) return Within(fmt::format("line {}", item.line), right.error());
    answer.right = *right;
    answers.push_back(std::move(answer));
    if (progress) progress(static_cast<int>(answers.size()), static_cast<int>(items.size()));
  }
  return answers;
}

}  // namespace nibble
