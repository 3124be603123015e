#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "engine/event_stream.h"
#include "engine/fake_executor.h"
#include "kernels/kernel_table.h"
#include "kv/invariants.h"

namespace nibble::testing {

inline constexpr int kCoreVocabulary = 40;

// "<0>", "<1>", …
inline std::vector<std::string> NumberedTexts() {
  std::vector<std::string> texts;
  for (int i = 0; i < kCoreVocabulary; ++i) texts.push_back("<" + std::to_string(i) + ">");
  return texts;
}

struct CoreSetup {
  SchedulerLimits limits = {};
  std::vector<PoolSpec> pools = {{.pages = 200}, {.pages = 200, .window = 50}};
  int max_context = 1000;
  std::vector<std::string> texts = NumberedTexts();
  std::vector<int> end = {};
  bool prefix_cache = false;
  StepObserver* observer = nullptr;
  Drafter* drafter = nullptr;
  StepPrice price = {};
};

// For tests: a core over a fake model, driven by hand. Pages are checked after every step.
class CoreFixture {
 public:
  explicit CoreFixture(const CoreSetup& setup = {})
      : tokenizer_(ListTokenizer(setup.texts, setup.end)),
        executor_(static_cast<int>(setup.texts.size()), setup.pools),
        core_(executor_, tokenizer_, KernelsFor(Isa::kScalar),
              {.max_context = setup.max_context,
               .limits = setup.limits,
               .pools = setup.pools,
               .pages = {.prefix_cache = setup.prefix_cache},
               .price = setup.price,
               .clock = [this] { return time_ += 1; },
               .observer = setup.observer,
               .drafter = setup.drafter}) {}

  std::shared_ptr<EventStream> Submit(Request request) {
    auto stream = std::make_shared<EventStream>(request.n);
    const auto accepted = core_.Accept(std::move(request));
    EXPECT_TRUE(accepted) << accepted.error().message;
    core_.Start(RequestId{++last_id_}, *accepted, stream, time_);
    return stream;
  }
  RequestId last_id() const { return RequestId{last_id_}; }

  bool Step() {
    const bool stepped = core_.RunStep();
    const auto problem = FindPageProblem(core_.scheduler().book(), core_.scheduler().AllPages());
    EXPECT_FALSE(problem) << *problem;
    return stepped;
  }
  void RunToEnd() {
    while (Step()) {
    }
  }
  // One answer per choice.
  std::vector<Answer> AskAll(Request request) {
    const int n = request.n;
    auto stream = Submit(std::move(request));
    RunToEnd();
    return Collect(*stream, n);
  }
  Answer Ask(Request request) { return AskAll(std::move(request))[0]; }

  FakeExecutor& executor() { return executor_; }
  EngineCore& core() { return core_; }

 private:
  double time_ = 0;
  uint64_t last_id_ = 0;
  Tokenizer tokenizer_;
  FakeExecutor executor_;
  EngineCore core_;
};

inline std::vector<int> TokensOf(const Answer& answer) {
  std::vector<int> ids;
  for (const TokenEvent& event : answer.tokens) ids.push_back(event.id.value());
  return ids;
}

}  // namespace nibble::testing
