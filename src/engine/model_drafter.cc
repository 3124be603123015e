#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

// What to expect of a draft model at first.
constexpr double kPrior = 0.6;
// Known tokens that are computed together with the row of the last one; more go before it, in steps
// of their own.
constexpr int kMostBehind = 32;

class NoLogits : public LogitsSink {
 public:
  void Rows(int /*first*/, MatrixView<float> /*logits*/) override {}
};

TokenId TokenAt(const TokenList& tokens, std::span<const TokenId> guesses, int position) {
  return position < tokens.size() ? tokens[position]
                                  : guesses[static_cast<size_t>(position - tokens.size())];
}

}  // namespace

// Row i of the logits is behind task i.
class ModelDrafter::DrawSink : public LogitsSink {
 public:
  DrawSink(Sampler& sampler, std::span<Task> tasks) : sampler_(sampler), tasks_(tasks) {}

  void Rows(int first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      Task& task = tasks_[static_cast<size_t>(first + r)];
      const DraftQuery& query = *task.query;
      const auto drawn =
          sampler_.Draw(*query.sampling, task.state, query.choice, -1, logits.row_span(r));
      if (!drawn) {  // what it would be is the answer's to say
        task.wanted = 0;
        continue;
      }
      task.state.Accept(drawn->id, drawn->mirostat);
      task.draft->tokens.push_back(drawn->id);
    }
  }

 private:
  Sampler& sampler_;
  std::span<Task> tasks_;
};

ModelDrafter::ModelDrafter(Executor& executor, const KernelTable& kernels,
                           ModelDrafterOptions options)
    : executor_(executor),
      options_(std::move(options)),
      book_(options_.pools),
      sampler_(executor.vocabulary(), kernels) {}

std::vector<FormPages> ModelDrafter::Touched() const {
  std::vector<FormPages> touched;
  for (int g = 0; g < book_.groups(); ++g) {
    touched.push_back({book_.pool(g).touched(), book_.open_pool(g).touched()});
  }
  return touched;
}

double ModelDrafter::ChanceOf(const Answer& answer) const {
  return answer.chances.Chance(all_.Chance(kPrior));
}

// Compares the last guesses with what came, and keeps the pages of those that were right.
void ModelDrafter::Learn(Answer& answer, const TokenList& tokens) {
  const int come = std::min(tokens.size() - answer.known, static_cast<int>(answer.guessed.size()));
  int right = 0;
  while (right < come &&
         tokens[answer.known + right] == answer.guessed[static_cast<size_t>(right)]) {
    answer.chances.Count(true);
    all_.Count(true);
    ++right;
  }
  if (right < come) {
    answer.chances.Count(false);
    all_.Count(false);
  }
  answer.guessed.clear();
  if (!answer.ahead) return;
  // The last known token is computed again where no other has come behind it: its logits are
  // wanted.
  const int accepted = std::min({answer.ahead_known + right, answer.ahead->positions(),
                                 tokens.size() - 1 - answer.pages.committed()});
  answer.ahead->Commit(accepted, {});
  answer.ahead.reset();
}

void ModelDrafter::ChooseLengths(std::span<const DraftQuery> queries) {
  StepLoad target, own;
  std::vector<std::vector<double>> chances(queries.size());
  std::vector<DraftOffer> offers(queries.size());
  for (size_t q = 0; q < queries.size(); ++q) {
    const int last = queries[q].tokens.size() - 1;
    target = target + LoadOf(last, 1, true);
    own = own + LoadOf(last, 1, true);
    const Answer& answer = answers_.at(queries[q].sequence);
    const int room = std::clamp(options_.max_context - last, 0, queries[q].most);
    chances[q].assign(static_cast<size_t>(room), ChanceOf(answer));
    offers[q] = {.first = last + 1, .chances = chances[q]};
  }
  const int count = static_cast<int>(queries.size());
  for (DraftOffer& offer : offers) offer.cost_s = options_.price.Seconds(own) / count;
  lengths_ =
      ChooseDrafts(options_.target_price, target,
                   {.answers = count, .rows = options_.max_rows - count, .seconds = 1e9}, offers);
}

