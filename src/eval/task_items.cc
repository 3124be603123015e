#include "eval/task_items.h"

#include <charconv>
#include <limits>
#include <optional>
#include <random>

#include "container/json.h"
#include "tokenizer/regex.h"

namespace nibble {
namespace {

constexpr size_t kMaxLine = size_t{1} << 20;  // bytes
constexpr size_t kMaxChoices = 64;
constexpr int kMaxTokens = 1 << 20;

struct Line {
  int number = 0;  // from 1
  std::string_view text;
};

Result<std::vector<Line>> SplitLines(std::string_view text) {
  std::vector<Line> lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line = {++number, text.substr(0, end)};
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    if (line.text.size() > kMaxLine) {
      return BadInput("line {}: expected at most {} bytes, found {}", number, kMaxLine,
                      line.text.size());
    }
    lines.push_back(line);
  }
  return lines;
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

std::string At(int line) { return fmt::format("line {}", line); }

// ---- HellaSwag

constexpr size_t kHellaswagEndings = 4;
constexpr size_t kHellaswagLines = 2 + kHellaswagEndings;

Result<ChoiceItem> HellaswagItem(const Line* lines) {
  ChoiceItem item;
  item.line = lines[0].number;
  if (IsBlank(lines[0].text)) return BadInput("line {}: the context is empty", item.line);
  item.context = lines[0].text;
  const std::string_view gold = lines[1].text;
  if (gold.size() != 1 || gold[0] < '0' || gold[0] > '3') {
    return BadInput("line {}: expected the right ending's index, 0 to 3, found '{:.40}'",
                    lines[1].number, gold);
  }
  item.answer = gold[0] - '0';
  for (size_t i = 2; i < kHellaswagLines; ++i) {
    if (IsBlank(lines[i].text)) return BadInput("line {}: the ending is empty", lines[i].number);
    item.endings.emplace_back(lines[i].text);
  }
  return item;
}

// std::uniform_int_distribution<size_t> over [0, count) as libstdc++ (from version 11 on) draws it
// from std::mt19937 (Lemire 2019), written out so that the same items come out everywhere.
uint32_t DrawBelow(std::mt19937& random, uint32_t count) {
  uint64_t product = uint64_t{random()} * count;
  auto low = static_cast<uint32_t>(product);
  if (low < count) {
    const uint32_t threshold = (0U - count) % count;
    while (low < threshold) {
      product = uint64_t{random()} * count;
      low = static_cast<uint32_t>(product);
    }
  }
  return static_cast<uint32_t>(product >> 32);
}

// llama-perplexity's order: always drawn without replacement with seed 1, so that a part of the
// tasks is a fair one (the file is sorted by source).
std::vector<size_t> HellaswagOrder(size_t count, size_t wanted) {
  std::vector<size_t> left(count);
  for (size_t i = 0; i < count; ++i) left[i] = i;
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed)
  std::vector<size_t> order;
  while (order.size() < wanted) {
    const uint32_t drawn = DrawBelow(random, static_cast<uint32_t>(left.size()));
    order.push_back(left[drawn]);
    left.erase(left.begin() + drawn);
  }
  return order;
}

Result<std::vector<ChoiceItem>> ParseHellaswag(std::string_view text, int limit) {
  NIBBLE_TRY(std::vector<Line> lines, SplitLines(text));
  while (!lines.empty() && IsBlank(lines.back().text)) lines.pop_back();
  if (lines.size() % kHellaswagLines != 0) {
    return BadInput("line {}: expected six lines an item, but the last one has {}",
                    lines.size() / kHellaswagLines * kHellaswagLines + 1,
                    lines.size() % kHellaswagLines);
  }
  const size_t count = lines.size() / kHellaswagLines;
  std::vector<ChoiceItem> all;
  for (size_t i = 0; i < count; ++i) {
    NIBBLE_TRY(ChoiceItem item, HellaswagItem(&lines[i * kHellaswagLines]));
    all.push_back(std::move(item));
  }
  if (limit == 0 || static_cast<size_t>(limit) >= count) return all;
  std::vector<ChoiceItem> items;
  for (const size_t at : HellaswagOrder(count, static_cast<size_t>(limit))) {
    items.push_back(std::move(all[at]));
  }
  return items;
}

// ---- lines of JSON

Result<std::string> NonEmpty(JsonValue object, std::string_view key) {
  NIBBLE_TRY(const std::string_view text, object.GetString(key));
  if (IsBlank(text)) return BadInput("'{}': expected a text, found an empty one", key);
  return std::string(text);
}

Result<ChoiceItem> LambadaItem(JsonValue object) {
  NIBBLE_TRY(const std::string text, NonEmpty(object, "text"));
  const size_t space = text.rfind(' ');
  if (space == std::string::npos || IsBlank(std::string_view(text).substr(0, space)) ||
      space + 1 == text.size()) {
    return BadInput("'text': expected at least two words and no space at the end");
  }
  ChoiceItem item;
  item.context = text.substr(0, space);
  item.endings = {text.substr(space + 1)};
  return item;
}

Result<std::vector<std::string>> Texts(JsonValue value, std::string_view key) {
  const auto array = value.AsArray();
  if (!array) return Within(fmt::format("'{}'", key), array.error());
  if (array->size() > kMaxChoices) {
    return BadInput("'{}': expected at most {} texts, found {}", key, kMaxChoices, array->size());
  }
  std::vector<std::string> texts;
  for (const JsonValue element : *array) {
    const auto text = element.AsString();
    if (!text) return Within(fmt::format("'{}' [{}]", key, texts.size()), text.error());
    if (text->empty()) return BadInput("'{}' [{}]: the text is empty", key, texts.size());
    texts.emplace_back(*text);
  }
  return texts;
}

// "answer": an index; or "answerKey": one of the labels.
Result<int> RightChoice(JsonValue object, const std::vector<std::string>& labels, size_t choices) {
  if (object.Find("answer")) {
    NIBBLE_TRY(const int64_t index, object.GetInt("answer"));
    if (index < 0 || index >= static_cast<int64_t>(choices)) {
      return BadInput("'answer': expected an index from 0 to {}, found {}", choices - 1, index);
    }
    return static_cast<int>(index);
  }
  NIBBLE_TRY(const std::string_view key, object.GetString("answerKey"));
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == key) return static_cast<int>(i);
  }
  return BadInput("'answerKey': expected one of the {} labels, found '{:.40}'", labels.size(), key);
}

