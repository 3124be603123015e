#include "cli/quantize_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "cli/output.h"
#include "kernels/kernel_table.h"
#include "platform/cpu.h"
#include "quantize/budget.h"
#include "quantize/sensitivity.h"

namespace nibble::cli {
namespace {

constexpr std::string_view kBpw = "bpw";

// "4.5bpw"; nothing for a size.
Result<std::optional<double>> BitsOf(const std::string& budget) {
  if (!budget.ends_with(kBpw)) return std::nullopt;
  double bits = 0;
  const char* end = budget.data() + budget.size() - kBpw.size();
  const auto [stop, error] = std::from_chars(budget.data(), end, bits);
  if (error != std::errc{} || stop != end || !(bits > 0 && bits <= 64)) {
    return BadInput("--budget: expected bits a weight such as 4.5bpw, found '{}'", budget);
  }
  return bits;
}

uint64_t BytesOf(const TensorChoice& choice, Format format) {
  return choice.view.rows() * TraitsOf(format).RowBytes(choice.view.cols());
}

// One matrix that the budget decides on.
struct Candidate {
  size_t choice = 0;  // index
  std::vector<Format> formats;
  std::vector<double> errors;
  size_t probe = 0;  // of formats
  std::vector<BudgetOption> options;
};

// The types of all matrices that no rule has decided.
std::vector<Candidate> CandidatesOf(const std::vector<TensorChoice>& choices) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].matrix || choices[i].ruled) continue;
    candidates.push_back(
        {.choice = i, .formats = BudgetFormats(choices[i].view), .errors = {}, .options = {}});
  }
  return candidates;
}

// The type whose rounding is measured: the largest within `bits`, else the smallest. The stored
// type would measure nothing, and finer ones than 9 bits hardly more.
size_t ProbeOf(const std::vector<Format>& formats, Format stored, double bits) {
  constexpr double kFinest = 9;
  size_t probe = 0;
  for (size_t i = 0; i < formats.size(); ++i) {
    const double own = TraitsOf(formats[i]).BitsPerWeight();
    if (formats[i] != stored && own <= std::min(bits, kFinest)) probe = i;
  }
  return probe;
}

Result<SensitivityResult> Measure(const QuantizeJob& job, const std::vector<TensorChoice>& choices,
                                  const std::vector<Candidate>& candidates) {
  constexpr int kLength = 128;
  ImportanceFlags text = job.own.importance;
  text.sequences = job.own.budget_sequences;
  text.length = kLength;
  NIBBLE_TRY(Calibration calibration,
             ReadCalibration(job.flags, text, job.tokenizer, job.model.config().context_length));
  std::vector<SensitivityProbe> probes;
  for (const Candidate& candidate : candidates) {
    probes.push_back({.tensor = choices[candidate.choice].view.tensor,
                      .format = candidate.formats[candidate.probe]});
  }
  SensitivityOptions options;
  options.sequences = std::move(calibration.sequences);
  NIBBLE_TRY(options.memory, ParseSize(job.own.calib_memory));
  options.folder = std::filesystem::absolute(job.own.out).parent_path();
  Progress progress("sensitivity", !job.flags.quiet);
  options.progress = [&](double done, const std::string& what) { progress.Update(done, what); };
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  return MeasureSensitivity(job.model, probes, options, KernelsFor(isa), job.pool);
}

// What is measured of one type stands for the others by their squared errors.
void FillOptions(const TensorChoice& choice, double divergence, Candidate& candidate) {
  // Where rounding shows no divergence, the better type is still the better one.
  constexpr double kLeast = 1e-12;
  divergence = std::max(divergence, kLeast);
  const double measured = candidate.errors[candidate.probe];
  for (size_t f = 0; f < candidate.formats.size(); ++f) {
    const double loss = measured > 0 ? divergence * candidate.errors[f] / measured : 0;
    candidate.options.push_back({.bytes = BytesOf(choice, candidate.formats[f]), .loss = loss});
  }
}

void Apply(const Candidate& candidate, size_t option, TensorChoice& choice) {
  choice.to = candidate.formats[option];
  choice.copied = choice.to == choice.from && choice.view.AsStored();
  choice.note = fmt::format(
      "--budget: divergence {:.2e}, as {} {:.2e}", candidate.options[option].loss,
      TraitsOf(candidate.formats[candidate.probe]).name, candidate.options[candidate.probe].loss);
}

