#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "advise/advice.h"
#include "base/text.h"

namespace nibble {
namespace {

constexpr double kSure = 2;  // standard deviations

// Tokens a second at a batch below the concurrency are of those that got a place: others wait.
bool ForEverybody(const AdviceRow& row, const AdviceLimits& limits) {
  return row.batch >= limits.concurrency;
}

std::string NameOf(const AdviceRow& row) {
  const char* article = row.kv.starts_with("kivi") ? "a" : "an";  // an int8, an f16
  const std::string weights = row.weights == "own" ? "the model's own" : row.weights;
  std::string name = fmt::format("{} weights with {} {} cache", weights, article, row.kv);
  if (!row.skip_layers.empty()) {
    name += fmt::format(" ({} layers of it in f16)", row.skip_layers.size());
  }
  return name;
}

const char* Certainty(const Figure& figure) { return figure.measured() ? "measured" : "predicted"; }

std::string Gives(const AdviceRow& row) {
  return fmt::format(
      "{:.3g} tokens/s over {} sequences ({}), {} of memory and {:.2g} ± {:.1g} nats of divergence "
      "({})",
      row.tok_s(), row.batch, Certainty(row.tpot_s), FormatBytes(row.memory.value), row.kld.value,
      row.kld.error, Certainty(row.kld));
}

const char* Wanted(AdviceObjective objective) {
  switch (objective) {
    case AdviceObjective::kSpeed:
      return "most tokens a second";
    case AdviceObjective::kMemory:
      return "least memory";
    case AdviceObjective::kQuality:
      return "least divergence";
  }
  return "";
}

// What keeps a row that would be better from being taken.
std::string Why(const AdviceRow& row, const AdviceLimits& limits) {
  if (row.memory.value > limits.memory) {
    return fmt::format("needs {} and {} are allowed", FormatBytes(row.memory.value),
                       FormatBytes(limits.memory));
  }
  if (!row.kld.known()) return "its divergence is not known yet";
  if (row.kld.value > limits.quality_loss) {
    return fmt::format("diverges by {:.2g} nats and {:.2g} are allowed", row.kld.value,
                       limits.quality_loss);
  }
  if (!IsWithin(row, limits)) {
    return fmt::format("at {:.2g} ± {:.1g} nats it is not sure to stay below {:.2g}", row.kld.value,
                       row.kld.error, limits.quality_loss);
  }
  if (!ForEverybody(row, limits)) {
    return fmt::format("has room for {} sequences of {}", row.batch, limits.concurrency);
  }
  return "is only predicted";
}

// The best row by the objective that is not taken and is outside the limits.
const AdviceRow* Tempting(const std::vector<AdviceRow>& rows, size_t choice,
                          const AdviceLimits& limits) {
  const AdviceRow* best = nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == choice || !rows[i].kld.known()) continue;
    const double score = ScoreOf(rows[i], limits.objective).value;
    if (score <= ScoreOf(rows[choice], limits.objective).value) continue;
    if (best == nullptr || score > ScoreOf(*best, limits.objective).value) best = &rows[i];
  }
  return best;
}

// The nearest row in front that gives up a little of what is wanted for less divergence.
const AdviceRow* Gentler(const std::vector<AdviceRow>& rows, size_t choice,
                         const AdviceLimits& limits) {
  const AdviceRow* best = nullptr;
  for (const AdviceRow& row : rows) {
    if (!row.pareto || !IsWithin(row, limits) || row.batch < rows[choice].batch) continue;
    if (row.kld.value >= rows[choice].kld.value / 2) continue;
    if (best == nullptr ||
        ScoreOf(row, limits.objective).value > ScoreOf(*best, limits.objective).value) {
      best = &row;
    }
  }
  return best;
}

}  // namespace

RowScore ScoreOf(const AdviceRow& row, AdviceObjective objective) {
  const Figure& figure = objective == AdviceObjective::kSpeed    ? row.tpot_s
                         : objective == AdviceObjective::kMemory ? row.memory
                                                                 : row.kld;
  if (!figure.known()) return {.value = -1e9, .error = 0};
  const double least = std::max(figure.value, 1e-12);
  const double batch = objective == AdviceObjective::kSpeed ? std::log(row.batch) : 0;
  return {.value = batch - std::log(least), .error = figure.error / least};
}

bool MayBeWithin(const AdviceRow& row, const AdviceLimits& limits) {
  if (row.memory.value - kSure * row.memory.error > limits.memory) return false;
  return !row.kld.known() || row.kld.value - kSure * row.kld.error <= limits.quality_loss;
}

bool IsWithin(const AdviceRow& row, const AdviceLimits& limits) {
  if (row.memory.value + kSure * row.memory.error > limits.memory) return false;
  return row.kld.known() && row.kld.value + kSure * row.kld.error <= limits.quality_loss;
}

std::optional<size_t> ChooseRow(const std::vector<AdviceRow>& rows, const AdviceLimits& limits) {
  std::optional<size_t> best;
  const auto key = [&](const AdviceRow& row) {
    const RowScore score = ScoreOf(row, limits.objective);
    const bool everybody = ForEverybody(row, limits);
    // A measured figure is the figure; its error moves all that were measured beside it alike.
    const bool measured = row.tpot_s.measured() && row.kld.measured();
    return std::tuple(everybody, score.value - (measured ? 0 : kSure * score.error), -row.kld.value,
                      -row.memory.value);
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!IsWithin(rows[i], limits)) continue;
    if (!best || key(rows[i]) > key(rows[*best])) best = i;
  }
  return best;
}

std::string ExplainChoice(const std::vector<AdviceRow>& rows, std::optional<size_t> choice,
                          const AdviceLimits& limits) {
  if (!choice) {
    return fmt::format(
        "No combination is sure to stay within {}{}. Allow more memory, more divergence or fewer "
        "sequences, or a larger --budget-s where figures are still predicted.",
        std::isinf(limits.memory) ? "" : FormatBytes(limits.memory) + " and ",
        fmt::format("{:.2g} nats", limits.quality_loss));
  }
  const AdviceRow& row = rows[*choice];
  std::string text = fmt::format("{} give the {} within the limits: {}.", NameOf(row),
                                 Wanted(limits.objective), Gives(row));
  if (const AdviceRow* more = Tempting(rows, *choice, limits)) {
    text += fmt::format(" {} would give more of it, but {}.", NameOf(*more), Why(*more, limits));
  } else {
    text += " No other combination of the grid would give more of it.";
  }
  if (const AdviceRow* gentler = Gentler(rows, *choice, limits)) {
    text += fmt::format(" For less divergence take {}: {}.", NameOf(*gentler), Gives(*gentler));
  } else {
    text += " Nothing within the limits has less than half of its divergence.";
  }
  return text;
}

}  // namespace nibble
