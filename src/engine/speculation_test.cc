// Speculation changes no bit of an answer: every case is run without and with guesses.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>

#include "engine/core_fixture.h"
#include "engine/ngram_drafter.h"

namespace nibble {
namespace {

using testing::CoreSetup;
using testing::TokensOf;
using Fixture = testing::CoreFixture;

constexpr int kVocabulary = testing::kCoreVocabulary;

std::vector<TokenId> RandomIds(std::mt19937& random, int n) {
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i) ids.emplace_back(static_cast<int>(random() % kVocabulary));
  return ids;
}

// Knows the answers, and says something wrong now and then.
class Oracle : public Drafter {
 public:
  Oracle(uint32_t seed, double wrong) : random_(seed), wrong_(wrong) {}

  void Knows(const std::vector<TokenId>& prompt, int choice, const Answer& answer) {
    std::vector<TokenId>& known = answers_[{prompt, choice}];
    for (const TokenEvent& event : answer.tokens) known.push_back(event.id);
  }

  void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) override {
    drafts.assign(queries.size(), {});
    for (size_t q = 0; q < queries.size(); ++q) {
      const TokenList& tokens = queries[q].tokens;
      const std::vector<TokenId> prompt(tokens.prompt.begin(), tokens.prompt.end());
      const std::vector<TokenId>& known = answers_[{prompt, queries[q].choice}];
      const int wanted = std::min<int>(queries[q].most, static_cast<int>(random_() % 12));
      for (int i = 0; i < wanted; ++i) {
        const size_t at = tokens.answer.size() + static_cast<size_t>(i);
        const bool wrong = at >= known.size() || Uniform() < wrong_;
        drafts[q].tokens.push_back(
            wrong ? wrong_token.value_or(TokenId{static_cast<int>(random_() % kVocabulary)})
                  : known[at]);
        drafts[q].chances.push_back(1);
      }
      proposed += wanted;
    }
  }
  void Forget(RequestId /*sequence*/) override { ++forgotten; }

  std::optional<TokenId> wrong_token;
  int64_t proposed = 0;
  int forgotten = 0;

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  std::map<std::pair<std::vector<TokenId>, int>, std::vector<TokenId>> answers_;
  std::mt19937 random_;
  double wrong_;
};

void ExpectEqual(const Answer& a, const Answer& b, const std::string& what) {
  EXPECT_EQ(TokensOf(a), TokensOf(b)) << what;
  EXPECT_EQ(a.text, b.text) << what;
  EXPECT_EQ(a.finish.reason, b.finish.reason) << what;
  EXPECT_EQ(a.finish.stop, b.finish.stop) << what;
  EXPECT_EQ(a.finish.error.has_value(), b.finish.error.has_value()) << what;
  EXPECT_EQ(a.finish.usage.generated_tokens, b.finish.usage.generated_tokens) << what;
  for (size_t i = 0; i < std::min(a.tokens.size(), b.tokens.size()); ++i) {
    EXPECT_EQ(a.tokens[i].text, b.tokens[i].text) << what << " " << i;
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob) << what << " " << i;
    ASSERT_EQ(a.tokens[i].top.size(), b.tokens[i].top.size()) << what << " " << i;
    for (size_t k = 0; k < a.tokens[i].top.size(); ++k) {
      EXPECT_EQ(a.tokens[i].top[k].id, b.tokens[i].top[k].id) << what << " " << i;
    }
  }
}

struct Tally {
  int64_t drafted = 0, accepted = 0, preemptions = 0, steps = 0, steps_without = 0, cached = 0;
};