void PrintTable(const std::vector<TensorChoice>& choices, const std::vector<Candidate>& candidates,
                const std::vector<size_t>& chosen) {
  fmt::print(stderr, "{:<32} {:<7} {:>8} {:>10}   {}\n", "matrix", "type", "bytes", "divergence",
             "measured");
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const BudgetOption& option = candidate.options[chosen[i]];
    fmt::print(stderr, "{:<32} {:<7} {:>8} {:>10.2e}   {:.2e} as {}\n",
               choices[candidate.choice].name(), TraitsOf(candidate.formats[chosen[i]]).name,
               FormatBytes(static_cast<double>(option.bytes)), option.loss,
               candidate.options[candidate.probe].loss,
               TraitsOf(candidate.formats[candidate.probe]).name);
  }
}

std::vector<std::string> Notes(const std::vector<TensorChoice>& choices,
                               const std::vector<Candidate>& candidates, double expected,
                               int predictions) {
  std::map<std::string_view, int> counts;
  for (const Candidate& candidate : candidates) {
    ++counts[TraitsOf(choices[candidate.choice].to).name];
  }
  std::string types;
  for (const auto& [name, count] : counts) {
    types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", count, name);
  }
  return {
      fmt::format("budget: {}; expected divergence {:.4g} (sum over the matrices, measured one "
                  "by one on {} predictions)",
                  types, expected, predictions)};
}

// The bytes that all tensors may have.
Result<uint64_t> TensorBudget(const QuantizeJob& job, uint64_t beside) {
  NIBBLE_TRY(const auto bits, BitsOf(job.own.budget));
  if (bits) return static_cast<uint64_t>(*bits * job.model.config().parameters / 8);
  NIBBLE_TRY(const size_t size, ParseSize(job.own.budget));
  return size > beside ? size - beside : 0;
}

}  // namespace

Status CheckBudgetFlags(const QuantizeFlags& own) {
  if (own.budget.empty()) {
    if (!own.to.empty()) return {};
    return BadInput("expected --to TYPE or --budget 4.5bpw");
  }
  if (!ToGguf(own)) return BadInput("--budget: only for an OUT that ends in .gguf");
  if (own.method.ends_with("hqq") || own.method.ends_with("llm-int8")) {
    return BadInput("--budget: only with --method rtn, kquant or gptq, found '{}'", own.method);
  }
  NIBBLE_TRY(const auto bits, BitsOf(own.budget));
  if (bits) return {};
  const auto size = ParseSize(own.budget);
  if (!size) {
    return BadInput("--budget: expected bits a weight (4.5bpw) or a size (700MB), found '{}'",
                    own.budget);
  }
  return {};
}

Result<std::vector<std::string>> ChooseByBudget(const QuantizeJob& job, uint64_t beside,
                                                std::vector<TensorChoice>& choices) {
  NIBBLE_TRY(const uint64_t budget, TensorBudget(job, beside));
  std::vector<Candidate> candidates = CandidatesOf(choices);
  const double bits = 8.0 * static_cast<double>(budget) /
                      static_cast<double>(std::max<int64_t>(1, job.model.config().parameters));
  // What no choice changes.
  uint64_t fixed = 0;
  for (const TensorChoice& choice : choices) fixed += BytesOf(choice, choice.to);
  uint64_t least = 0;
  for (Candidate& candidate : candidates) {
    const TensorChoice& choice = choices[candidate.choice];
    fixed -= BytesOf(choice, choice.to);
    least += BytesOf(choice, candidate.formats.front());
    candidate.probe = ProbeOf(candidate.formats, choice.from, bits);
  }
  if (fixed + least > budget) {
    return BadInput("--budget {}: the smallest possible is {} ({:.3f}bpw)", job.own.budget,
                    FormatBytes(static_cast<double>(fixed + least + beside)),
                    8.0 * static_cast<double>(fixed + least) / job.model.config().parameters);
  }
  NIBBLE_TRY(const SensitivityResult measured, Measure(job, choices, candidates));
  std::vector<std::vector<BudgetOption>> options;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    const TensorChoice& choice = choices[candidate.choice];
    candidate.errors = SampleErrors(choice.view, candidate.formats, job.pool);
    FillOptions(choice, measured.divergence[i], candidate);
    options.push_back(candidate.options);
  }
  NIBBLE_TRY(const std::vector<size_t> chosen, ChooseWithinBudget(options, budget - fixed));
  double expected = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    expected += options[i][chosen[i]].loss;
    Apply(candidates[i], chosen[i], choices[candidates[i].choice]);
  }
  if (!job.flags.quiet) PrintTable(choices, candidates, chosen);
  return Notes(choices, candidates, expected, measured.predictions);
}

std::string BudgetKey(const QuantizeJob& job, const std::vector<TensorChoice>& choices) {
  std::string key;
  if (job.own.budget.empty()) return key;
  for (const TensorChoice& choice : choices) {
    if (choice.matrix) key += fmt::format("{} ", TraitsOf(choice.to).name);
  }
  return key;
}

}  // namespace nibble::cli
