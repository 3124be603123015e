#pragma once

#include <cstdint>
#include <vector>

namespace nibble {

// Kernels take rows eight at a time: a ninth costs as much as three more (SmolLM2 on a Zen 4: 5.6
// ms a step with 8 rows, 7.7 with 9, 12.2 with 16). So a chunk that time limits ends where the
// step's rows are a multiple of this.
inline constexpr int kRowTile = 8;

// What a step costs depends on these.
struct StepLoad {
  int rows = 0;
  int64_t kv_tokens = 0;  // positions that all rows' queries see together: arithmetic
  int logit_rows = 0;     // rows whose logits are computed
  int64_t kv_reads = 0;   // positions of all sequences, which rows of one read together: bytes

  StepLoad operator+(const StepLoad& other) const {
    return {rows + other.rows, kv_tokens + other.kv_tokens, logit_rows + other.logit_rows,
            kv_reads + other.kv_reads};
  }
  StepLoad operator-(const StepLoad& other) const {
    return {rows - other.rows, kv_tokens - other.kv_tokens, logit_rows - other.logit_rows,
            kv_reads - other.kv_reads};
  }
};

// The load of `rows` consecutive tokens of one sequence from position `first` on.
StepLoad LoadOf(int first, int rows, bool wants_logits);

// Seconds that a step takes, as a table that is fitted once and then frozen: a plan never depends
// on a measured time. Rows: linear between the table's points and along its last piece beyond them
// (weights are read once for all rows, so a row costs little until arithmetic is the bound); KV
// tokens, KV reads and logit rows: linear.
class StepPrice {
 public:
  struct Point {
    int rows = 0;
    double seconds = 0;
  };
  StepPrice() = default;  // knows nothing: no limit follows from it
  // At least one point; rows ascend. What falls from one point to the next counts as level.
  StepPrice(std::vector<Point> points, double kv_token_s, double logit_row_s, double kv_read_s = 0);

  bool known() const { return !points_.empty(); }
  double Seconds(const StepLoad& load) const;

  const std::vector<Point>& points() const { return points_; }
  double kv_token_s() const { return kv_token_s_; }
  double logit_row_s() const { return logit_row_s_; }
  double kv_read_s() const { return kv_read_s_; }

 private:
  std::vector<Point> points_;
  double kv_token_s_ = 0;
  double logit_row_s_ = 0;
  double kv_read_s_ = 0;
};

// Most rows, at most `wanted`, that a sequence may add from position `first` on to a step of load
// `load` so that it takes at most `limit` seconds. 0 when not even one does.
int RowsWithin(const StepPrice& price, const StepLoad& load, int first, int wanted, double limit);

}  // namespace nibble
