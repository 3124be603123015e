// The scheduler with a prefix cache, choices of one request, prices and policies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "kv/invariants.h"
#include "sched/scheduler.h"

namespace nibble {
namespace {

std::vector<TokenId> Tokens(int n, int first = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.emplace_back(first + i);
  return tokens;
}

NewSequence Make(uint64_t id, std::vector<TokenId> prompt, int answer, int priority = 0) {
  const int positions = static_cast<int>(prompt.size()) + answer;
  return {.id = RequestId{id},
          .priority = priority,
          .prompt = ShareTokens(std::move(prompt)),
          .max_positions = positions};
}

// "1:0+32 2:5+1": id, first position and rows of every span.
std::string RunStep(Scheduler& scheduler, int budget = 1000) {
  Step step = scheduler.Plan(budget);
  std::string shape;
  std::vector<RequestId> ended;
  for (const StepSpan& span : step.spans()) {
    if (!shape.empty()) shape += ' ';
    shape += fmt::format("{}:{}+{}", span.sequence->id.value(), span.first, span.rows);
    if (span.ReachesEnd()) ended.push_back(span.sequence->id);
  }
  step.Commit();
  for (const RequestId id : ended) scheduler.Append(id, TokenId{static_cast<int>(id.value())});
  EXPECT_EQ(FindPageProblem(scheduler.book(), scheduler.AllPages()).value_or(""), "");
  return shape;
}

constexpr PageBookOptions kCache{.prefix_cache = true};

TEST(SharedPrefix, IsComputedOnce) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({}, pools, kCache);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(100), 5)));
  EXPECT_EQ(RunStep(scheduler), "1:0+100");
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(110), 5)));
  EXPECT_EQ(RunStep(scheduler), "1:100+1 2:96+14");
  scheduler.Remove(RequestId{1});
  scheduler.Remove(RequestId{2});
  ASSERT_TRUE(scheduler.Add(Make(3, Tokens(97), 5)));  // nobody holds it any more
  EXPECT_EQ(RunStep(scheduler), "3:96+1");
  EXPECT_EQ(scheduler.counters().prefix_hits, 2);
  EXPECT_EQ(scheduler.counters().cached_tokens, 192);
}

TEST(SharedPrefix, IsNotTakenWhereLogitsAreWanted) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({}, pools, kCache);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(100), 5)));
  RunStep(scheduler);
  NewSequence wanted = Make(2, Tokens(100), 5);
  wanted.compute_from = 70;
  ASSERT_TRUE(scheduler.Add(wanted));
  EXPECT_EQ(RunStep(scheduler), "1:100+1 2:64+36");
  wanted.id = RequestId{3};
  wanted.compute_from = 0;
  ASSERT_TRUE(scheduler.Add(wanted));
  EXPECT_EQ(RunStep(scheduler), "1:101+1 2:100+1 3:0+100");
}

TEST(SharedPrefix, NeedsNoPagesOfItsOwn) {
  // 10 pages: two of 8 would not fit, but they share 7.
  const PoolSpec pools[] = {{.pages = 10}};
  Scheduler scheduler({}, pools, kCache);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(230), 5)));
  RunStep(scheduler);
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(231), 5)));
  EXPECT_EQ(RunStep(scheduler), "1:230+1 2:224+7");
}

TEST(SharedPrefix, APreemptedSequenceFindsItsOwnPages) {
  const PoolSpec pools[] = {{.pages = 6}};
  Scheduler scheduler({}, pools, kCache);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(60), 60)));
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(90, 500), 60)));
  RunStep(scheduler);
  int steps = 0;
  while (scheduler.running() == 2 && ++steps < 50) RunStep(scheduler);
  EXPECT_EQ(scheduler.counters().preemptions_for_answers, 1);
  scheduler.Remove(RequestId{1});
  const std::string again = RunStep(scheduler);
  // Two of its units survived: the page that was taken from it was its last one.
  EXPECT_TRUE(again.starts_with("2:64+")) << again;
}

