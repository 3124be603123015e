#include "cli/here_device.h"

#include <fmt/format.h>

#include <memory>
#include <system_error>

#include "advise/limits.h"
#include "platform/thread_pool.h"

namespace nibble::cli {

Result<DeviceShape> MeasureHere(const GlobalFlags& flags) {
  const CpuTopology machine = ReadTopology();
  const int threads = flags.threads > 0 ? flags.threads : machine.threads;
  if (!flags.quiet) {
    fmt::print(stderr, "here: measuring memory and arithmetic of {} threads for a second\n",
               threads);
  }
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  std::unique_ptr<ThreadPool> pool;
  try {
    pool = std::make_unique<ThreadPool>(threads, NodesToUse(flags));
  } catch (const std::system_error& error) {
    return Fail(ErrorKind::kNoRoom, "{} threads cannot be started: {}", threads, error.what());
  }
  NIBBLE_TRY(LimitLoops loops, LimitLoops::Create(*pool, isa));
  NIBBLE_TRY(const MachineLimits limits, MeasureLimits(loops, 1));
  DeviceShape device;
  device.name = "here";
  device.origin = "measured now";
  device.description = fmt::format("this machine, {} threads, {}", threads, IsaName(isa));
  device.memory = Bytes(static_cast<double>(machine.memory_total));
  device.bandwidth = BytesPerSecond(limits.median.read);
  device.bf16 = FlopsPerSecond(2 * limits.median.macs.f32);
  device.int8 = FlopsPerSecond(2 * limits.median.macs.int8);
  const std::string measured = "measured now: the median of at least 15 rounds";
  device.sources = {{"memory_bytes", "what this process may use: the machine or its cgroup"},
                    {"bandwidth", measured + " of reading memory"},
                    {"bandwidth_efficiency", "1: the bandwidth is measured"},
                    {"bf16_flops", measured + " of f32 multiply-adds, which floats compute in"},
                    {"int8_flops", measured + " of 8-bit integer multiply-adds"},
                    {"overhead_s", "none is counted"}};
  return device;
}

}  // namespace nibble::cli
