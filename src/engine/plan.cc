#include "engine/plan.h"

#include <algorithm>
#include <string>

#include "base/math.h"
#include "base/text.h"
#include "engine/sampler.h"
#include "kv/page_book.h"
#include "kv/storage/kv_storage.h"
#include "kv/storage/pool_sizes.h"

namespace nibble {
namespace {

// What the process holds in private memory beside all that: data of its libraries and the slack of
// the allocator; each thread's stack and arena touch about 0.1 MB.
constexpr size_t kProcessBytes = size_t{3} << 20;
constexpr size_t kThreadBytes = size_t{128} << 10;
// Spelling, bytes, index entry and merges of one token, measured over the vocabularies of SmolLM2
// (49,152 tokens) and Gemma 3 (262,144).
constexpr size_t kTokenBytes = 165;

PoolLimits LimitsOf(const EngineOptions& options) {
  return {.max_rows = options.max_rows,
          .max_running = options.max_running,
          .prefix_cache = options.prefix_cache};
}

size_t OpenBytes(const PlannedPools& pools) {
  size_t bytes = 0;
  for (size_t g = 0; g < pools.groups.size(); ++g) {
    bytes += pools.groups[g].PageBytes() * static_cast<size_t>(pools.pools[g].open_pages);
  }
  return bytes;
}

double BitsPerValue(const KvLayout& layout) {
  return 8.0 * static_cast<double>(layout.PieceBytes()) /
         (2.0 * kPageTokens * layout.kv_heads * layout.head_dim);
}

// "KV group of 30 layers: a page of 32 tokens is 30 layers × 3 heads of 64 × (keys kivi2 772 + …".
std::string DescribeGroup(const KvGroup& group, const PoolSpec& pool) {
  const KvLayout& sealed = group.sealed;
  const auto side = [&](KvFormat format, size_t block, KvSide of) {
    const bool page_float = TraitsOf(format).page_float[static_cast<size_t>(of)];
    return fmt::format("{} {}", TraitsOf(format).name, block + (page_float ? sizeof(float) : 0));
  };
  std::string text = fmt::format(
      "KV group of {} layers{}{}: a page of {} tokens is {} layers × {} heads of {} × (keys {} + "
      "values {} bytes), rounded up to 64: {} bytes, {} a token, {:.3f} bits a value; {} pages",
      group.layers.size(), group.window > 0 ? fmt::format(" with window {}", group.window) : "",
      group.rotate ? ", rotated" : "", kPageTokens, group.layers.size(), sealed.kv_heads,
      sealed.head_dim, side(sealed.k, sealed.KBytes(), KvSide::kKeys),
      side(sealed.v, sealed.VBytes(), KvSide::kValues), group.SealedPageBytes(),
      group.SealedPageBytes() / kPageTokens, BitsPerValue(sealed), pool.pages);
  if (group.two_forms()) {
    text += fmt::format(" sealed in units of {}, and {} open ones of {} bytes", group.unit_pages(),
                        pool.open_pages, group.PageBytes());
  }
  return text;
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
    const int tokens = TokensIn(groups, options.kv_memory, kMostKvTokens, LimitsOf(options));
    if (tokens > 0) return tokens;
    return BadInput("KV memory of {} holds no page: one of {} tokens takes {}",
                    Text(options.kv_memory), kPageTokens,
                    Text(KvBytesFor(groups, 1, LimitsOf(options))));
  }
  const size_t left = input.available > without_kv ? input.available - without_kv : 0;
  const int half = TokensIn(groups, left / 2, kMostKvTokens, LimitsOf(options));
  // A context that was asked for is not shortened (the plan may not fit then); the model's own is.
  const int contexts =
      static_cast<int>(std::min<int64_t>(int64_t{context} * options.min_contexts, kMostKvTokens));
  const int least = options.max_context > 0 ? contexts : std::min(context, kPageTokens);
  return std::max(half, least);
}

}  // namespace

Status CheckOptions(const EngineOptions& options) {
  NIBBLE_RETURN_IF_ERROR(CheckOption("threads", options.threads, 0, 1024));
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_context", options.max_context, 0, kMostKvTokens));
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_rows", options.max_rows, 1, 65536));
  NIBBLE_RETURN_IF_ERROR(CheckOption("min_contexts", options.min_contexts, 1, 1024));
  if (!(options.max_step_s >= 0 && options.max_step_s <= 3600)) {
    return BadInput("max_step_s is {}, expected a number from 0 to 3600", options.max_step_s);
  }
  NIBBLE_RETURN_IF_ERROR(CheckOption("max_running", options.max_running, 1, 65536));
  return CheckOption("max_queue", options.max_queue, 1, 1 << 24);
}

