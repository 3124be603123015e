// deps: engine
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "engine/fake_executor.h"
#include "tests/schedule/schedule.h"

namespace nibble::testing {
namespace {

constexpr int kWords = 50;

// A model whose logits are a hash of what its pages hold, in groups of one and of two forms.
class FakeModel : public ScheduleModel {
 public:
  explicit FakeModel(const Pick& pick)
      : window_(pick(1, 140)),
        unit_(pick(0, 1) == 0 ? 1 : 4),
        two_(unit_ > 1 || pick(0, 1) == 0),
        tokenizer_(ListTokenizer(std::vector<std::string>(kWords, "x"))) {}
  std::vector<PoolSpec> Pools(int tokens) const override {
    const int pages = RoundUp(PagesFor(tokens), unit_);
    return {{.pages = pages, .unit_pages = unit_, .open_pages = two_ ? 10 + 2 * unit_ : 0},
            {.pages = std::min(pages, 30), .window = window_}};
  }
  std::unique_ptr<Executor> Make(std::span<const PoolSpec> pools, int /*threads*/) override {
    return std::make_unique<FakeExecutor>(kWords, pools);
  }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  int max_context() const override { return 400; }

 private:
  int window_;
  int unit_;
  bool two_;
  Tokenizer tokenizer_;
};

}  // namespace
}  // namespace nibble::testing

// The input's bytes decide everything; behind its end every choice is the first.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble::testing;
  size_t at = 0;
  const Pick pick = [&](int low, int high) {
    if (at >= size) return low;
    return low + static_cast<int>(data[at++] % static_cast<unsigned>(high - low + 1));
  };
  FakeModel model(pick);
  std::vector<Question> questions = MakeQuestions(pick, 1 + pick(0, 5), kWords, 400);
  AskAlone(model, questions);
  ScheduleCounts counts;
  if (const auto problem = RunSchedule(pick, model, questions, counts)) {
    std::fprintf(stderr, "%s\n", problem->c_str());
    std::abort();
  }
  return 0;
}