// All requests at once, without guesses and with those of an oracle.
Tally CompareAll(CoreSetup setup, const std::vector<Request>& requests, double wrong,
                 const std::string& what) {
  const auto ask = [&](Fixture& fixture) {
    std::vector<std::shared_ptr<EventStream>> streams;
    for (const Request& request : requests) streams.push_back(fixture.Submit(request));
    fixture.RunToEnd();
    std::vector<std::vector<Answer>> answers;
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(Collect(*streams[i], requests[i].n));
    }
    return answers;
  };
  Fixture without(setup);
  const auto expected = ask(without);
  Oracle oracle(7, wrong);
  int sequences = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t c = 0; c < expected[i].size(); ++c, ++sequences) {
      oracle.Knows(requests[i].prompt, static_cast<int>(c), expected[i][c]);
    }
  }
  setup.drafter = &oracle;
  Fixture with(setup);
  const auto answers = ask(with);
  Tally tally;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i].size(), expected[i].size());
    for (size_t c = 0; c < expected[i].size(); ++c) {
      ExpectEqual(answers[i][c], expected[i][c], what + ", request " + std::to_string(i));
      const Usage& usage = answers[i][c].finish.usage;
      tally.drafted += usage.drafted_tokens;
      tally.accepted += usage.accepted_tokens;
      EXPECT_LE(usage.accepted_tokens, usage.drafted_tokens);
    }
  }
  EXPECT_EQ(oracle.forgotten, sequences) << what;
  const SchedulerCounters& counters = with.core().scheduler().counters();
  EXPECT_EQ(counters.drafted_rows, tally.drafted) << what;
  EXPECT_EQ(with.core().totals().drafted, tally.drafted) << what;
  tally.preemptions = counters.preemptions();
  tally.cached = counters.cached_tokens;
  tally.steps = counters.steps;
  tally.steps_without = without.core().scheduler().counters().steps;
  return tally;
}

std::vector<Request> SomeRequests(const SamplingParams& sampling, uint32_t seed, int count = 6) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.prompt = RandomIds(random, 1 + static_cast<int>(random() % 90)),
                    .max_tokens = 1 + static_cast<int>(random() % 120),
                    .sampling = sampling,
                    .logprobs = i % 3 - 1};
    request.sampling.seed = random();
    requests.push_back(std::move(request));
  }
  return requests;
}

// Every sampler there is, alone and together.
std::vector<std::pair<std::string, SamplingParams>> Samplers() {
  std::vector<std::pair<std::string, SamplingParams>> out = {
      {"greedy", {}},
      {"temperature", {.temperature = 1}},
      {"top-k", {.temperature = 1, .top_k = 5}},
      {"top-p", {.temperature = 1, .top_p = 0.7F}},
      {"min-p", {.temperature = 1, .min_p = 0.2F}},
      {"typical", {.temperature = 1, .typical_p = 0.6F}},
      {"top-n-sigma", {.temperature = 1, .top_n_sigma = 1}},
      {"xtc", {.temperature = 1, .xtc_probability = 0.5F, .xtc_threshold = 0.05F}},
      {"xtc, greedy", {.xtc_probability = 0.5F, .xtc_threshold = 0.02F}},
      {"dynamic temperature", {.temperature = 1, .dynatemp_range = 0.8F}},
      {"mirostat", {.temperature = 1, .mirostat = 2, .mirostat_tau = 2, .mirostat_eta = 0.3F}},
      {"repetition", {.repetition_penalty = 1.5F, .penalty_last_n = -1}},
      {"frequency", {.temperature = 1, .frequency_penalty = 1, .penalty_last_n = 10}},
      {"presence", {.presence_penalty = 2}},
      {"dry",
       {.temperature = 0.7F,
        .dry_multiplier = 1,
        .dry_base = 1.5F,
        .dry_allowed_length = 1,
        .dry_sequence_breakers = {"<3>"}}},
      {"bias", {.temperature = 1, .logit_bias = {{TokenId{4}, 3}, {TokenId{5}, -1e6F}}}},
      {"min tokens", {.temperature = 1.5F, .min_tokens = 25}},
  };
  SamplingParams all = {.temperature = 0.9F,
                        .top_k = 20,
                        .top_p = 0.95F,
                        .min_p = 0.01F,
                        .typical_p = 0.98F,
                        .top_n_sigma = 2,
                        .xtc_probability = 0.3F,
                        .dynatemp_range = 0.3F,
                        .repetition_penalty = 1.1F,
                        .frequency_penalty = 0.2F,
                        .dry_multiplier = 0.5F,
                        .dry_sequence_breakers = {"<7>", "<8>"},
                        .min_tokens = 3};
  out.emplace_back("everything", all);
  return out;
}

