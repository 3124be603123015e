// One weight of 100 times the largest magnitude, and its twin, one activation channel of 100 times
// the others: what each granularity, SmoothQuant and LLM.int8() make of the rest.
//
//   outlier [--json] [FOLDER]      tables; FOLDER gets weights.svg and activations.svg
//
// outlier.py gives the same numbers with NumPy alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <vector>

#include "base/split_mix.h"
#include "container/output_file.h"
#include "examples/plot/bars.h"
#include "platform/thread_pool.h"
#include "quantize/llm_int8.h"
#include "quantize/rtn.h"
#include "quantize/smoothquant.h"

namespace nibble::examples {
namespace {

constexpr int kSize = 256;    // rows and columns of the weights
constexpr int kTokens = 128;  // rows of the activations
constexpr float kTimes = 100;

struct Matrix {
  int rows = 0;
  int cols = 0;
  std::vector<float> values;
  Matrix(int r, int c)
      : rows(r), cols(c), values(static_cast<size_t>(r) * static_cast<size_t>(c)) {}
  float& at(int r, int c) { return values[static_cast<size_t>(r * cols + c)]; }
  float at(int r, int c) const { return values[static_cast<size_t>(r * cols + c)]; }
  MatrixView<const float> view() const { return {values.data(), rows, cols, cols}; }
  MatrixView<float> view() { return {values.data(), rows, cols, cols}; }
  float AbsMax() const {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    return largest;
  }
};

// N(0, sigma²) by Box and Muller: number i from outputs 2i and 2i + 1.
Matrix Normal(int rows, int cols, double sigma, uint64_t seed) {
  Matrix out(rows, cols);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const double u = UniformOf(SplitMixAt(seed, 2 * i)), v = UniformOf(SplitMixAt(seed, 2 * i + 1));
    out.values[i] = static_cast<float>(sigma * std::sqrt(-2 * std::log(u)) *
                                       std::cos(2 * std::numbers::pi * v));
  }
  return out;
}

// --- one outlier among the weights

struct Granular {
  const char* name;
  Granularity granularity;
  int group;
};
constexpr Granular kGranularities[] = {{"tensor", Granularity::kTensor, 0},
                                       {"channel", Granularity::kChannel, 0},
                                       {"group 128", Granularity::kGroup, 128},
                                       {"group 64", Granularity::kGroup, 64},
                                       {"group 32", Granularity::kGroup, 32}};
constexpr const char* kDecomposed = "LLM.int8()";

Matrix Rounded(const Matrix& w, int bits, const Granular& how) {
  ThreadPool pool(1);
  const GridSpec spec = {.bits = bits,
                         .granularity = how.granularity,
                         .group = how.group > 0 ? how.group : kSize,
                         .symmetric = true,
                         .convention = GridConvention::kSmoothQuant,
                         .scale_type = ScaleType::kF32};
  Matrix out(w.rows, w.cols);
  Dequantize(QuantizeRtn(w.view(), spec, pool).value(), out.view(), pool);
  return out;
}

// Columns with a weight beyond six root mean squares stay as they are, the rest is rounded per row.
// (LLM.int8() looks for |x| >= 6 in activations, whose typical magnitude is about 1.)
Matrix Decomposed(const Matrix& w, int bits) {
  double squares = 0;
  for (const float value : w.values) squares += double{value} * value;
  const double bound = 6 * std::sqrt(squares / static_cast<double>(w.values.size()));
  std::vector<bool> kept(static_cast<size_t>(w.cols));
  Matrix rest = w;
  for (int c = 0; c < w.cols; ++c) {
    for (int r = 0; r < w.rows; ++r) {
      if (std::fabs(w.at(r, c)) > bound) kept[static_cast<size_t>(c)] = true;
    }
    for (int r = 0; kept[static_cast<size_t>(c)] && r < w.rows; ++r) rest.at(r, c) = 0;
  }
  Matrix out = Rounded(rest, bits, kGranularities[1]);
  for (int c = 0; c < w.cols; ++c) {
    for (int r = 0; kept[static_cast<size_t>(c)] && r < w.rows; ++r) out.at(r, c) = w.at(r, c);
  }
  return out;
}

struct Damage {
  double median = 0;  // of |ŵ − w| / |w|
  double zeros = 0;   // share that became exactly 0
};

// Of the weights of row 0 but the outlier at its beginning, or of the other rows.
Damage DamageOf(const Matrix& w, const Matrix& rounded, bool own_row) {
  std::vector<double> errors;
  double zeros = 0;
  for (int r = own_row ? 0 : 1; r < (own_row ? 1 : w.rows); ++r) {
    for (int c = own_row ? 1 : 0; c < w.cols; ++c) {
      errors.push_back(std::fabs(double{rounded.at(r, c)} - w.at(r, c)) / std::fabs(w.at(r, c)));
      zeros += rounded.at(r, c) == 0;
    }
  }
  std::ranges::sort(errors);
  const size_t half = errors.size() / 2;
  const double median =
      errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  return {median, zeros / static_cast<double>(errors.size())};
}

using Numbers = std::map<std::string, double>;  // by name, as outlier.py prints them

void WeightExperiment(Numbers& numbers) {
  Matrix w = Normal(kSize, kSize, 0.02, 0);
  for (const char* what : {"normal", "outlier"}) {
    if (what[0] == 'o') w.at(0, 0) = kTimes * w.AbsMax();
    for (const int bits : {8, 4}) {
      const auto add = [&](const char* how, const Matrix& rounded) {
        for (const bool own : {true, false}) {
          const Damage damage = DamageOf(w, rounded, own);
          const std::string name =
              fmt::format("{}/{}/{}/{}", what, bits, how, own ? "own row" : "other rows");
          numbers[name + "/median"] = damage.median;
          numbers[name + "/zeros"] = damage.zeros;
        }
      };
      for (const Granular& how : kGranularities) add(how.name, Rounded(w, bits, how));
      add(kDecomposed, Decomposed(w, bits));
    }
  }
}

// --- one outlier channel among the activations

// y [tokens][outputs] of 8-bit codes by integer sums: scale of the token × scale of the output.
void AddIntegerProduct(const Matrix& x, const Matrix& w, bool per_tensor, Matrix& y) {
  const auto codes = [](const Matrix& m, bool one_scale, std::vector<float>& scales) {
    std::vector<int> out(m.values.size());
    for (int r = 0; r < m.rows; ++r) {
      float largest = one_scale ? m.AbsMax() : 0;
      for (int c = 0; !one_scale && c < m.cols; ++c) {
        largest = std::max(largest, std::fabs(m.at(r, c)));
      }
      scales.push_back(std::max(largest, 1e-5F) / 127);
      for (int c = 0; c < m.cols; ++c) {
        out[static_cast<size_t>(r * m.cols + c)] =
            static_cast<int>(std::nearbyint(m.at(r, c) / scales.back()));
      }
    }
    return out;
  };
  std::vector<float> x_scales, w_scales;
  const std::vector<int> a = codes(x, per_tensor, x_scales), b = codes(w, false, w_scales);
  for (int t = 0; t < x.rows; ++t) {
    for (int o = 0; o < w.rows; ++o) {
      int sum = 0;
      for (int c = 0; c < x.cols; ++c) {
        sum += a[static_cast<size_t>(t * x.cols + c)] * b[static_cast<size_t>(o * x.cols + c)];
      }
      y.at(t, o) += x_scales[static_cast<size_t>(t)] * w_scales[static_cast<size_t>(o)] *
                    static_cast<float>(sum);
    }
  }
}

// The activations divided by SmoothQuant's scales, the weights multiplied.
Matrix Smooth(const Matrix& x, const Matrix& w, bool per_tensor) {
  ThreadPool pool(1);
  ChannelRange range;
  range.Add(x.view());
  const std::vector<MatrixView<const float>> consumers = {w.view()};
  const std::vector<float> scales =
      SmoothScales(range, consumers, {.alpha = 0.5, .statistics = SmoothStatistics::kPaper}, pool)
          .value();
  Matrix smooth_x = x, smooth_w = w, y(x.rows, w.rows);
  for (int c = 0; c < x.cols; ++c) {
    for (int r = 0; r < x.rows; ++r) smooth_x.at(r, c) /= scales[static_cast<size_t>(c)];
    for (int r = 0; r < w.rows; ++r) smooth_w.at(r, c) *= scales[static_cast<size_t>(c)];
  }
  AddIntegerProduct(smooth_x, smooth_w, per_tensor, y);
  return y;
}

// Channels with an |x| >= 6 anywhere by floats with the rounded weights, the others by integers.
Matrix Mixed(const Matrix& x, const Matrix& w) {
  ThreadPool pool(1);
  std::vector<float> maxima(static_cast<size_t>(x.cols));
  for (size_t i = 0; i < x.values.size(); ++i) {
    float& largest = maxima[i % maxima.size()];
    largest = std::max(largest, std::fabs(x.values[i]));
  }
  const std::vector<int> outliers = OutlierColumns(maxima, 6);
  const Int8Matrix codes = QuantizeLlmInt8(w.view(), pool).value();
  Matrix y(x.rows, w.rows);
  for (int t = 0; t < x.rows; ++t) {
    MultiplyLlmInt8(codes, x.view().row_span(t), {}, {.threshold = 0, .fixed = outliers},
                    y.view().row_span(t));
  }
  return y;
}

void ActivationExperiment(Numbers& numbers) {
  const Matrix w = Normal(kSize, kSize, 0.02, 1);
  for (const bool outlier : {false, true}) {
    Matrix x = Normal(kTokens, kSize, 1, 2);
    double squares = 0;  // of what the channels but the first make of the outputs
    Matrix exact(kTokens, kSize);
    for (int t = 0; t < kTokens; ++t) {
      if (outlier) x.at(t, 0) *= kTimes;
      for (int o = 0; o < kSize; ++o) {
        double sum = 0;
        for (int c = 1; c < kSize; ++c) sum += double{x.at(t, c)} * w.at(o, c);
        squares += sum * sum;
        exact.at(t, o) = static_cast<float>(sum + double{x.at(t, 0)} * w.at(o, 0));
      }
    }
    const auto add = [&](const char* how, const Matrix& y) {
      double errors = 0;
      for (size_t i = 0; i < y.values.size(); ++i) {
        const double error = double{y.values[i]} - exact.values[i];
        errors += error * error;
      }
      numbers[fmt::format("activations/{}/{}", outlier ? "outlier" : "normal", how)] =
          std::sqrt(errors / squares);
    };
    for (const bool per_tensor : {true, false}) {
      Matrix naive(kTokens, kSize);
      AddIntegerProduct(x, w, per_tensor, naive);
      add(per_tensor ? "W8A8 per tensor" : "W8A8 per token", naive);
      add(per_tensor ? "SmoothQuant per tensor" : "SmoothQuant per token",
          Smooth(x, w, per_tensor));
    }
    add(kDecomposed, Mixed(x, w));
  }
}

// --- output

std::vector<std::string> WeightMethods() {
  std::vector<std::string> out;
  for (const Granular& how : kGranularities) out.emplace_back(how.name);
  out.emplace_back(kDecomposed);
  return out;
}
const std::vector<std::string> kActivationMethods = {"W8A8 per tensor", "W8A8 per token",
                                                     "SmoothQuant per tensor",
                                                     "SmoothQuant per token", kDecomposed};

void PrintTables(const Numbers& numbers) {
  fmt::print(
      "One weight of {:g} times the largest magnitude in {} x {} of N(0, 0.02²): median relative\n"
      "error of the other weights, and the share of them that became exactly 0\n\n",
      kTimes, kSize, kSize);
  for (const int bits : {8, 4}) {
    fmt::print("{} bits       without it                with it: its own row      other rows\n",
               bits);
    for (const std::string& how : WeightMethods()) {
      const auto cell = [&](const char* what, const char* rows) {
        const std::string name = fmt::format("{}/{}/{}/{}", what, bits, how, rows);
        return fmt::format("{:8.2f}% {:6.1f}% zero", 100 * numbers.at(name + "/median"),
                           100 * numbers.at(name + "/zeros"));
      };
      fmt::print("{:<11} {:<25} {:<25} {}\n", how, cell("normal", "other rows"),
                 cell("outlier", "own row"), cell("outlier", "other rows"));
    }
    fmt::print("\n");
  }
  fmt::print(
      "One activation channel of {:g} times the others, {} tokens of N(0, 1): error of the "
      "outputs\n"
      "over what the other channels make of them (root mean squares)\n\n"
      "                          without it      with it\n",
      kTimes, kTokens);
  for (const std::string& how : kActivationMethods) {
    fmt::print("{:<24} {:10.3f}%   {:10.3f}%\n", how, 100 * numbers.at("activations/normal/" + how),
               100 * numbers.at("activations/outlier/" + how));
  }
}

Status WritePlots(const Numbers& numbers, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError("{}: cannot be made: {}", folder.string(), error.message());
  BarChart weights = {.title = "One outlier weight",
                      .y_label = "median relative error of the other weights",
                      .categories = WeightMethods(),
                      .series = {}};
  for (const int bits : {8, 4}) {
    for (const char* rows : {"own row", "other rows"}) {
      Series series = {.name = fmt::format("{} bits, {}", bits, rows), .values = {}};
      for (const std::string& how : weights.categories) {
        series.values.push_back(
            numbers.at(fmt::format("outlier/{}/{}/{}/median", bits, how, rows)));
      }
      weights.series.push_back(std::move(series));
    }
  }
  BarChart activations = {.title = "One outlier channel of the activations",
                          .y_label = "error over the other channels' outputs",
                          .categories = kActivationMethods,
                          .series = {}};
  for (const char* what : {"normal", "outlier"}) {
    Series series = {.name = what, .values = {}};
    for (const std::string& how : kActivationMethods) {
      series.values.push_back(numbers.at(fmt::format("activations/{}/{}", what, how)));
    }
    activations.series.push_back(std::move(series));
  }
  for (const auto& [name, chart] :
       {std::pair("weights.svg", &weights), std::pair("activations.svg", &activations)}) {
    NIBBLE_TRY(OutputFile out, OutputFile::Create(folder / name));
    NIBBLE_RETURN_IF_ERROR(out.Write(BarsSvg(*chart)));
    NIBBLE_RETURN_IF_ERROR(out.Commit());
  }
  return {};
}

Status Main(std::span<char*> arguments) {
  bool json = false;
  std::filesystem::path folder;
  for (const std::string argument : arguments) {
    if (argument == "--json") {
      json = true;
    } else if (argument.starts_with("-") || !folder.empty()) {
      return BadInput("use: outlier [--json] [FOLDER], found '{}'", argument);
    } else {
      folder = argument;
    }
  }
  Numbers numbers;
  WeightExperiment(numbers);
  ActivationExperiment(numbers);
  if (json) {
    const char* before = "{";
    for (const auto& [name, value] : numbers) {
      fmt::print("{}\n\"{}\": {}", before, name, value);
      before = ",";
    }
    fmt::print("\n}}\n");
  } else {
    PrintTables(numbers);
  }
  return folder.empty() ? Status() : WritePlots(numbers, folder);
}

}  // namespace
}  // namespace nibble::examples

int main(int argc, char** argv) {
  const nibble::Status status =
      nibble::examples::Main(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!status) fmt::print(stderr, "outlier: {}\n", status.error().message);
  return status ? 0 : 2;
}
