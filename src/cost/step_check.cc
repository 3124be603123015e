#include "cost/step_check.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "container/json.h"

namespace nibble {
namespace {

// Prices are written in whole nanoseconds.
constexpr double kPriceTolerance = 0.6e-9;

Result<int64_t> NumberIn(const JsonValue& root, std::string_view key, int64_t most) {
  NIBBLE_TRY(const int64_t value, root.GetInt(key));
  if (value >= 0 && value <= most) return value;
  return BadInput("'{}': expected a whole number from 0 to {}, found {}", key, most, value);
}

Result<int> SmallNumberIn(const JsonValue& root, std::string_view key) {
  NIBBLE_TRY(const int64_t value, NumberIn(root, key, 1 << 30));
  return static_cast<int>(value);
}

struct Field {
  const char* name;
  int LoggedStep::* logged;
  int SimulatedStep::* simulated;
};
constexpr Field kFields[] = {
    {"rows", &LoggedStep::rows, &SimulatedStep::rows},
    {"prompt_rows", &LoggedStep::prompt_rows, &SimulatedStep::prompt_rows},
    {"sequences", &LoggedStep::sequences, &SimulatedStep::sequences},
    {"accepted", &LoggedStep::accepted, &SimulatedStep::accepted},
    {"admitted", &LoggedStep::admitted, &SimulatedStep::admitted},
    {"preempted", &LoggedStep::preempted, &SimulatedStep::preempted},
    {"running", &LoggedStep::running, &SimulatedStep::running},
    {"waiting", &LoggedStep::waiting, &SimulatedStep::waiting},
};

// Empty: the same plan.
std::string Difference(const LoggedStep& logged, const SimulatedStep& simulated) {
  if (logged.number != simulated.number) {
    return fmt::format("step: the log has {}, the simulation {}", logged.number, simulated.number);
  }
  for (const Field& field : kFields) {
    if (logged.*field.logged == simulated.*field.simulated) continue;
    return fmt::format("step {}, {}: the log has {}, the simulation {}", logged.number, field.name,
                       logged.*field.logged, simulated.*field.simulated);
  }
  if (std::abs(logged.price_s - simulated.price_s) > kPriceTolerance) {
    return fmt::format("step {}, price_s: the log has {:.9f}, the simulation {:.9f}", logged.number,
                       logged.price_s, simulated.price_s);
  }
  return {};
}

}  // namespace

Result<LoggedStep> ReadLoggedStep(std::string_view line) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(line)));
  const JsonValue root = document.root();
  LoggedStep step;
  NIBBLE_TRY(step.number, NumberIn(root, "step", int64_t{1} << 53));
  NIBBLE_TRY(step.seconds, root.GetDouble("seconds"));
  NIBBLE_TRY(step.price_s, root.GetDouble("price_s"));
  NIBBLE_TRY(const int64_t drafted, root.GetIntOr("drafted", 0));
  if (drafted != 0) {
    return BadInput(
        "step {} verified {} guesses: a simulation knows none, the server must be run "
        "without speculation",
        step.number, drafted);
  }
  for (const Field& field : kFields) {
    NIBBLE_TRY(step.*field.logged, SmallNumberIn(root, field.name));
  }
  return step;
}

void StepCheck::Differ(std::string what) {
  if (different_++ == 0) first_ = std::move(what);
}

void StepCheck::OnStep(const SimulatedStep& step) {
  if (!status_) return;
  const auto line = lines_.Next();
  if (!line) {
    status_ = std::unexpected(line.error());
    return;
  }
  if (!*line) {
    return Differ(fmt::format("step {}: the log ends before it", step.number));
  }
  const auto logged = ReadLoggedStep(**line);
  if (!logged) {
    status_ = Within(fmt::format("line {}", lines_.number()), logged.error());
    return;
  }
  ++compared_;
  if (std::string difference = Difference(*logged, step); !difference.empty()) {
    Differ(std::move(difference));
  }
}

Status StepCheck::Finish() {
  while (status_) {
    const auto line = lines_.Next();
    if (!line) return std::unexpected(line.error());
    if (!*line) break;
    Differ(fmt::format("line {}: the simulation ends before it", lines_.number()));
  }
  return status_;
}

}  // namespace nibble
