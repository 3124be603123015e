#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/event_stream.h"
#include "engine/fake_executor.h"
#include "kernels/kernel_table.h"
#include "platform/clock.h"

namespace nibble {
namespace {

constexpr int kVocabulary = 30;

// Owns what an engine's thread needs; the thread is made last and goes first.
struct Running {
  explicit Running(SchedulerLimits limits = {}, int pages = 100)
      : pools{{.pages = pages}},
        tokenizer(testing::ListTokenizer(std::vector<std::string>(kVocabulary, "x"))),
        executor(kVocabulary, pools),
        core(executor, tokenizer, KernelsFor(Isa::kScalar),
             {.max_context = 1000, .limits = limits, .pools = pools, .clock = MonotonicSeconds}),
        thread(std::make_unique<EngineThread>(core)) {}

  std::vector<PoolSpec> pools;
  Tokenizer tokenizer;
  testing::FakeExecutor executor;
  EngineCore core;
  std::unique_ptr<EngineThread> thread;
};

Request Ask(int first, int tokens) {
  return {.prompt = {TokenId{first}, TokenId{1}}, .max_tokens = tokens};
}

TEST(EngineThread, ManyThreadsGetTheirOwnAnswers) {
  Running running({.max_rows = 16, .max_running = 5}, 12);
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<TokenId> before;
      for (int i = 0; i < 6; ++i) {
        auto stream = std::make_shared<EventStream>();
        if (!running.thread->Submit(Ask(t, 40), stream)) ++wrong;
        const Answer answer = Collect(*stream)[0];
        std::vector<TokenId> ids;
        for (const TokenEvent& event : answer.tokens) ids.push_back(event.id);
        if (answer.finish.reason != FinishReason::kLength || ids.size() != 40) ++wrong;
        if (i > 0 && ids != before) ++wrong;
        before = ids;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(EngineThread, CancelFromAnotherThread) {
  Running running;
  // The fifth step ends only after Cancel.
  std::promise<void> cancelled;
  running.executor.before = [&, gate = cancelled.get_future().share()](const ExecuteInput&) {
    if (running.executor.steps == 5) gate.wait();
    return Status();
  };
  auto stream = std::make_shared<EventStream>();
  const auto id = running.thread->Submit(Ask(3, 900), stream);
  ASSERT_TRUE(id);
  ASSERT_TRUE(stream->Next());  // it has begun
  running.thread->Cancel(*id);
  cancelled.set_value();
  const Answer answer = Collect(*stream)[0];
  EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
  EXPECT_LE(answer.tokens.size(), 4U);  // beside the one above
  running.thread->Cancel(*id);          // already gone
  auto next = std::make_shared<EventStream>();
  ASSERT_TRUE(running.thread->Submit(Ask(3, 4), next));
  EXPECT_EQ(Collect(*next)[0].finish.reason, FinishReason::kLength);
}

TEST(EngineThread, TheDestructorCancelsWhatIsUnfinished) {
  auto first = std::make_shared<EventStream>();
  auto second = std::make_shared<EventStream>();
  {
    Running running({.max_running = 1});
    running.executor.before = [](const ExecuteInput&) {  // slow: both would take seconds
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return Status();
    };
    ASSERT_TRUE(running.thread->Submit(Ask(1, 998), first));
    ASSERT_TRUE(running.thread->Submit(Ask(2, 998), second));
    ASSERT_TRUE(first->Next());
  }
  EXPECT_EQ(Collect(*second)[0].finish.reason, FinishReason::kCancelled);
  Collect(*first);
  EXPECT_TRUE(first->done());
}

// Cancels its own request and its neighbours at every event.
class CancellingSink : public EventSink {
 public:
  explicit CancellingSink(EngineThread& thread) : thread_(thread) {}
  void OnToken(RequestId id, const TokenEvent& /*event*/) override { CancelAround(id); }
  void OnFinish(RequestId id, const FinishEvent& /*event*/) override {
    ++finished;
    CancelAround(id);
  }
  std::atomic<int> finished = 0;

 private:
  void CancelAround(RequestId id) {
    for (uint64_t other = id.value() - 1; other <= id.value() + 1; ++other) {
      thread_.Cancel(RequestId{other});
    }
    EXPECT_GE(thread_.Stats().waiting, 0);
  }
  EngineThread& thread_;
};

TEST(EngineThread, ASinkMayCancelAtEveryEvent) {
  Running running({.max_running = 2, .max_queue = 400});
  auto sink = std::make_shared<CancellingSink>(*running.thread);
  int submitted = 0;
  for (int i = 0; i < 50; ++i) {
    Request request = Ask(i % 7, 5);
    request.n = 3;
    submitted += running.thread->Submit(request, sink) ? request.n : 0;
  }
  EXPECT_EQ(submitted, 150);
  running.thread->Stop();
  EXPECT_EQ(sink->finished, submitted);
  const auto late = running.thread->Submit(Ask(1, 1), sink);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kCancelled);
}

// Requests that the engine has not taken out of its mailbox when it is stopped.
TEST(EngineThread, ASinkMayCancelWhileTheEngineStops) {
  Running running({.max_running = 1, .max_queue = 60});
  std::promise<void> submitted_all;
  running.executor.before = [&, gate = submitted_all.get_future().share()](const ExecuteInput&) {
    gate.wait();
    return Status();
  };
  auto sink = std::make_shared<CancellingSink>(*running.thread);
  int submitted = 0;
  for (int i = 0; i < 60; ++i) submitted += running.thread->Submit(Ask(1, 900), sink) ? 1 : 0;
  std::thread stop([&] { running.thread->Stop(); });
  submitted_all.set_value();
  stop.join();
  EXPECT_EQ(sink->finished, submitted);
}

TEST(EngineThread, TheQueueIsBounded) {
  Running running({.max_running = 1, .max_queue = 2});
  // The first step waits, so that everything else stays queued.
  std::mutex gate;
  gate.lock();
  running.executor.before = [&](const ExecuteInput&) -> Status {
    const std::scoped_lock wait(gate);
    return {};
  };
  std::vector<std::shared_ptr<EventStream>> streams;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    auto stream = std::make_shared<EventStream>();
    const auto id = running.thread->Submit(Ask(1, 2), stream);
    if (id) {
      streams.push_back(stream);
    } else {
      EXPECT_EQ(id.error().kind, ErrorKind::kNoRoom);
      ++refused;
    }
  }
  gate.unlock();
  EXPECT_GE(refused, 17);
  EXPECT_GE(streams.size(), 2U);
  for (const auto& stream : streams) {
    EXPECT_EQ(Collect(*stream)[0].finish.reason, FinishReason::kLength);
  }
}

TEST(EngineThread, AWrongRequestIsRefusedAtOnce) {
  Running running;
  EXPECT_FALSE(running.thread->Submit({.prompt = {}}, std::make_shared<EventStream>()));
  EXPECT_FALSE(
      running.thread->Submit({.prompt = {TokenId{kVocabulary}}}, std::make_shared<EventStream>()));
}

TEST(EventStream, NextForGivesUp) {
  EventStream stream;
  EXPECT_FALSE(stream.NextFor(0.001));
  EXPECT_FALSE(stream.done());
  stream.OnFinish(RequestId{1}, {});
  EXPECT_TRUE(stream.NextFor(10));
  EXPECT_TRUE(stream.done());
  EXPECT_FALSE(stream.Next());
}

}  // namespace
}  // namespace nibble
