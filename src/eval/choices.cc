#include "eval/choices.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "engine/engine.h"
#include "eval/windows.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

// ln p of every token from a position on, given those before it.
class TokenScorer : public PositionLogitsSink {
 public:
  TokenScorer(const KernelTable& kernels, std::vector<TokenId> ids, size_t from)
      : kernels_(kernels), ids_(std::move(ids)), from_(from) {}

  void Rows(Position first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      const auto next = static_cast<size_t>((first + r).value()) + 1;
      if (next >= ids_.size()) break;
      const std::span<const float> row = logits.row_span(r);
      const LogSumExp sum = ComputeLogSumExp(kernels_, row);
      const auto id = static_cast<size_t>(ids_[next].value());
      logprobs_.push_back(double{row[id]} - sum.log_sum_exp);
      top_.push_back(std::ranges::find(row, sum.max) - row.begin() == static_cast<ptrdiff_t>(id));
    }
  }

  // Σ over tokens [begin, end of the sequence).
  double Sum(size_t begin) const {
    double sum = 0;
    for (size_t i = begin - from_; i < logprobs_.size(); ++i) sum += logprobs_[i];
    return sum;
  }
  bool Greedy(size_t begin) const {
    return std::all_of(top_.begin() + static_cast<ptrdiff_t>(begin - from_), top_.end(),
                       [](bool top) { return top; });
  }
  const std::vector<TokenId>& ids() const { return ids_; }
  int logits_from() const { return static_cast<int>(from_) - 1; }

 private:
  const KernelTable& kernels_;
  std::vector<TokenId> ids_;
  size_t from_;  // the first token that is scored, at least 1
  std::vector<double> logprobs_;
  std::vector<bool> top_;
};

// One ending in the engine's hands.
struct ScoredEnding {
  size_t item = 0;
  size_t ending = 0;
  size_t context = 0;  // tokens of the context alone, at least 1
  size_t shared = 0;   // tokens that all endings begin with, at least 1
  std::unique_ptr<TokenScorer> scorer;
  std::unique_ptr<RunningWindow> running;
};

Result<std::vector<TokenId>> EncodePlain(const Tokenizer& tokenizer, std::string_view text) {
  NIBBLE_TRY(std::vector<TokenId> ids, tokenizer.Encode(text, {.parse_special = false}));
  // The text goes on: no end mark.
  if (tokenizer.adds_eos() && !ids.empty() && ids.back() == tokenizer.eos()) ids.pop_back();
  return ids;
}

size_t CommonPrefix(std::span<const std::vector<TokenId>> sequences) {
  size_t length = sequences.front().size();
  for (const std::vector<TokenId>& ids : sequences) {
    const auto [a, b] = std::ranges::mismatch(sequences.front(), ids);
    length = std::min(length, static_cast<size_t>(a - sequences.front().begin()));
  }
  return length;
}

class ChoiceScorer {
 public:
  ChoiceScorer(Engine& engine, const KernelTable& kernels, std::span<const ChoiceItem> items,
               const TaskProgress& progress)
      : engine_(engine),
        kernels_(kernels),
        items_(items),
        progress_(progress),
        scores_(items.size()),
        open_(items.size()) {}

  Result<std::vector<ChoiceScore>> Run() {
    for (size_t begin = 0; begin < items_.size(); begin += kBlock) {
      NIBBLE_RETURN_IF_ERROR(Block(begin, std::min(begin + kBlock, items_.size())));
    }
    while (!running_.empty()) NIBBLE_RETURN_IF_ERROR(FinishFirst());
    return std::move(scores_);
  }

 private:
  // First endings of so many items go before their second ones, which then find the context's pages
  // sealed.
  static constexpr size_t kBlock = 16;
  static constexpr size_t kInFlight = 64;

  Status Block(size_t begin, size_t end) {
    std::vector<std::vector<ScoredEnding>> block;
    size_t most = 0;
    for (size_t item = begin; item < end; ++item) {
      NIBBLE_TRY(std::vector<ScoredEnding> endings, Prepare(item));
      most = std::max(most, endings.size());
      block.push_back(std::move(endings));
    }
    for (size_t i = 0; i < most; ++i) {
      for (std::vector<ScoredEnding>& endings : block) {
        if (i < endings.size()) NIBBLE_RETURN_IF_ERROR(Start(std::move(endings[i])));
      }
    }
    return {};
  }