TEST(Choices, ComputeThePromptOnceAndForkAtItsEnd) {
  for (const bool cache : {false, true}) {
    const PoolSpec pools[] = {{.pages = 100}};
    Scheduler scheduler({}, pools, {.prefix_cache = cache});
    NewSequence choice = Make(1, Tokens(100), 5);
    ASSERT_TRUE(scheduler.Add(choice));
    choice.leader = RequestId{1};
    for (const uint64_t id : {2, 3}) {
      choice.id = RequestId{id};
      ASSERT_TRUE(scheduler.Add(choice));
    }
    EXPECT_EQ(RunStep(scheduler, 60), "1:0+60");
    EXPECT_EQ(RunStep(scheduler, 60), "1:60+40");
    EXPECT_EQ(RunStep(scheduler, 60), "1:100+1 2:99+1 3:99+1");
    // 3 full pages of all, a fourth one of each.
    EXPECT_EQ(scheduler.book().pool(0).used_pages(), 3 + 3);
    EXPECT_EQ(RunStep(scheduler, 60), "1:101+1 2:100+1 3:100+1");
    EXPECT_EQ(scheduler.counters().forked_tokens, 2 * 99);
  }
}

TEST(Choices, GoOnWithoutALeaderThatHasGone) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_running = 1}, pools, {});
  NewSequence choice = Make(1, Tokens(50), 5);
  ASSERT_TRUE(scheduler.Add(choice));
  choice.leader = RequestId{1};
  choice.id = RequestId{2};
  ASSERT_TRUE(scheduler.Add(choice));
  EXPECT_EQ(RunStep(scheduler), "1:0+50");
  EXPECT_EQ(RunStep(scheduler), "1:50+1");
  scheduler.Remove(RequestId{1});
  EXPECT_EQ(RunStep(scheduler), "2:0+50");
}

TEST(Preemption, TheFirstPromptTakesPagesFromAnswersBehindIt) {
  const PoolSpec pools[] = {{.pages = 5}};
  Scheduler scheduler({}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(30), 60, 1)));
  RunStep(scheduler, 31);
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(100, 500), 2, 0)));
  EXPECT_EQ(RunStep(scheduler, 21), "1:30+1 2:0+20");
  EXPECT_EQ(RunStep(scheduler, 21), "1:31+1 2:20+20");
  EXPECT_EQ(RunStep(scheduler, 21), "1:32+1 2:40+20");  // a second page for the answer
  EXPECT_EQ(RunStep(scheduler, 37), "1:33+1 2:60+36");
  EXPECT_EQ(RunStep(scheduler, 21), "2:96+4");
  EXPECT_EQ(scheduler.counters().preemptions_for_prompts, 1);
  EXPECT_EQ(scheduler.counters().preemptions_for_answers, 0);
}

TEST(StepBudget, APromptDoesNotDoubleTheStepsOfAnswers) {
  const PoolSpec pools[] = {{.pages = 1000}};
  // A step costs 100 for up to 8 rows and 10 for every further one.
  const StepPrice price({{1, 100}, {8, 100}, {9, 110}}, 0.001, 0);
  Scheduler scheduler({.max_rows = 512}, pools, {}, price);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(10), 50)));
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(10), 50)));
  RunStep(scheduler);
  ASSERT_TRUE(scheduler.Add(Make(3, Tokens(400), 50)));
  // 200 for 2 answers and the prompt: 18 rows in all, which are cut to tiles of 8.
  EXPECT_EQ(RunStep(scheduler), "1:10+1 2:10+1 3:0+14");
  EXPECT_EQ(RunStep(scheduler), "1:11+1 2:11+1 3:14+14");
  // Alone nobody waits for it: it takes what it gets.
  scheduler.Remove(RequestId{1});
  scheduler.Remove(RequestId{2});
  EXPECT_EQ(RunStep(scheduler), "3:28+372");
}