Result<ChoiceItem> QuestionItem(ChoiceTask task, JsonValue object) {
  NIBBLE_TRY(const std::string question, NonEmpty(object, "question"));
  NIBBLE_TRY(const JsonValue choices, object.Get("choices"));
  ChoiceItem item;
  std::vector<std::string> labels;
  if (choices.is_object()) {
    NIBBLE_TRY(const JsonValue texts, choices.Get("text"));
    NIBBLE_TRY(item.endings, Texts(texts, "text"));
    NIBBLE_TRY(const JsonValue names, choices.Get("label"));
    NIBBLE_TRY(labels, Texts(names, "label"));
    if (labels.size() != item.endings.size()) {
      return BadInput("'choices': expected a label for each of {} texts, found {}",
                      item.endings.size(), labels.size());
    }
  } else {
    NIBBLE_TRY(item.endings, Texts(choices, "choices"));
  }
  if (item.endings.size() < 2) {
    return BadInput("'choices': expected at least 2, found {}", item.endings.size());
  }
  NIBBLE_TRY(item.answer, RightChoice(object, labels, item.endings.size()));
  item.context =
      task == ChoiceTask::kArc ? fmt::format("Question: {}\nAnswer:", question) : question;
  return item;
}

// ---- prompts

// The last "#### 18" of a solution; llama-perplexity has no such task, lm-evaluation-harness has.
Result<PromptItem> Gsm8kItem(JsonValue object) {
  NIBBLE_TRY(const std::string question, NonEmpty(object, "question"));
  NIBBLE_TRY(const std::string answer, NonEmpty(object, "answer"));
  constexpr std::string_view kMark = "#### ";
  const size_t mark = answer.rfind(kMark);
  if (mark == std::string::npos) return BadInput("'answer': expected '#### ' and a number");
  PromptItem item;
  item.prompt = fmt::format("Question: {}\nAnswer:", question);
  item.expected = answer.substr(mark + kMark.size());
  item.rule = AnswerRule::kNumber;
  item.stop = {"Question:"};
  return item;
}

