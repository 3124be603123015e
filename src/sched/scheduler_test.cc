#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "kv/invariants.h"

namespace nibble {
namespace {

NewSequence Make(uint64_t id, int prompt, int answer, int priority = 0) {
  return {.id = RequestId{id},
          .priority = priority,
          .prompt = ShareTokens(std::vector<TokenId>(prompt, TokenId{1})),
          .max_positions = prompt + answer};
}

// "1:0+32 2:5+1": id, first position and rows of every span.
std::string Shape(const Step& step) {
  std::string shape;
  for (const StepSpan& span : step.spans()) {
    if (!shape.empty()) shape += ' ';
    shape += fmt::format("{}:{}+{}", span.sequence->id.value(), span.first, span.rows);
  }
  return shape;
}

// Plans and commits; appends a token to whoever reached its end.
std::string RunStep(Scheduler& scheduler, int budget) {
  Step step = scheduler.Plan(budget);
  const std::string shape = Shape(step);
  std::vector<RequestId> ended;
  for (const StepSpan& span : step.spans()) {
    if (span.ReachesEnd()) ended.push_back(span.sequence->id);
  }
  step.Commit();
  for (RequestId id : ended) scheduler.Append(id, TokenId{2});
  return shape;
}

TEST(Scheduler, AnswersFirstThenPromptsInChunks) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_rows = 64, .max_running = 4}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 10, 20)));
  EXPECT_EQ(RunStep(scheduler, 64), "1:0+10");
  ASSERT_TRUE(scheduler.Add(Make(2, 100, 20)));
  ASSERT_TRUE(scheduler.Add(Make(3, 5, 20)));
  EXPECT_EQ(RunStep(scheduler, 40), "1:10+1 2:0+39");
  EXPECT_EQ(RunStep(scheduler, 40), "1:11+1 2:39+39");
  EXPECT_EQ(RunStep(scheduler, 40), "1:12+1 2:78+22 3:0+5");
  EXPECT_EQ(RunStep(scheduler, 40), "1:13+1 2:100+1 3:5+1");
  EXPECT_EQ(RunStep(scheduler, 2), "1:14+1 2:101+1");
}

TEST(Scheduler, TheBudgetNeverExceedsMaxRows) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_rows = 16}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 100, 1)));
  EXPECT_EQ(RunStep(scheduler, 1 << 20), "1:0+16");
}

TEST(Scheduler, AnUncommittedStepChangesNothing) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 50, 1)));
  const std::string first = Shape(scheduler.Plan(40));
  EXPECT_EQ(scheduler.book().pool(0).used_pages(), 0);
  EXPECT_EQ(Shape(scheduler.Plan(40)), first);
}

TEST(Scheduler, AFirstPromptIsNotHeldUpByAnswers) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_rows = 8}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 4, 20, 1)));
  ASSERT_TRUE(scheduler.Add(Make(2, 4, 20, 1)));
  EXPECT_EQ(RunStep(scheduler, 8), "1:0+4 2:0+4");
  ASSERT_TRUE(scheduler.Add(Make(3, 6, 20, 0)));
  EXPECT_EQ(RunStep(scheduler, 3), "1:4+1 2:4+1 3:0+1");
  EXPECT_EQ(RunStep(scheduler, 2), "1:5+1 3:1+1");
}

TEST(Scheduler, RefusesWhatCanNeverFitWithBothNumbers) {
  const PoolSpec pools[] = {{.pages = 4}};
  Scheduler scheduler({}, pools);
  const Status refused = scheduler.Add(Make(1, 100, 29));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(refused.error().message.find("129"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("128"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(scheduler.Add(Make(1, 100, 28)));
}

TEST(Scheduler, AWindowNeedsOnlyItsPages) {
  const PoolSpec pools[] = {{.pages = 40}, {.pages = 3, .window = 34}};
  Scheduler scheduler({.max_rows = 512}, pools);
  EXPECT_EQ(scheduler.capacity(), 40 * kPageTokens);
  ASSERT_TRUE(scheduler.Add(Make(1, 1280, 0)));
  int steps = 0;
  while (scheduler.Find(RequestId{1})->pending() > 0 && ++steps < 1000) {
    scheduler.Plan(512).Commit();
    ASSERT_FALSE(FindPageProblem(scheduler.book(), scheduler.AllPages()));
  }
  EXPECT_EQ(scheduler.Find(RequestId{1})->computed(), 1280);
  EXPECT_EQ(scheduler.counters().preemptions(), 0);
}

TEST(Scheduler, TheQueueIsBounded) {
  const PoolSpec pools[] = {{.pages = 4}};
  Scheduler scheduler({.max_queue = 2}, pools);
  EXPECT_TRUE(scheduler.Add(Make(1, 1, 1)));
  EXPECT_TRUE(scheduler.Add(Make(2, 1, 1)));
  const Status refused = scheduler.Add(Make(3, 1, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kNoRoom);
  scheduler.Remove(RequestId{1});
  EXPECT_TRUE(scheduler.Add(Make(4, 1, 1)));
}

TEST(Scheduler, LowerPriorityValuesAreAdmittedFirst) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_running = 2}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 3, 1, 5)));
  ASSERT_TRUE(scheduler.Add(Make(2, 3, 1, 0)));
  ASSERT_TRUE(scheduler.Add(Make(3, 3, 1, 5)));
  EXPECT_EQ(RunStep(scheduler, 100), "2:0+3 1:0+3");
}