TEST(StepBudget, ManyPromptsGetWhatStepsWillCostWhenAllAreAnswered) {
  const PoolSpec pools[] = {{.pages = 1000}};
  const StepPrice price({{1, 10}, {512, 5120}}, 0, 0);  // 10 a row
  Scheduler scheduler({.max_rows = 512, .max_running = 16}, pools, {}, price);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(10), 50)));
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(10), 50)));
  RunStep(scheduler);
  // 40 for 2 answers and a prompt: too little for the six rows that are worth it.
  ASSERT_TRUE(scheduler.Add(Make(3, Tokens(400), 50)));
  EXPECT_EQ(RunStep(scheduler), "1:10+1 2:10+1");
  // With ten here, nine of them answers to be: 180, and 20 saved; 20 rows are cut to tiles of 8.
  for (uint64_t id = 4; id <= 10; ++id) ASSERT_TRUE(scheduler.Add(Make(id, Tokens(400), 50)));
  EXPECT_EQ(RunStep(scheduler), "1:11+1 2:11+1 3:0+14");
  // However many wait: no more than can run, 15 of them, 300 for 30 rows.
  for (uint64_t id = 11; id <= 60; ++id) ASSERT_TRUE(scheduler.Add(Make(id, Tokens(400), 50)));
  EXPECT_EQ(RunStep(scheduler), "1:12+1 2:12+1 3:14+22");
}

TEST(StepBudget, AnswersSaveUpForAPromptThatCostsMore) {
  const PoolSpec pools[] = {{.pages = 1000}};
  // A step of one answer costs 10, with any rows of a prompt 100: nine steps of answers pay for it.
  const StepPrice price({{1, 10}, {2, 100}, {48, 100}, {49, 200}}, 0, 0);
  Scheduler scheduler({.max_rows = 512}, pools, {}, price);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(10), 500)));
  RunStep(scheduler);
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(94), 50)));
  int at = 10;
  for (int computed = 0; computed < 94; computed += 47) {
    for (int wait = 0; wait < 8; ++wait, ++at) {
      ASSERT_EQ(RunStep(scheduler), "1:" + std::to_string(at) + "+1");
    }
    ASSERT_EQ(RunStep(scheduler),
              "1:" + std::to_string(at++) + "+1 2:" + std::to_string(computed) + "+47");
  }
  // Nothing is saved while no prompt waits.
  scheduler.Remove(RequestId{2});
  for (int i = 0; i < 50; ++i) RunStep(scheduler);
  ASSERT_TRUE(scheduler.Add(Make(3, Tokens(98), 50)));
  EXPECT_EQ(RunStep(scheduler).find("3:"), std::string::npos);
}

TEST(StepBudget, ChunksFillTilesWithTheAnswers) {
  EXPECT_EQ(LeastPromptRows(0), 8);
  EXPECT_EQ(LeastPromptRows(1), 7);
  EXPECT_EQ(LeastPromptRows(4), 4);
  EXPECT_EQ(LeastPromptRows(5), 11);  // three rows would read a long context for little
  EXPECT_EQ(LeastPromptRows(8), 8);
  const PoolSpec pools[] = {{.pages = 1000}};
  const StepPrice price({{1, 10}, {8, 20}, {9, 30}, {16, 50}}, 0, 0);
  Scheduler scheduler({.max_rows = 512}, pools, {}, price);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(10), 500)));
  RunStep(scheduler);
  ASSERT_TRUE(scheduler.Add(Make(2, Tokens(17), 50)));
  EXPECT_EQ(RunStep(scheduler), "1:10+1 2:0+7");
  EXPECT_EQ(RunStep(scheduler), "1:11+1 2:7+7");
  EXPECT_EQ(RunStep(scheduler), "1:12+1 2:14+3");  // all that is left
}