TEST(Speculation, GivesTheSameBitsUnderEverySampler) {
  Tally all;
  for (const auto& [name, sampling] : Samplers()) {
    const Tally tally = CompareAll({.end = {9}}, SomeRequests(sampling, 11), 0.2, name);
    EXPECT_GT(tally.accepted, 0) << name;
    all.drafted += tally.drafted;
    all.accepted += tally.accepted;
    all.steps += tally.steps;
    all.steps_without += tally.steps_without;
  }
  EXPECT_GT(all.accepted * 10, all.drafted * 3);
  EXPECT_LT(all.steps * 3, all.steps_without * 2);
}

TEST(Speculation, GivesTheSameBitsOverEveryKindOfPage) {
  const std::pair<const char*, std::vector<PoolSpec>> kinds[] = {
      {"one form", {{.pages = 200}}},
      {"windows", {{.pages = 200}, {.pages = 60, .window = 20}, {.pages = 60, .window = 64}}},
      {"units of 1", {{.pages = 200, .unit_pages = 1, .open_pages = 40}}},
      {"units of 4", {{.pages = 200, .unit_pages = 4, .open_pages = 60}}},
      {"mixed",
       {{.pages = 200, .unit_pages = 4, .open_pages = 60},
        {.pages = 100, .window = 50},
        {.pages = 100, .window = 40, .unit_pages = 4, .open_pages = 60}}}};
  for (const auto& [name, pools] : kinds) {
    for (const bool cache : {false, true}) {
      for (const double wrong : {0.0, 0.1, 0.5}) {
        const CoreSetup setup{.pools = pools, .prefix_cache = cache};
        const Tally tally = CompareAll(setup, SomeRequests({.temperature = 1}, 21), wrong, name);
        EXPECT_GT(tally.accepted, 0) << name;
      }
    }
  }
}

