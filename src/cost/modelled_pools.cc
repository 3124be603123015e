#include "cost/modelled_pools.h"

#include "base/text.h"

namespace nibble {

Result<ModelledPools> PoolsOn(const CostModel& model, const PoolLimits& limits,
                              std::optional<size_t> kv_bytes) {
  const MemoryCost memory = model.Memory({.batch = 0, .context = 0});
  const double usable = memory.device.value * kUsableMemory;
  ModelledPools out;
  out.bytes = kv_bytes ? static_cast<double>(*kv_bytes) : usable - memory.weights.value;
  if (!kv_bytes && out.bytes <= 0) {
    return BadInput(
        "weights of {} leave no room for a cache in {:.0f}% of {}; more --devices, fewer bits of "
        "--weights, or --kv-memory",
        FormatBytes(memory.weights.value), 100 * kUsableMemory, FormatBytes(memory.device.value));
  }
  const std::span<const KvGroup> groups = model.kv().groups();
  const auto bytes = static_cast<size_t>(out.bytes / model.kv_copies());
  out.tokens = TokensIn(groups, bytes, kMostKvTokens, limits);
  if (out.tokens == 0) {
    return BadInput("a cache of {} holds no page: one of {} tokens takes {}",
                    FormatBytes(static_cast<double>(bytes)), kPageTokens,
                    FormatBytes(static_cast<double>(KvBytesFor(groups, 1, limits))));
  }
  out.pools = PoolsForTokens(groups, out.tokens, limits);
  return out;
}

}  // namespace nibble