TEST(StepBudget, ALimitInSecondsHoldsButNeverStopsAPrompt) {
  const PoolSpec pools[] = {{.pages = 1000}};
  const StepPrice price({{1, 1}, {2, 2}}, 0, 0);
  Scheduler scheduler({.max_rows = 512, .max_step_s = 50}, pools, {}, price);
  ASSERT_TRUE(scheduler.Add(Make(1, Tokens(120), 50)));
  EXPECT_EQ(RunStep(scheduler), "1:0+48");
  Scheduler slow({.max_rows = 512, .max_step_s = 0.5}, pools, {}, price);
  ASSERT_TRUE(slow.Add(Make(1, Tokens(20), 50)));
  ASSERT_TRUE(slow.Add(Make(2, Tokens(20), 50)));
  EXPECT_EQ(RunStep(slow), "1:0+8");
  EXPECT_EQ(RunStep(slow), "1:8+8");
  EXPECT_EQ(RunStep(slow), "1:16+4 2:0+4");
}

// A request that others keep overtaking is served after a bounded number of them all the same.
int ServedBefore(Policy policy, NewSequence victim,
                 const std::function<NewSequence(uint64_t)>& next, int most) {
  const PoolSpec pools[] = {{.pages = 1000}};
  Scheduler scheduler({.max_running = 1, .policy = policy}, pools, kCache);
  EXPECT_TRUE(scheduler.Add(next(1)));
  RunStep(scheduler);
  const RequestId id = victim.id;
  EXPECT_TRUE(scheduler.Add(std::move(victim)));
  int served = 0;
  for (uint64_t other = 2; served <= most; ++other) {
    EXPECT_TRUE(scheduler.Add(next(other)));
    EXPECT_TRUE(scheduler.Add(next(1000000 + other)));
    Step step = scheduler.Plan(1000);
    const RequestId running = step.spans()[0].sequence->id;
    step = Step();
    if (running == id) return served;
    ++served;
    scheduler.Remove(running);
    if (scheduler.waiting() > 600) {  // others give up
      for (uint64_t gone = other; gone > other - 200 && gone > 1; --gone) {
        scheduler.Remove(RequestId{1000000 + gone});
      }
    }
  }
  return served;
}

TEST(Starvation, PrioritiesOvertakeABoundedNumberOfTimes) {
  const auto urgent = [](uint64_t id) { return Make(id, Tokens(5), 1, 0); };
  const int served = ServedBefore(Policy::kPriority, Make(999999, Tokens(5, 700), 1, 1), urgent,
                                  2 * static_cast<int>(kOvertaking));
  EXPECT_GT(served, 100);
  EXPECT_LE(served, static_cast<int>(kOvertaking) + 1);
}

TEST(Starvation, LongPrefixesOvertakeABoundedNumberOfTimes) {
  const auto cached = [](uint64_t id) { return Make(id, Tokens(100), 1); };
  const int served = ServedBefore(Policy::kLongestPrefix, Make(999999, Tokens(5, 700), 1), cached,
                                  10 * kMostPasses);
  EXPECT_GT(served, kMostPasses / 2);
  EXPECT_LE(served, kMostPasses + 1);
}

// Everything at once: shared prefixes, choices, two forms, windows, prices, failed steps.
struct Load {
  explicit Load(uint32_t seed) : random(seed) {
    const bool two = seed % 2 == 0;
    pools = {
        {.pages = Pick(16, 40), .unit_pages = two ? 4 : 1, .open_pages = two ? Pick(8, 20) : 0},
        {.pages = Pick(14, 30), .window = Pick(1, 130), .open_pages = seed % 3 == 0 ? 20 : 0}};
    limits = {.max_rows = Pick(1, 100),
              .max_running = Pick(1, 8),
              .max_queue = Pick(4, 20),
              .policy = static_cast<Policy>(seed % 3),
              .max_step_s = seed % 5 == 0 ? 30.0 : 0};
  }
  int Pick(int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  }
  std::vector<TokenId> Prompt(int own) {
    std::vector<TokenId> prompt = Tokens(Pick(0, 4) * 32, 1000 * Pick(0, 1));
    for (const TokenId token : Tokens(Pick(1, 60), own)) prompt.push_back(token);
    return prompt;
  }
  std::mt19937 random;
  std::vector<PoolSpec> pools;
  SchedulerLimits limits;
};

