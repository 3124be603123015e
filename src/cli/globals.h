#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/activations.h"
#include "model/kv_groups.h"
#include "platform/numa.h"

namespace CLI {
class App;
}

namespace nibble::cli {

// Flags that every command takes (--threads, --act, …), as typed.
struct GlobalFlags {
  int threads = 0;  // 0: all that affinity and cgroup quota grant
  std::string act = "int8";
  std::string kv = "f16";
  std::string kv_k;
  std::string kv_v;
  std::vector<int> kv_skip_layers;
  std::string kv_rotate;           // empty: by the format of keys
  std::string kv_memory = "auto";  // half of what is left
  bool numa = false;
  int context = 0;  // 0: the model's own, bounded by memory
  std::optional<uint64_t> seed;
  bool json = false;
  bool verbose = false;
  bool quiet = false;
};

void AddGlobalFlags(CLI::App& app, GlobalFlags& flags);

// The same flags with f32 arithmetic and f32 pages throughout.
GlobalFlags InFloats(GlobalFlags flags);

Result<Act> ParseAct(const std::string& text);
Result<KvFormats> ParseKvFormats(const GlobalFlags& flags);

// --kv-memory in bytes; nothing: auto.
Result<std::optional<size_t>> KvMemory(const GlobalFlags& flags);

// Under --numa the nodes to place threads and memory by; none on a machine with one, which is said
// on standard error.
std::vector<NumaNode> NodesToUse(const GlobalFlags& flags);

// "512M", "4GB", "1.5GiB", plain bytes. K, M, G, T and KB … are powers of 1000, KiB … of 1024.
Result<size_t> ParseSize(const std::string& text);

}  // namespace nibble::cli
