#include "engine/plan.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "engine/sampler.h"
#include "kv/page_book.h"
#include "kv/storage/kv_storage.h"

namespace nibble {
namespace {

// What the process holds in private memory beside all that: data of its libraries and the slack of
// the allocator; each thread's stack and arena touch about 0.1 MB.
constexpr size_t kProcessBytes = size_t{3} << 20;
constexpr size_t kThreadBytes = size_t{128} << 10;
// Spelling, bytes, index entry and merges of one token, measured over the vocabularies of SmolLM2
// (49,152 tokens) and Gemma 3 (262,144).
constexpr size_t kTokenBytes = 165;

constexpr int kMostKvTokens = 1 << 28;

size_t KvBytesFor(std::span<const KvGroup> groups, int tokens, const EngineOptions& options) {
  return KvStorage::Bytes(groups, PagesForTokens(groups, tokens, options));
}

// Most tokens (whole pages) whose pools take at most `bytes`; 0 when not even one page does.
int TokensIn(std::span<const KvGroup> groups, size_t bytes, int most,
             const EngineOptions& options) {
  int low = 0, high = PagesFor(most);  // pages; low fits
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (KvBytesFor(groups, middle * kPageTokens, options) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kPageTokens;
}

std::string Text(size_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

Status CheckOption(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return BadInput("{} is {}, expected a number from {} to {}", name, value, low, high);
}

// Tokens that the pools of the global layers hold.
Result<int> KvTokens(const PlanInput& input, std::span<const KvGroup> groups, int context,
                     size_t without_kv) {
  const EngineOptions& options = input.options;
  if (options.kv_memory > 0) {
    const int tokens = TokensIn(groups, options.kv_memory, kMostKvTokens, options);
    if (tokens > 0) return tokens;
    return BadInput("KV memory of {} holds no page: one of {} tokens takes {}",
                    Text(options.kv_memory), kPageTokens, Text(KvBytesFor(groups, 1, options)));
  }
  if (options.max_context > 0) return context;
  // Nobody asked for the model's whole context: take it if it fits into half of what is left.
  const size_t left = input.available > without_kv ? input.available - without_kv : 0;
  return std::clamp(TokensIn(groups, left / 2, context, options), std::min(context, kPageTokens),
                    context);
}

}  // namespace

Status CheckOptions(const EngineOptions& options) {
  NIBBLE_RETURN_IF_ERROR(CheckOption("threads", options.threads, 0, 1024));
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_context", options.max_context, 0, kMostKvTokens));
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_rows", options.max_rows, 1, 65536));
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_running", options.max_running, 1, 65536));
  return CheckOption("max_queue", options.max_queue, 1, 1 << 24);
}

std::vector<int> PagesForTokens(std::span<const KvGroup> groups, int tokens,
                                const EngineOptions& options) {
  std::vector<int> pages;
  for (const KvGroup& group : groups) {
    const int64_t peak =
        int64_t{options.max_running} * PeakPages(group.window, tokens, options.max_rows);
    pages.push_back(static_cast<int>(std::min<int64_t>(peak, PagesFor(tokens))));
  }
  return pages;
}

Result<PlannedPools> PlanPools(const PlanInput& input) {
  const ModelConfig& config = *input.config;
  const EngineOptions& options = input.options;
  if (options.max_context > config.context_length) {
    return BadInput("a context of {} tokens was asked for and the model has {}",
                    options.max_context, config.context_length);
  }
  const int context = options.max_context > 0 ? options.max_context : config.context_length;

  PlannedPools out;
  out.groups = MakeKvGroups(config, options.kv);
  EnginePlan& plan = out.plan;
  plan.model = input.model;
  plan.sampler_bytes = Sampler::Bytes(config.vocabulary);
  plan.tokenizer_bytes = static_cast<size_t>(config.vocabulary) * kTokenBytes;
  plan.process_bytes = kProcessBytes + static_cast<size_t>(input.threads) * kThreadBytes;
  plan.available_bytes = input.available;
  plan.kv_bytes_per_token = KvBytesPerToken(out.groups);

  const size_t without_kv = plan.Peak();
  NIBBLE_TRY(plan.kv_tokens, KvTokens(input, out.groups, context, without_kv));
  plan.max_context = options.max_context > 0 ? context : std::min(context, plan.kv_tokens);
  out.pages = PagesForTokens(out.groups, plan.kv_tokens, options);
  plan.kv_bytes = KvStorage::Bytes(out.groups, out.pages);
  const size_t left = input.available > without_kv ? input.available - without_kv : 0;
  plan.fitting_context = std::min(context, TokensIn(out.groups, left, context, options));
  return out;
}

std::string EnginePlan::Describe() const {
  return fmt::format(
      "weights {} + step buffers {} + rotations {} + KV pages {} ({} tokens of {} bytes) + sampler "
      "{} + tokenizer {} + process {} = {}{}; available {}",
      Text(model.weight_bytes), Text(model.workspace_bytes), Text(model.rope_bytes), Text(kv_bytes),
      kv_tokens, kv_bytes_per_token, Text(sampler_bytes), Text(tokenizer_bytes),
      Text(process_bytes), Text(Total()),
      model.load_scratch_bytes == 0
          ? ""
          : fmt::format(", and {} while loading", Text(model.load_scratch_bytes)),
      Text(available_bytes));
}

}  // namespace nibble