Result<AnswerRule> ParseRule(std::string_view name) {
  if (name == "exact") return AnswerRule::kExact;
  if (name == "number") return AnswerRule::kNumber;
  if (name == "regex") return AnswerRule::kRegex;
  return BadInput("'rule': expected exact, number or regex, found '{:.40}'", name);
}

Status CheckExpected(const PromptItem& item) {
  if (item.rule == AnswerRule::kRegex) {
    const auto regex = Regex::Compile(item.expected, RegexDialect::kRust);
    if (!regex) return Within("'expected'", regex.error());
  }
  if (item.rule == AnswerRule::kNumber &&
      item.expected.find_first_of("0123456789") == std::string::npos) {
    return BadInput("'expected': expected a number, found '{:.40}'", item.expected);
  }
  return {};
}

Result<PromptItem> ParsePrompt(JsonValue object) {
  PromptItem item;
  if (!object.Find("prompt") && object.Find("question")) {
    NIBBLE_TRY(item, Gsm8kItem(object));
  } else {
    NIBBLE_TRY(item.prompt, NonEmpty(object, "prompt"));
    const auto expected = object.Find("expected");
    if (expected && expected->is_number()) {
      item.expected = expected->ToString();
    } else {
      NIBBLE_TRY(item.expected, NonEmpty(object, "expected"));
    }
    NIBBLE_TRY(const std::string_view rule, object.GetString("rule"));
    NIBBLE_TRY(item.rule, ParseRule(rule));
  }
  NIBBLE_TRY(const int64_t max_tokens, object.GetIntOr("max_tokens", item.max_tokens));
  if (max_tokens < 1 || max_tokens > kMaxTokens) {
    return BadInput("'max_tokens': expected 1 to {}, found {}", kMaxTokens, max_tokens);
  }
  item.max_tokens = static_cast<int>(max_tokens);
  if (const auto stop = object.Find("stop"); stop && stop->is_string()) {
    item.stop = {std::string(*stop->AsString())};
  } else if (stop && !stop->is_null()) {
    NIBBLE_TRY(item.stop, Texts(*stop, "stop"));
  }
  NIBBLE_RETURN_IF_ERROR(CheckExpected(item));
  return item;
}

// One item of each line that is not blank.
template <class Item, class ParseItem>
Result<std::vector<Item>> ParseLines(std::string_view text, int limit, ParseItem parse) {
  NIBBLE_TRY(const std::vector<Line> lines, SplitLines(text));
  std::vector<Item> items;
  for (const Line& line : lines) {
    if (limit > 0 && std::ssize(items) >= limit) break;
    if (IsBlank(line.text)) continue;
    const auto document = JsonDocument::Parse(std::string(line.text));
    if (!document) return Within(At(line.number), document.error());
    if (!document->root().is_object()) {
      return BadInput("line {}: expected an object, found {}", line.number,
                      JsonKindName(document->root().kind()));
    }
    Result<Item> item = parse(document->root());
    if (!item) return Within(At(line.number), item.error());
    item->line = line.number;
    items.push_back(*std::move(item));
  }
  return items;
}

template <class Item>
Result<std::vector<Item>> NotNone(Result<std::vector<Item>> items) {
  if (items && items->empty()) return BadInput("no items: the file is empty");
  return items;
}

}  // namespace

Result<std::vector<ChoiceItem>> ParseChoiceItems(ChoiceTask task, std::string_view text,
                                                 int limit) {
  if (task == ChoiceTask::kHellaswag) return NotNone(ParseHellaswag(text, limit));
  return NotNone(ParseLines<ChoiceItem>(text, limit, [task](JsonValue object) {
    return task == ChoiceTask::kLambada ? LambadaItem(object) : QuestionItem(task, object);
  }));
}

Result<std::vector<PromptItem>> ParsePromptItems(std::string_view text, int limit) {
  return NotNone(ParseLines<PromptItem>(text, limit, ParsePrompt));
}

}  // namespace nibble