TEST(Speculation, GivesTheSameBitsThroughPreemptionAndShortOfPages) {
  int64_t preemptions = 0;
  for (const int pages : {9, 11, 14}) {
    for (const bool two_forms : {false, true}) {
      CoreSetup setup{.limits = {.max_rows = 24},
                      .pools = {{.pages = pages}},
                      .max_context = 32 * pages,
                      .prefix_cache = true};
      if (two_forms) setup.pools = {{.pages = pages, .unit_pages = 1, .open_pages = 6}};
      preemptions +=
          CompareAll(setup, SomeRequests({.temperature = 1}, 31), 0.2, "few pages").preemptions;
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST(Speculation, GivesTheSameBitsWithSharedPrefixesAndChoices) {
  std::vector<Request> requests = SomeRequests({.temperature = 1}, 41, 4);
  std::mt19937 random(5);
  const std::vector<TokenId> common = RandomIds(random, 100);
  for (Request& request : requests) {
    request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
  }
  requests[1].n = 3;
  requests[2].n = 2;
  const CoreSetup setup{.limits = {.max_rows = 64}, .prefix_cache = true};
  const Tally tally = CompareAll(setup, requests, 0.2, "shared");
  EXPECT_GT(tally.cached, 0);
}

TEST(Speculation, EndsWhereTheAnswerEnds) {
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    Request request{.prompt = RandomIds(random, 5),
                    .max_tokens = 60,
                    .sampling = {.temperature = 1, .seed = random()}};
    // Stop strings inside a draft, across tokens and at its ends; end tokens; the context's end.
    request.stop = {">" + testing::NumberedTexts()[random() % kVocabulary].substr(0, 2),
                    testing::NumberedTexts()[random() % kVocabulary]};
    if (round % 3 == 1) request.stop.clear();
    if (round % 5 == 2) request.max_tokens = -1;
    if (round % 4 == 3) request.max_tokens = 1 + round / 4;
    request.sampling.min_tokens = round % 2 * 7;
    const CoreSetup setup{.max_context = 40 + round, .end = {3, 17}};
    CompareAll(setup, {request}, 0.0, "round " + std::to_string(round));
    CompareAll(setup, {request}, 0.3, "round " + std::to_string(round));
  }
}

// The prompt of a request that is cancelled in the middle, beside one that goes on.
TEST(Speculation, CancelGivesAllPagesBack) {
  std::mt19937 random(8);
  const std::vector<Request> requests = SomeRequests({.temperature = 1}, 51, 2);
  Fixture without;
  const Answer expected = without.Ask(requests[1]);
  Oracle oracle(3, 0.1);
  oracle.Knows(requests[1].prompt, 0, expected);
  Fixture with({.drafter = &oracle});
  auto gone = with.Submit({.prompt = requests[0].prompt, .max_tokens = 500});
  const RequestId id = with.last_id();
  auto stays = with.Submit(requests[1]);
  for (int i = 0; i < 8; ++i) with.Step();
  with.core().Cancel(id);
  with.RunToEnd();
  ExpectEqual(Collect(*stays)[0], expected, "beside a cancelled one");
  EXPECT_EQ(Collect(*gone)[0].finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(with.core().scheduler().book().pool(0).used_pages(), 0);
}

TEST(Speculation, AWrongGuessThatPoisonsItsRowHurtsNobody) {
  std::vector<Request> requests =
      SomeRequests({.temperature = 1, .logit_bias = {{TokenId{13}, -1e6F}}}, 61, 3);
  for (Request& request : requests) std::ranges::replace(request.prompt, TokenId{13}, TokenId{14});
  for (const std::vector<PoolSpec>& pools :
       {std::vector<PoolSpec>{{.pages = 100}},
        std::vector<PoolSpec>{{.pages = 100, .unit_pages = 1, .open_pages = 30}}}) {
    Fixture without({.pools = pools});
    Oracle oracle(9, 0.3);
    oracle.wrong_token = TokenId{13};
    Fixture with({.pools = pools, .drafter = &oracle});
    for (Fixture* fixture : {&without, &with}) fixture->executor().poison = TokenId{13};
    for (const Request& request : requests) {
      const Answer expected = without.Ask(request);
      oracle.Knows(request.prompt, 0, expected);
      ExpectEqual(with.Ask(request), expected, "poison");
    }
  }
}

TEST(Speculation, StepsTellOfGuesses) {
  struct Observer : StepObserver {
    void OnStep(const StepRecord& step) override { steps.push_back(step); }
    std::vector<StepRecord> steps;
  } observer;
  const Request request{.prompt = {TokenId{1}, TokenId{2}}, .max_tokens = 30};
  Fixture without;
  const Answer expected = without.Ask(request);
  Oracle oracle(2, 0.2);
  oracle.Knows(request.prompt, 0, expected);
  Fixture with({.observer = &observer, .drafter = &oracle});
  with.Ask(request);
  int rows = 0, sampled = 0, drafted = 0, accepted = 0;
  for (const StepRecord& step : observer.steps) {
    rows += step.rows;
    sampled += step.sampled;
    drafted += step.drafted;
    accepted += step.accepted;
    EXPECT_EQ(step.spans[0].drafted, step.drafted);
    EXPECT_LE(step.accepted, step.drafted);
  }
  EXPECT_EQ(sampled, 30);
  EXPECT_GT(accepted, 0);
  // The prompt; then each step's first row, which no guess is.
  EXPECT_EQ(rows, 2 + static_cast<int>(observer.steps.size()) - 1 + drafted);
  EXPECT_EQ(static_cast<int>(observer.steps.size()) + accepted, 30);
}

TEST(Speculation, RequestsThatSeeTheirLogitsAreNotGuessed) {
  struct Sink : PositionLogitsSink {
    void Rows(Position first, MatrixView<float> logits) override {
      for (int r = 0; r < logits.rows; ++r) positions.push_back(first.value() + r);
    }
    std::vector<int> positions;
  } sink;
  Oracle oracle(2, 0.5);
  Fixture fixture({.drafter = &oracle});
  fixture.Ask({.prompt = {TokenId{1}}, .max_tokens = 20, .logits = &sink});
  EXPECT_EQ(oracle.proposed, 0);
  ASSERT_EQ(sink.positions.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sink.positions[static_cast<size_t>(i)], i);
}

TEST(NgramDrafter, SavesStepsWhereTheTextRepeats) {
  std::mt19937 random(4);
  // The answer is the prompt's middle, twice.
  const std::vector<TokenId> prompt = RandomIds(random, 80);
  const auto run = [&](Drafter* drafter) {
    Fixture fixture({.drafter = drafter});
    for (int i = 0; i < 60; ++i) {
      fixture.executor().script[79 + i] = prompt[static_cast<size_t>(20 + i % 30)];
    }
    const Answer answer = fixture.Ask({.prompt = prompt, .max_tokens = 60});
    return std::pair(answer, fixture.core().scheduler().counters().steps);
  };
  const auto [expected, steps] = run(nullptr);
  NgramDrafter drafter;
  const auto [answer, fewer] = run(&drafter);
  ExpectEqual(answer, expected, "n-gram");
  EXPECT_EQ(steps, 60);
  EXPECT_LT(fewer, 25);
  EXPECT_GT(answer.finish.usage.accepted_tokens, 35);
}

TEST(NgramDrafter, GuessesLittleWhereNothingRepeatsRightly) {
  NgramDrafter drafter;
  const std::vector<Request> requests = SomeRequests({.temperature = 1}, 71, 8);
  for (const Request& request : requests) {
    Fixture without;
    const Answer expected = without.Ask(request);
    Fixture with({.drafter = &drafter});
    const Answer answer = with.Ask(request);
    ExpectEqual(answer, expected, "n-gram");
    EXPECT_LE(answer.finish.usage.drafted_tokens, 10);
  }
}

// The longest match of the end of a text, by trying all.
SuffixIndex::Match LongestMatch(std::span<const TokenId> tokens) {
  SuffixIndex::Match best;
  const int size = static_cast<int>(tokens.size());
  for (int end = size - 1; end >= 2; --end) {
    int length = 0;
    while (length < end && length < SuffixIndex::kMostMatch &&
           tokens[static_cast<size_t>(end - 1 - length)] ==
               tokens[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length >= 2 && length > best.length) best = {end, length};
  }
  return best;
}

TEST(SuffixIndex, FindsTheLongestMatch) {
  std::mt19937 random(12);
  for (const int vocabulary : {20, 60, 300}) {  // so that few places are as good as one
    std::vector<TokenId> prompt, answer;
    for (int i = 0; i < 50; ++i) prompt.emplace_back(static_cast<int>(random() % vocabulary));
    SuffixIndex index;
    for (int i = 0; i < 500; ++i) {
      const auto match = index.Find({.prompt = prompt, .answer = answer});
      std::vector<TokenId> all = prompt;
      all.insert(all.end(), answer.begin(), answer.end());
      const auto expected = LongestMatch(all);
      ASSERT_EQ(match.length, expected.length) << vocabulary << " " << i;
      if (expected.length > 0) {
        ASSERT_EQ(match.end, expected.end) << vocabulary << " " << i;
      }
      const bool copies = random() % 4 != 0 && expected.length > 0;
      answer.push_back(copies ? all[static_cast<size_t>(expected.end)]
                              : TokenId{static_cast<int>(random() % vocabulary)});
    }
  }
}

}  // namespace
}  // namespace nibble