std::vector<PoolSpec> PoolsForTokens(std::span<const KvGroup> groups, int tokens,
                                     const EngineOptions& options) {
  return PoolsForTokens(groups, tokens, LimitsOf(options));
}

std::vector<int> PlannedPools::OpenPages() const { return OpenPagesOf(pools); }
std::vector<int> PlannedPools::SealedPages() const { return SealedPagesOf(pools); }

Result<PlannedPools> PlanPools(const PlanInput& input) {
  const ModelConfig& config = *input.config;
  const EngineOptions& options = input.options;
  if (options.max_context > config.context_length) {
    return BadInput("a context of {} tokens was asked for and the model has {}",
                    options.max_context, config.context_length);
  }
  const int context = options.max_context > 0 ? options.max_context : config.context_length;

  PlannedPools out;
  NIBBLE_TRY(out.groups, MakeKvGroups(config, options.kv));
  EnginePlan& plan = out.plan;
  plan.model = input.model;
  plan.sampler_bytes = Sampler::Bytes(config.vocabulary);
  plan.tokenizer_bytes = static_cast<size_t>(config.vocabulary) * kTokenBytes;
  plan.process_bytes = kProcessBytes + static_cast<size_t>(input.threads) * kThreadBytes;
  plan.available_bytes = input.available;
  plan.kv_bytes_per_token = KvBytesPerToken(out.groups);

  std::vector<KvGroup> all = out.groups;
  if (input.draft_config != nullptr) {
    NIBBLE_TRY(out.draft_groups, MakeKvGroups(*input.draft_config, {}));
    plan.draft = input.draft;
    plan.sampler_bytes *= 2;
    plan.kv_bytes_per_token += KvBytesPerToken(out.draft_groups);
    all.insert(all.end(), out.draft_groups.begin(), out.draft_groups.end());
  }

  const size_t without_kv = plan.Peak();
  NIBBLE_TRY(plan.kv_tokens, KvTokens(input, all, context, without_kv));
  plan.kv_is_half = options.kv_memory == 0 && plan.kv_tokens > context;
  plan.max_context = options.max_context > 0 ? context : std::min(context, plan.kv_tokens);
  out.pools = PoolsForTokens(out.groups, plan.kv_tokens, options);
  plan.kv_bytes = KvStorage::Bytes(out.groups, out.OpenPages(), out.SealedPages());
  out.draft_pools = PoolsForTokens(out.draft_groups, plan.kv_tokens, options);
  plan.kv_bytes += KvStorage::Bytes(out.draft_groups, OpenPagesOf(out.draft_pools),
                                    SealedPagesOf(out.draft_pools));
  plan.kv_open_bytes = OpenBytes(out);
  for (size_t g = 0; g < out.groups.size(); ++g) {
    plan.kv_groups.push_back(DescribeGroup(out.groups[g], out.pools[g]));
  }
  const size_t left = input.available > without_kv ? input.available - without_kv : 0;
  plan.fitting_context = std::min(context, TokensIn(all, left, context, LimitsOf(options)));
  return out;
}

std::string EnginePlan::Describe() const {
  return fmt::format(
      "weights {} + step buffers {} + rotations {}{} + sampler {} + tokenizer {} + process {} + KV "
      "pages {}{} ({} tokens of {} bytes{}, taken as they are filled) = {}{}; available {}",
      Text(model.weight_bytes), Text(model.workspace_bytes), Text(model.rope_bytes),
      draft.weight_bytes > 0 ? fmt::format(" + draft model {}", Text(draft.Total())) : "",
      Text(sampler_bytes), Text(tokenizer_bytes), Text(process_bytes), Text(kv_bytes),
      kv_is_half ? ", half of what is left" : "", kv_tokens, kv_bytes_per_token,
      kv_open_bytes > 0 ? fmt::format(" sealed, and {} of open pages", Text(kv_open_bytes)) : "",
      Text(Total()),
      model.load_scratch_bytes == 0
          ? ""
          : fmt::format(", and {} while loading", Text(model.load_scratch_bytes)),
      Text(available_bytes));
}

}  // namespace nibble