// Pages for so many positions more, of sequences that were not guessed for longest if need be.
bool ModelDrafter::MakeRoom(Answer& answer, int positions) {
  while (book_.Room(answer.pages, positions) < positions) {
    Answer* oldest = nullptr;
    for (auto& [id, other] : answers_) {
      if (other.used >= round_ || other.pages.committed() == 0) continue;
      if (oldest == nullptr || other.used < oldest->used) oldest = &other;
    }
    if (oldest == nullptr) return false;
    oldest->ahead.reset();
    oldest->pages.Clear();
  }
  return true;
}

// Computes known tokens up to the last few, and reserves those and the guesses.
bool ModelDrafter::Prepare(Task& task) {
  const TokenList& tokens = task.query->tokens;
  Answer& answer = *task.answer;
  answer.used = round_;
  if (!MakeRoom(answer, tokens.size() - answer.pages.committed() + task.wanted - 1)) return false;
  while (tokens.size() - answer.pages.committed() > kMostBehind) {
    const int first = answer.pages.committed();
    const int rows = std::min(tokens.size() - first - 1, options_.max_rows);
    auto reservation = book_.Reserve(answer.pages, rows);
    if (!reservation) return false;
    std::vector<TokenId> ids;
    for (int i = 0; i < rows; ++i) ids.push_back(tokens[first + i]);
    const ExecuteSpan span{.first = first, .rows = rows, .pages = &answer.pages};
    NoLogits sink;
    ++steps_;
    if (!executor_.Execute({ids, std::span(&span, 1), {}, reservation->copies()}, sink))
      return false;
    reservation->Commit(rows, {});
  }
  answer.ahead_known = tokens.size() - answer.pages.committed();
  answer.ahead = book_.Reserve(answer.pages, answer.ahead_known + task.wanted - 1);
  return answer.ahead.has_value();
}

bool ModelDrafter::GuessNext(std::span<Task> tasks, bool first) {
  std::vector<TokenId> ids;
  std::vector<ExecuteSpan> spans;
  std::vector<int> logit_rows;
  for (const Task& task : tasks) {
    const TokenList& tokens = task.query->tokens;
    const int known = task.answer->ahead_known;
    const int at = tokens.size() + static_cast<int>(task.draft->tokens.size()) - 1;
    const int begin = first ? at + 1 - known : at;
    for (int p = begin; p <= at; ++p) ids.push_back(TokenAt(tokens, task.draft->tokens, p));
    spans.push_back({.first = begin, .rows = at + 1 - begin, .pages = &task.answer->pages});
    logit_rows.push_back(static_cast<int>(ids.size()) - 1);
  }
  DrawSink sink(sampler_, tasks);
  ++steps_;
  return executor_.Execute({ids, spans, logit_rows, {}}, sink).has_value();
}

void ModelDrafter::Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) {
  ++round_;
  drafts.assign(queries.size(), {});
  for (const DraftQuery& query : queries) {
    Learn(answers_.try_emplace(query.sequence, book_).first->second, query.tokens);
  }
  ChooseLengths(queries);
  tasks_.clear();
  int rows = 0;
  for (size_t q = 0; q < queries.size(); ++q) {
    Answer& answer = answers_.at(queries[q].sequence);
    if (lengths_[q] == 0) {
      answer.chances.Age();
      all_.Age();
      continue;
    }
    Task task{.query = &queries[q],
              .answer = &answer,
              .draft = &drafts[q],
              .wanted = lengths_[q],
              .state = *queries[q].state};
    if (rows + kMostBehind > options_.max_rows || !Prepare(task)) continue;
    rows += answer.ahead_known;
    tasks_.push_back(std::move(task));
  }
  for (bool first = true; !tasks_.empty(); first = false) {
    const bool done = GuessNext(tasks_, first);
    std::erase_if(tasks_, [&](const Task& task) {
      const bool enough = std::ssize(task.draft->tokens) >= task.wanted;
      if (!done || enough) {
        task.answer->guessed = task.draft->tokens;
        task.answer->known = task.query->tokens.size();
        task.draft->chances.assign(task.draft->tokens.size(), ChanceOf(*task.answer));
      }
      return !done || enough;
    });
  }
}

}  // namespace nibble