TEST(Scheduler, RandomSharedLoadEndsAndKeepsTheInvariants) {
  SchedulerCounters all;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Load load(seed);
    const StepPrice price =
        seed % 4 == 1 ? StepPrice({{1, 10}, {8, 11}, {64, 60}}, 0.01, 0.1) : StepPrice();
    const PageBookOptions options{.prefix_cache = seed % 7 != 6,
                                  .hash = {.mask = seed % 6 == 5 ? 15 : ~uint64_t{0}}};
    Scheduler scheduler(load.limits, load.pools, options, price);
    std::map<uint64_t, int> answers;  // tokens left to generate
    uint64_t next_id = 1;
    int steps = 0;
    while (next_id <= 60 || !answers.empty()) {
      ASSERT_LT(++steps, 20000) << "seed " << seed;
      if (next_id <= 60 && load.Pick(0, 2) == 0) {
        const int answer = load.Pick(1, 60);
        NewSequence added =
            Make(next_id, load.Prompt(static_cast<int>(next_id) * 100), answer, load.Pick(0, 2));
        for (int choices = load.Pick(0, 2) == 0 ? load.Pick(2, 4) : 1; choices > 0; --choices) {
          added.id = RequestId{next_id++};
          if (!scheduler.Add(added)) break;
          answers[added.id.value()] = answer;
          if (!added.leader) added.leader = added.id;
        }
      }
      if (load.Pick(0, 39) == 0 && !answers.empty()) {
        scheduler.Remove(RequestId{answers.begin()->first});
        answers.erase(answers.begin());
      }
      const int budget = load.Pick(1, 100);
      Step step = scheduler.Plan(budget);
      ASSERT_LE(step.rows(), std::min(budget, load.limits.max_rows));
      ASSERT_LE(scheduler.running(), load.limits.max_running);
      ASSERT_TRUE(!step.empty() || answers.empty()) << "no progress, seed " << seed;
      std::vector<uint64_t> ended;
      std::set<PageId> copied;
      for (size_t i = 0; i < step.spans().size(); ++i) {
        const StepSpan& span = step.spans()[i];
        ASSERT_GT(span.rows, 0);
        ASSERT_EQ(span.first, span.sequence->computed());
        if (span.ReachesEnd()) ended.push_back(span.sequence->id.value());
        for (const PageCopy& copy : step.copies(i)) {
          ASSERT_TRUE(copy.group != 0 || copied.insert(copy.to).second);
        }
      }
      if (load.Pick(0, 4) == 0) {
        step = Step();  // the step failed
        ended.clear();
      } else {
        step.Commit();
      }
      for (const uint64_t id : ended) {
        if (--answers[id] == 0) {
          scheduler.Remove(RequestId{id});
          answers.erase(id);
        } else {
          scheduler.Append(RequestId{id}, TokenId{static_cast<int>(id)});
        }
      }
      const auto problem = FindPageProblem(scheduler.book(), scheduler.AllPages());
      ASSERT_FALSE(problem) << *problem << ", seed " << seed;
    }
    EXPECT_EQ(scheduler.book().pool(0).used_pages(), 0);
    EXPECT_EQ(scheduler.book().pool(1).used_pages(), 0);
    all.prefix_hits += scheduler.counters().prefix_hits;
    all.forked_tokens += scheduler.counters().forked_tokens;
    all.preemptions_for_answers += scheduler.counters().preemptions_for_answers;
  }
  EXPECT_GT(all.prefix_hits, 100);
  EXPECT_GT(all.forked_tokens, 1000);
  EXPECT_GT(all.preemptions_for_answers, 5);
}

}  // namespace
}  // namespace nibble
