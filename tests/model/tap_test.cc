#include <cmath>
#include <map>
#include <string>

#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

struct Seen {
  int rows = 0;
  int cols = 0;
  double squares = 0;
};

class Recorder : public LinearTap {
 public:
  void Input(int layer, std::string_view linear, MatrixView<const float> x) override {
    Seen& seen = inputs[std::to_string(layer) + " " + std::string(linear)];
    seen.rows += x.rows;
    seen.cols = x.cols;
    for (int r = 0; r < x.rows; ++r) {
      for (const float value : x.row_span(r)) seen.squares += double{value} * value;
    }
  }
  std::map<std::string, Seen> inputs;
};

// A tap sees the input of every linear once per row, changes nothing, and can be taken away.
TEST(Tap, SeesTheInputOfEveryLinear) {
  Runner runner(SourcePath("models/shakespeare"), {.max_rows = 8});
  ASSERT_TRUE(runner.ok());
  const ModelConfig& config = runner.decoder().config();
  Ids ids;
  for (int i = 0; i < 20; ++i) ids.push_back((i * 7 + 1) % config.vocabulary);
  const std::vector<float> expected = runner.Logits(ids, 8);

  Recorder tap;
  runner.decoder().SetTap(&tap);
  EXPECT_EQ(runner.Logits(ids, 8), expected);
  runner.decoder().SetTap(nullptr);
  EXPECT_EQ(runner.Logits(ids, 8), expected);

  const int layers = static_cast<int>(config.layers.size());
  ASSERT_EQ(tap.inputs.size(), static_cast<size_t>(4 * layers + 1));
  const std::map<std::string, int> widths = {{"qkv", config.width},
                                             {"output", config.heads * config.head_dim},
                                             {"gate_up", config.width},
                                             {"down", config.ffn_width}};
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [linear, width] : widths) {
      const Seen& seen = tap.inputs[std::to_string(layer) + " " + linear];
      EXPECT_EQ(seen.rows, 20) << layer << " " << linear;
      EXPECT_EQ(seen.cols, width) << layer << " " << linear;
      EXPECT_TRUE(std::isfinite(seen.squares) && seen.squares > 0) << layer << " " << linear;
    }
  }
  EXPECT_EQ(tap.inputs["-1 head"].rows, 20);
  EXPECT_EQ(tap.inputs["-1 head"].cols, config.width);
}

}  // namespace
}  // namespace nibble::testing