  Result<std::vector<ScoredEnding>> Prepare(size_t index) {
    const ChoiceItem& item = items_[index];
    const Tokenizer& tokenizer = engine_.tokenizer();
    std::vector<std::vector<TokenId>> sequences;
    for (const std::string& ending : item.endings) {
      NIBBLE_TRY(std::vector<TokenId> ids, EncodePlain(tokenizer, item.context + " " + ending));
      const int room = engine_.plan().max_context;
      if (std::ssize(ids) > room) {
        return BadInput("line {}: {} tokens, but the model has room for {}", item.line, ids.size(),
                        room);
      }
      if (ids.size() < 2) return BadInput("line {}: expected at least 2 tokens", item.line);
      sequences.push_back(std::move(ids));
    }
    // lm-evaluation-harness gives spaces at the end of a context to the ending.
    const size_t text_end = item.context.find_last_not_of(" \t\n\r");
    NIBBLE_TRY(const std::vector<TokenId> context,
               EncodePlain(tokenizer, std::string_view(item.context).substr(0, text_end + 1)));
    const size_t common =
        sequences.size() > 1 ? CommonPrefix(sequences) : std::max<size_t>(context.size(), 1);
    std::vector<ScoredEnding> endings;
    for (size_t i = 0; i < sequences.size(); ++i) {
      ScoredEnding ending;
      const size_t last = sequences[i].size() - 1;  // at least one token is scored
      ending.item = index;
      ending.ending = i;
      ending.context = std::clamp<size_t>(context.size(), 1, last);
      ending.shared = std::clamp<size_t>(common, 1, last);
      ending.scorer = std::make_unique<TokenScorer>(kernels_, std::move(sequences[i]),
                                                    std::min(ending.context, ending.shared));
      endings.push_back(std::move(ending));
    }
    ChoiceScore& score = scores_[index];
    score.sum.resize(endings.size());
    score.mean.resize(endings.size());
    score.greedy.resize(endings.size());
    open_[index] = endings.size();
    return endings;
  }

  Status Start(ScoredEnding ending) {
    while (running_.size() >= kInFlight) NIBBLE_RETURN_IF_ERROR(FinishFirst());
    NIBBLE_TRY(ending.running, RunningWindow::Start(engine_, ending.scorer->ids(),
                                                    ending.scorer->logits_from(), *ending.scorer));
    running_.push_back(std::move(ending));
    return {};
  }

  Status FinishFirst() {
    ScoredEnding& ending = running_.front();
    NIBBLE_RETURN_IF_ERROR(ending.running->Finish());
    ChoiceScore& score = scores_[ending.item];
    const size_t length = ending.scorer->ids().size();
    score.sum[ending.ending] = ending.scorer->Sum(ending.context);
    score.mean[ending.ending] =
        ending.scorer->Sum(ending.shared) / static_cast<double>(length - ending.shared);
    score.greedy[ending.ending] = ending.scorer->Greedy(ending.context) ? 1 : 0;
    score.tokens += static_cast<int64_t>(length);
    if (--open_[ending.item] == 0) {
      ++done_;
      if (progress_) progress_(done_, static_cast<int>(items_.size()));
    }
    running_.pop_front();
    return {};
  }

  Engine& engine_;
  const KernelTable& kernels_;
  std::span<const ChoiceItem> items_;
  const TaskProgress& progress_;
  std::vector<ChoiceScore> scores_;  // [items]
  std::vector<size_t> open_;         // [items]: endings that are not scored yet
  std::deque<ScoredEnding> running_;
  int done_ = 0;
};

// Code points: bytes that do not go on with a character.
double Characters(std::string_view text) {
  const auto count =
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
  return static_cast<double>(std::max<ptrdiff_t>(count, 1));
}

uint8_t IsBest(std::span<const double> values, int answer) {
  return std::ranges::max_element(values) - values.begin() == answer ? 1 : 0;
}

}  // namespace

Result<std::vector<ChoiceScore>> ScoreChoices(Engine& engine, std::span<const ChoiceItem> items,
                                              const TaskProgress& progress) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  return ChoiceScorer(engine, KernelsFor(isa), items, progress).Run();
}

ChoiceAnswers JudgeChoices(std::span<const ChoiceItem> items, std::span<const ChoiceScore> scores) {
  ChoiceAnswers answers;
  for (size_t i = 0; i < items.size(); ++i) {
    const ChoiceScore& score = scores[i];
    const auto right = static_cast<size_t>(items[i].answer);
    std::vector<double> per_char;
    for (size_t e = 0; e < score.sum.size(); ++e) {
      per_char.push_back(score.sum[e] / Characters(items[i].endings[e]));
    }
    answers.mean.push_back(IsBest(score.mean, items[i].answer));
    answers.sum.push_back(IsBest(score.sum, items[i].answer));
    answers.per_char.push_back(IsBest(per_char, items[i].answer));
    answers.greedy.push_back(score.greedy[right]);
    answers.loss.push_back(-score.sum[right]);
  }
  return answers;
}

}  // namespace nibble
