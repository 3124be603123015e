#include "cost/served_config.h"

#include <utility>
#include <vector>

#include "container/json.h"

namespace nibble {
namespace {

Result<int> CountIn(const JsonValue& object, std::string_view key, int64_t least, int64_t most) {
  NIBBLE_TRY(const int64_t value, object.GetInt(key));
  if (value >= least && value <= most) return static_cast<int>(value);
  return BadInput("'{}': expected a whole number from {} to {}, found {}", key, least, most, value);
}

Result<double> SecondsIn(const JsonValue& object, std::string_view key) {
  constexpr double kMost = 1e6;
  NIBBLE_TRY(const double value, object.GetDouble(key));
  if (value >= 0 && value <= kMost) return value;
  return BadInput("'{}': expected 0 to {} seconds, found {}", key, kMost, value);
}

Result<Policy> PolicyIn(const JsonValue& object) {
  NIBBLE_TRY(const std::string_view name, object.GetString("policy"));
  if (name == "first_come") return Policy::kFirstCome;
  if (name == "priority") return Policy::kPriority;
  if (name == "longest_prefix") return Policy::kLongestPrefix;
  return BadInput("'policy': expected first_come, priority or longest_prefix, found '{}'",
                  name.substr(0, 64));
}

Result<Batching> BatchingIn(const JsonValue& object) {
  NIBBLE_TRY(const std::string_view name, object.GetString("batching"));
  if (name == "continuous") return Batching::kContinuous;
  if (name == "static") return Batching::kStatic;
  return BadInput("'batching': expected continuous or static, found '{}'", name.substr(0, 64));
}

Result<std::vector<PoolSpec>> PoolsIn(const JsonValue& object) {
  constexpr size_t kMostPools = 4096;
  constexpr int kMostPages = 1 << 28;
  NIBBLE_TRY(const JsonValue list, object.Get("pools"));
  const auto array = list.AsArray();
  if (!array) return Within("'pools'", array.error());
  if (array->empty() || array->size() > kMostPools) {
    return BadInput("'pools': expected 1 to {} of them, found {}", kMostPools, array->size());
  }
  std::vector<PoolSpec> pools;
  for (const JsonValue one : *array) {
    PoolSpec pool;
    NIBBLE_TRY(pool.pages, CountIn(one, "pages", 1, kMostPages));
    NIBBLE_TRY(pool.open_pages, CountIn(one, "open_pages", 0, kMostPages));
    NIBBLE_TRY(pool.window, CountIn(one, "window", 0, kMostPages));
    NIBBLE_TRY(pool.unit_pages, CountIn(one, "unit_pages", 1, 64));
    if (pool.open_pages == 0 && pool.unit_pages != 1) {
      return BadInput("'unit_pages': expected 1 where there are no open pages, found {}",
                      pool.unit_pages);
    }
    pools.push_back(pool);
  }
  return pools;
}

Result<StepPrice> PriceIn(const JsonValue& root) {
  constexpr size_t kMostPoints = 4096;
  constexpr int kMostRows = 1 << 24;
  NIBBLE_TRY(const JsonValue price, root.Get("price"));
  NIBBLE_TRY(const JsonValue list, price.Get("points"));
  const auto array = list.AsArray();
  if (!array) return Within("'points'", array.error());
  if (array->empty()) return StepPrice();
  if (array->size() > kMostPoints) {
    return BadInput("'points': expected at most {}, found {}", kMostPoints, array->size());
  }
  std::vector<StepPrice::Point> points;
  for (const JsonValue one : *array) {
    StepPrice::Point point;
    const int least = points.empty() ? 1 : points.back().rows + 1;
    NIBBLE_TRY(point.rows, CountIn(one, "rows", least, kMostRows));
    NIBBLE_TRY(point.seconds, SecondsIn(one, "seconds"));
    points.push_back(point);
  }
  NIBBLE_TRY(const double token, SecondsIn(price, "kv_token_s"));
  NIBBLE_TRY(const double logit, SecondsIn(price, "logit_row_s"));
  NIBBLE_TRY(const double read, SecondsIn(price, "kv_read_s"));
  return StepPrice(std::move(points), token, logit, read);
}

}  // namespace

Result<ServedConfig> ReadServedConfig(std::string_view head) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(head)));
  const JsonValue root = document.root();
  NIBBLE_TRY(const JsonValue config, root.Get("config"));
  ServedConfig served;
  NIBBLE_TRY(const std::string_view model, root.GetStringOr("model", ""));
  served.model = model;
  SimulatorOptions& options = served.options;
  SchedulerLimits& limits = options.limits;
  NIBBLE_TRY(limits.max_rows, CountIn(config, "max_rows", 1, 65536));
  NIBBLE_TRY(limits.max_running, CountIn(config, "max_running", 1, 65536));
  NIBBLE_TRY(limits.max_queue, CountIn(config, "max_queue", 1, 1 << 24));
  NIBBLE_TRY(limits.policy, PolicyIn(config));
  NIBBLE_TRY(limits.batching, BatchingIn(config));
  NIBBLE_TRY(limits.max_step_s, SecondsIn(config, "max_step_s"));
  NIBBLE_TRY(options.pages.prefix_cache, config.GetBool("prefix_cache"));
  NIBBLE_TRY(options.max_context, CountIn(config, "max_context", 1, 1 << 28));
  NIBBLE_TRY(options.pools, PoolsIn(config));
  NIBBLE_TRY(options.price, PriceIn(root));
  return served;
}

}  // namespace nibble
