#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// Instruction sets that kernels are compiled for, each a row of the kernel table. kScalar is the
// truth that all others equal bit for bit.
enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kNeonDot };

std::string_view IsaName(Isa isa);  // "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "neon"
std::optional<Isa> IsaFromName(std::string_view name);

// Every instruction set that this processor (and the operating system's saved state) can run, worst
// first; kScalar always.
std::vector<Isa> SupportedIsas();

// The best one, or the one named by NIBBLE_ISA in the environment: an error when that is unknown or
// not supported here.
Result<Isa> ChooseIsa();

// Whether AMD made this processor; false where it is not x86.
bool CpuVendorIsAmd();

struct CpuTopology {
  int affinity_threads = 1;          // processors this process may run on
  double cgroup_quota = 0;           // processors' worth of time the cgroup grants; 0: no limit
  int threads = 1;                   // what a pool should use: min of both, at least 1
  size_t last_level_cache = 0;       // bytes of the largest one
  size_t all_last_level_caches = 0;  // of all that those processors reach, as far as it is told
  size_t memory_total = 0;           // bytes this process may use: machine or cgroup limit
  size_t memory_available = 0;       // bytes free now under the same limit
  int numa_nodes = 1;                // with memory
};
// root stands before the names of files under /sys and /proc.
CpuTopology ReadTopology(const std::filesystem::path& root = "/");

}  // namespace nibble