TEST(Scheduler, NobodyOvertakesAWaitingSequenceThatDoesNotFit) {
  const PoolSpec pools[] = {{.pages = 4}};
  Scheduler scheduler({}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 40, 20)));
  ASSERT_TRUE(scheduler.Add(Make(2, 100, 20)));
  ASSERT_TRUE(scheduler.Add(Make(3, 1, 20)));
  EXPECT_EQ(RunStep(scheduler, 100), "1:0+40");
  EXPECT_EQ(RunStep(scheduler, 100), "1:40+1");
  scheduler.Remove(RequestId{1});
  EXPECT_EQ(RunStep(scheduler, 100), "2:0+100");
}

TEST(Scheduler, AStaticBatchWaitsUntilItIsFullAndTakesNobodyOnTheWay) {
  const PoolSpec pools[] = {{.pages = 100}};
  Scheduler scheduler({.max_running = 2, .batching = Batching::kStatic}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 40, 9)));
  EXPECT_TRUE(scheduler.WaitsForArrivals());
  EXPECT_EQ(RunStep(scheduler, 50), "");
  ASSERT_TRUE(scheduler.Add(Make(2, 30, 9)));
  ASSERT_TRUE(scheduler.Add(Make(3, 5, 9)));
  EXPECT_FALSE(scheduler.WaitsForArrivals());
  EXPECT_EQ(RunStep(scheduler, 35), "1:0+35");  // boarding takes as many steps as it needs
  EXPECT_EQ(RunStep(scheduler, 35), "1:35+5 2:0+30");
  scheduler.Remove(RequestId{2});
  EXPECT_EQ(RunStep(scheduler, 35), "1:40+1");  // a seat is free, but the bus has left
  scheduler.Remove(RequestId{1});
  EXPECT_TRUE(scheduler.WaitsForArrivals());
  EXPECT_EQ(RunStep(scheduler, 35), "");
  scheduler.CloseArrivals();
  EXPECT_FALSE(scheduler.WaitsForArrivals());
  EXPECT_EQ(RunStep(scheduler, 35), "3:0+5");
}

TEST(Scheduler, AStaticBatchTakesBackWhomItPreempted) {
  const PoolSpec pools[] = {{.pages = 4}};
  Scheduler scheduler({.max_running = 3, .batching = Batching::kStatic}, pools);
  for (const uint64_t id : {1, 2, 3, 4}) ASSERT_TRUE(scheduler.Add(Make(id, 30, 20)));
  EXPECT_EQ(RunStep(scheduler, 100), "1:0+30 2:0+30 3:0+30");
  RunStep(scheduler, 100);
  EXPECT_EQ(RunStep(scheduler, 100), "1:31+1 2:31+1 3:31+1");
  EXPECT_EQ(RunStep(scheduler, 100), "1:32+1 2:32+1");  // a second page for each of them
  EXPECT_EQ(scheduler.counters().preemptions(), 1);
  scheduler.Remove(RequestId{2});
  EXPECT_EQ(RunStep(scheduler, 100), "1:33+1 3:0+33");
  scheduler.Remove(RequestId{3});
  EXPECT_EQ(RunStep(scheduler, 100), "1:34+1");  // not 4, which never was on this bus
}

TEST(Scheduler, PreemptsTheNewestAndComputesItAgain) {
  const PoolSpec pools[] = {{.pages = 4}};
  Scheduler scheduler({}, pools);
  ASSERT_TRUE(scheduler.Add(Make(1, 60, 60)));
  ASSERT_TRUE(scheduler.Add(Make(2, 40, 60)));
  EXPECT_EQ(RunStep(scheduler, 100), "1:0+60 2:0+40");
  for (int i = 0; i < 4; ++i) RunStep(scheduler, 100);
  Step step = scheduler.Plan(100);  // sequence 1 needs its third page
  EXPECT_EQ(Shape(step), "1:64+1");
  ASSERT_EQ(step.preempted().size(), 1U);
  EXPECT_EQ(step.preempted()[0], RequestId{2});
  step.Commit();
  scheduler.Append(RequestId{1}, TokenId{2});
  EXPECT_EQ(scheduler.Find(RequestId{2})->computed(), 0);
  EXPECT_EQ(scheduler.Find(RequestId{2})->tokens(), 45);
  EXPECT_EQ(scheduler.waiting(), 1);
  EXPECT_EQ(RunStep(scheduler, 100), "1:65+1");
  scheduler.Remove(RequestId{1});
  EXPECT_EQ(RunStep(scheduler, 100), "2:0+45");
  EXPECT_EQ(RunStep(scheduler, 100), "2:45+1");
}

