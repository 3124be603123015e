#include "server/request_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "base/paging.h"
#include "base/sha256.h"
#include "platform/random_bits.h"
#include "sched/step_price.h"
#include "server/json_text.h"

namespace nibble::server {
namespace {

constexpr size_t kSaltBytes = 32;
constexpr size_t kHashDigits = 13;  // 52 bits: a number that any reader of JSON keeps whole

int64_t Nanoseconds(double seconds) { return std::llround(std::max(seconds, 0.0) * 1e9); }

std::string_view PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kFirstCome:
      return "first_come";
    case Policy::kPriority:
      return "priority";
    case Policy::kLongestPrefix:
      return "longest_prefix";
  }
  return "";
}

Json PoolsJson(const std::vector<PoolSpec>& pools) {
  Json out = Json::array();
  for (const PoolSpec& pool : pools) {
    out.push_back({{"pages", pool.pages},
                   {"open_pages", pool.open_pages},
                   {"window", pool.window},
                   {"unit_pages", pool.unit_pages}});
  }
  return out;
}

Json PriceJson(const StepPrice& price) {
  Json points = Json::array();
  for (const StepPrice::Point& point : price.points()) {
    points.push_back({{"rows", point.rows}, {"seconds", point.seconds}});
  }
  return {{"points", std::move(points)},
          {"kv_token_s", price.kv_token_s()},
          {"logit_row_s", price.logit_row_s()},
          {"kv_read_s", price.kv_read_s()}};
}

}  // namespace

RequestTrace::RequestTrace(std::unique_ptr<LineFile> file, double start_s)
    : file_(std::move(file)), start_s_(start_s) {
  while (salt_.size() < kSaltBytes) {
    const uint64_t bits = RandomBits();
    for (int shift = 0; shift < 64; shift += 8) salt_ += static_cast<char>(bits >> shift & 0xff);
  }
}

void RequestTrace::WriteHead(const std::string& model, const Engine& engine,
                             const EngineOptions& options) {
  const EnginePlan& plan = engine.plan();
  Json out = {{"nibble_trace", 1},
              {"block_tokens", kPageTokens},
              {"model", model},
              {"started_unix_s", static_cast<int64_t>(std::time(nullptr))}};
  out["config"] = {{"max_rows", options.max_rows},
                   {"max_running", options.max_running},
                   {"max_queue", options.max_queue},
                   {"policy", PolicyName(options.policy)},
                   {"batching", options.batching == Batching::kStatic ? "static" : "continuous"},
                   {"prefix_cache", options.prefix_cache},
                   {"step_budget", options.step_budget},
                   {"max_step_s", options.max_step_s},
                   {"max_context", plan.max_context},
                   {"kv_tokens", plan.kv_tokens},
                   {"kv_bytes_per_token", plan.kv_bytes_per_token},
                   {"weight_bytes_per_step", engine.WeightBytesPerStep()},
                   {"threads", engine.threads()},
                   {"pools", PoolsJson(engine.pools())}};
  out["price"] = PriceJson(engine.step_price());
  file_->Add(DumpJson(out));
}

std::vector<int64_t> RequestTrace::BlockHashes(std::span<const TokenId> prompt) const {
  std::vector<int64_t> blocks;
  blocks.reserve(prompt.size() / kPageTokens);
  std::string text = salt_;
  for (size_t i = 0; i + kPageTokens <= prompt.size(); i += kPageTokens) {
    for (const TokenId id : prompt.subspan(i, kPageTokens)) {
      const auto value = static_cast<uint32_t>(id.value());
      for (int shift = 0; shift < 32; shift += 8) text += static_cast<char>(value >> shift & 0xff);
    }
    const std::string digest = Sha256Hex(text);
    int64_t hash = 0;
    std::from_chars(digest.data(), digest.data() + kHashDigits, hash, 16);
    blocks.push_back(hash);
    text = salt_ + digest;  // the next one depends on all before
  }
  return blocks;
}

void RequestTrace::Write(const TracedRequest& r) {
  std::string line = fmt::format(
      R"({{"arrival_time_ns":{},"input_toks":{},"output_toks":{},"cached_toks":{},"priority":{})",
      Nanoseconds(r.received_s - start_s_), r.usage.prompt_tokens, r.longest,
      r.usage.cached_prompt_tokens, r.priority);
  if (r.max_tokens >= 0) line += fmt::format(R"(,"max_tokens":{})", r.max_tokens);
  if (r.choices > 1) {
    line += fmt::format(R"(,"n":{},"all_output_toks":{},"choices_toks":[{}])", r.choices,
                        r.generated, fmt::join(r.lengths, ","));
  }
  line += fmt::format(R"(,"queued_order":{},"queued_step":{},"ended_step":{})", r.usage.order,
                      r.usage.queued_step, r.ended_step);
  line += fmt::format(R"(,"queue_s":{:.6f})", r.usage.queue_s);
  if (r.first_token_s >= 0) {
    line += fmt::format(R"(,"ttft_s":{:.6f})", r.first_token_s - r.received_s);
  }
  line += fmt::format(
      R"(,"e2e_s":{:.6f},"preemptions":{},"finish_reason":"{}","cancelled":{},"hash_ids":[{}]}})",
      r.ended_s - r.received_s, r.usage.preemptions, r.reason, r.reason == "abort",
      fmt::join(r.blocks, ","));
  file_->Add(line);
}

}  // namespace nibble::server
