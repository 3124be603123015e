#pragma once

#include <optional>
#include <vector>

#include "quantize/hessian.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

struct StatsNeeds {
  bool hessian = false;  // GPTQ
  bool squares = false;  // importance of the columns
  bool sizes = false;    // largest and mean magnitudes
  int sample_rows = 0;   // so many inputs, kept as they are
};

// What is known about the input of a linear over all calibration tokens. Sums run in the order of
// the tokens, whatever the threads.
class InputStats {
 public:
  // tokens: how many there will be; a sample takes every n-th of them.
  InputStats(int cols, const StatsNeeds& needs, int64_t tokens);

  void Add(MatrixView<const float> x, ThreadPool& pool);

  int cols() const { return cols_; }
  int64_t tokens() const { return tokens_; }
  const std::optional<Hessian>& hessian() const { return hessian_; }
  std::vector<float> Importance() const;                          // mean squares [cols]
  const std::vector<float>& largest() const { return largest_; }  // |x| [cols]
  std::vector<float> MeanSizes() const;                           // mean |x| [cols]
  MatrixView<const float> sample() const;

 private:
  int cols_;
  StatsNeeds needs_;
  int64_t every_ = 1;
  int64_t tokens_ = 0;
  std::optional<Hessian> hessian_;
  std::vector<double> squares_, sizes_;
  std::vector<float> largest_;
  std::vector<float> sample_;
};

}  // namespace nibble
