// deps: engine
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "container/json.h"
#include "engine/fake_executor.h"
#include "model/config/format_mix.h"
#include "tests/schedule/file_model.h"
#include "tests/schedule/schedule.h"

namespace nibble::testing {
namespace {

constexpr int kWords = 50;

// Sizes of a group's pools for so many tokens: global or windowed, in one form or in two.
struct GroupShape {
  int window;
  int unit;
  bool two;

  explicit GroupShape(const Pick& pick)
      : window(pick(0, 1) * pick(1, 140)), unit(pick(0, 1) == 0 ? 1 : 4), two(pick(0, 1) == 0) {
    two |= unit > 1;
  }
  PoolSpec Pool(int tokens) const {
    const int pages = RoundUp(PagesFor(tokens), unit);
    return {.pages = window > 0 ? std::min(pages, 32) : pages,
            .window = window,
            .unit_pages = unit,
            .open_pages = two ? 10 + 2 * unit : 0};
  }
};

// A model whose logits are a hash of what its pages hold.
class FakeModel : public ScheduleModel {
 public:
  explicit FakeModel(const Pick& pick)
      : tokenizer_(ListTokenizer(std::vector<std::string>(kWords, "x"))) {
    for (int groups = pick(1, 4); groups > 0; --groups) groups_.emplace_back(pick);
  }
  std::vector<PoolSpec> Pools(int tokens) const override {
    std::vector<PoolSpec> pools;
    for (const GroupShape& group : groups_) pools.push_back(group.Pool(tokens));
    return pools;
  }
  std::unique_ptr<Executor> Make(std::span<const PoolSpec> pools, int /*threads*/) override {
    return std::make_unique<FakeExecutor>(kWords, pools);
  }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  int max_context() const override { return 400; }

 private:
  std::vector<GroupShape> groups_;
  Tokenizer tokenizer_;
};

// Random weights in the real decoder, so that real pages are written, sealed and read. Made once.
FileModel& RealModel() {
  static FileModel model = [] {
    const auto document = JsonDocument::Parse(R"({
      "model_type": "gemma3_text", "vocab_size": 50, "hidden_size": 32, "intermediate_size": 32,
      "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20,
      "max_position_embeddings": 400, "sliding_window": 70, "rms_norm_eps": 1e-6,
      "query_pre_attn_scalar": 20, "rope_theta": 10000.0, "rope_local_base_freq": 10000.0,
      "hidden_activation": "gelu_pytorch_tanh",
      "layer_types": ["sliding_attention", "full_attention", "full_attention"]})");
    return FileModel(
        ModelFile::Random(document->root(), FormatMix::FromName("f32").value()).value(), 400);
  }();
  return model;
}

KvFormats PickFormats(const Pick& pick) {
  const auto format = [&] {
    return AllKvFormats()[static_cast<size_t>(pick(0, kKvFormatCount - 1))].format;
  };
  KvFormats formats{.k = format(), .v = format()};
  if (pick(0, 2) == 0) formats.skip_layers.push_back(pick(-3, 2));
  if (pick(0, 2) == 0) formats.rotate = pick(0, 1) == 0;
  return formats;
}

void Check(const Pick& pick, ScheduleModel& model) {
  std::vector<Question> questions = MakeQuestions(pick, 1 + pick(0, 5), kWords, 400);
  AskAlone(model, questions);
  ScheduleCounts counts;
  if (const auto problem = RunSchedule(pick, model, questions, counts)) {
    std::fprintf(stderr, "%s\n", problem->c_str());
    std::abort();
  }
}

void CheckSome(const Pick& pick) {
  if (pick(0, 3) == 0) {
    const KvFormats formats = PickFormats(pick);
    RealModel().Use(pick(0, 1) == 0 ? Act::kInt8 : Act::kF32, formats);
    Check(pick, RealModel());
  } else {
    FakeModel model(pick);
    Check(pick, model);
  }
}

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
  CheckSome(pick);
  return 0;
}