// Room for a sequence's tables is taken when it is admitted: no later step moves them, however long
// the context grows.
TEST(Scheduler, TablesStayWhereTheyAreWhileASequenceRuns) {
  const PoolSpec pools[] = {{.pages = 100},
                            {.pages = 100, .window = 50},
                            {.pages = 100, .unit_pages = 4, .open_pages = 40}};
  Scheduler scheduler({.max_rows = 64}, pools, {.prefix_cache = true});
  constexpr int kPositions = 3000;
  ASSERT_TRUE(scheduler.Add(Make(1, 100, kPositions - 100)));
  RunStep(scheduler, 64);
  const SequencePages& pages = scheduler.Find(RequestId{1})->pages;
  std::vector<const PageId*> at;
  for (int g = 0; g < 3; ++g) at.push_back(pages.table(g).data());
  at.push_back(pages.open_table(2).data());
  while (pages.committed() < kPositions) RunStep(scheduler, 64);
  for (int g = 0; g < 3; ++g) EXPECT_EQ(pages.table(g).data(), at[static_cast<size_t>(g)]) << g;
  EXPECT_EQ(pages.open_table(2).data(), at[3]);
  EXPECT_EQ(pages.table(0).size(), static_cast<size_t>(PagesFor(kPositions)));
}

TEST(Scheduler, RandomLoadEndsAndKeepsTheInvariants) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % (high - low + 1));
    };
    const PoolSpec pools[] = {{.pages = pick(8, 30)},
                              {.pages = pick(6, 20), .window = pick(1, 130)}};
    Scheduler scheduler(
        {.max_rows = pick(1, 100), .max_running = pick(1, 8), .max_queue = pick(4, 20)}, pools);
    std::map<uint64_t, int> answers;  // tokens left to generate
    int accepted = 0, done = 0;
    uint64_t next_id = 1;
    for (int step_count = 0; step_count < 20000; ++step_count) {
      if (next_id <= 60 && random() % 3 == 0) {
        const int answer = pick(1, 60);
        const uint64_t id = next_id++;
        if (scheduler.Add(Make(id, pick(1, 150), answer, pick(0, 2)))) {
          answers[id] = answer;
          ++accepted;
        }
      }
      if (random() % 40 == 0 && !answers.empty()) {
        const uint64_t id = answers.begin()->first;
        scheduler.Remove(RequestId{id});
        answers.erase(id);
        ++done;
      }
      const int budget = pick(1, 100);
      Step step = scheduler.Plan(budget);
      ASSERT_LE(step.rows(), std::min(budget, scheduler.limits().max_rows));
      ASSERT_LE(scheduler.running(), scheduler.limits().max_running);
      std::vector<uint64_t> ended;
      for (const StepSpan& span : step.spans()) {
        ASSERT_GT(span.rows, 0);
        ASSERT_EQ(span.first, span.sequence->computed());
        ASSERT_LE(span.rows, span.sequence->pending());
        if (span.ReachesEnd()) ended.push_back(span.sequence->id.value());
      }
      if (random() % 5 == 0) {
        step = Step();  // the step failed
        ended.clear();
      } else {
        ASSERT_TRUE(!step.empty() || answers.empty()) << "no progress, seed " << seed;
        step.Commit();
      }
      for (uint64_t id : ended) {
        if (--answers[id] == 0) {
          scheduler.Remove(RequestId{id});
          answers.erase(id);
          ++done;
        } else {
          scheduler.Append(RequestId{id}, TokenId{3});
        }
      }
      const auto problem = FindPageProblem(scheduler.book(), scheduler.AllPages());
      ASSERT_FALSE(problem) << *problem;
      if (next_id > 60 && answers.empty()) break;
    }
    EXPECT_EQ(done, accepted) << "seed " << seed;
    EXPECT_GT(accepted, 10);
    EXPECT_EQ(scheduler.book().pool(0).used_pages(), 0);
    EXPECT_EQ(scheduler.book().pool(1).used_pages(), 0);
  }
}

}  // namespace
}  // namespace nibble
