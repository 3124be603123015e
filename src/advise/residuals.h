#pragma once

#include <vector>

namespace nibble {

// A place of the grid: the index of its weights' format and of its cache's.
struct GridPlace {
  int weights = 0;
  int kv = 0;
  bool operator==(const GridPlace&) const = default;
};

// How far predictions are expected to be off, as standard deviations of ln(measured / predicted).
// Errors that all places share, those of one format of weights, of one format of pages, and what is
// left to a place alone, each on its own.
struct ResidualPrior {
  double common = 0;
  double weights = 0;
  double kv = 0;
  double place = 0;
};

// Learns the residuals of a prediction from the places that have been measured: a Gaussian process
// over ln(measured / predicted) (Rasmussen and Williams 2006, equations 2.25 and 2.26) whose
// covariance of two places is the sum of the variances of what they have in common. Its posterior
// deviation is the prediction's own error, by which the next measurement is chosen.
class Residuals {
 public:
  explicit Residuals(const ResidualPrior& prior) : prior_(prior) {}

  // error: standard deviation of the logarithm of the measurement itself; taken as at least 1e-3.
  void Add(GridPlace at, double log_ratio, double error);

  struct Posterior {
    double mean = 0;   // to be added to ln(predicted)
    double error = 0;  // standard deviation, the place's own part included
  };
  Posterior At(GridPlace place) const;

 private:
  double Covariance(GridPlace a, GridPlace b) const;
  void Factor();

  ResidualPrior prior_;
  std::vector<GridPlace> places_;
  std::vector<double> ratios_;
  std::vector<double> noises_;  // variances
  std::vector<double> lower_;   // Cholesky factor of the covariance, row by row [n][n]
  std::vector<double> alpha_;   // covariance⁻¹ · ratios
};

}  // namespace nibble
