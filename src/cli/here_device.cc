#include "cli/here_device.h"

#include <fmt/format.h>

#include <memory>
#include <system_error>

#include "advise/calibrate.h"
#include "advise/limits.h"
#include "cli/output.h"
#include "container/output_file.h"
#include "fetch/paths.h"
#include "platform/machine.h"
#include "platform/thread_pool.h"

namespace nibble::cli {
namespace {

constexpr size_t kMostDeviceBytes = size_t{4} << 20;

int ThreadsOf(const GlobalFlags& flags) {
  return flags.threads > 0 ? flags.threads : ReadTopology().threads;
}

Result<DeviceShape> MeasureHere(const GlobalFlags& flags, Isa isa) {
  const int threads = ThreadsOf(flags);
  if (!flags.quiet) {
    fmt::print(stderr,
               "here: measuring memory and arithmetic of {} threads for a second, a bound; "
               "`nibble calibrate` once makes it a prediction\n",
               threads);
  }
  NIBBLE_TRY(const auto pool, MakeThreads(flags));
  NIBBLE_TRY(LimitLoops loops, LimitLoops::Create(*pool, isa));
  NIBBLE_TRY(const MachineLimits limits, MeasureLimits(loops, 1));
  DeviceShape device;
  device.name = "here";
  device.origin = "measured now";
  device.description = fmt::format("this machine, {} threads, {}", threads, IsaName(isa));
  device.memory = Bytes(static_cast<double>(ReadTopology().memory_total));
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

Result<DeviceShape> ReadHere(const std::filesystem::path& path) {
  NIBBLE_TRY(std::string text, ReadTextFile(path.string(), kMostDeviceBytes));
  const auto document = JsonDocument::Parse(std::move(text));
  if (!document) return Within(path.string(), document.error());
  auto device = ReadDeviceShape(document->root());
  if (!device) return Within(path.string(), device.error());
  if (!device->calibration) {
    return BadInput("{}: expected a file of nibble calibrate", path.string());
  }
  if (const Status same = CheckMachine(*device->calibration, ReadMachine()); !same) {
    return Within(path.string(), same.error());
  }
  device->origin = path.string();
  return device;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> MakeThreads(const GlobalFlags& flags) {
  const int threads = ThreadsOf(flags);
  try {
    return std::make_unique<ThreadPool>(threads, NodesToUse(flags));
  } catch (const std::system_error& error) {
    return Fail(ErrorKind::kNoRoom, "{} threads cannot be started: {}", threads, error.what());
  }
}

std::filesystem::path HereDeviceFile(Isa isa, int threads) {
  return CacheFolder() / "nibble" / "devices" /
         fmt::format("here-{}-t{}.json", IsaName(isa), threads);
}

Result<DeviceShape> CalibratedHere(const GlobalFlags& flags) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const std::filesystem::path path = HereDeviceFile(isa, ThreadsOf(flags));
  std::error_code error;
  if (std::filesystem::exists(path, error)) return ReadHere(path);
  return BadInput(
      "here: this machine is not calibrated for {} threads with {}; run nibble calibrate",
      ThreadsOf(flags), IsaName(isa));
}

Result<DeviceShape> HereDevice(const GlobalFlags& flags) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const std::filesystem::path path = HereDeviceFile(isa, ThreadsOf(flags));
  std::error_code error;
  if (std::filesystem::exists(path, error)) return ReadHere(path);
  return MeasureHere(flags, isa);
}

Result<CalibratedFile> RunCalibration(const GlobalFlags& flags, const CalibrateHere& what) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  CalibratedFile result;
  result.path = what.out.empty() ? HereDeviceFile(isa, ThreadsOf(flags)) : what.out;
  if (what.out.empty()) NIBBLE_RETURN_IF_ERROR(MakeFolder(result.path.parent_path()));
  NIBBLE_TRY(result.path, OutputPlace(result.path));  // complains before the measuring
  NIBBLE_TRY(const auto pool, MakeThreads(flags));
  {
    Progress progress("calibrating", !flags.quiet);
    CalibrateOptions options;
    options.quick = what.quick;
    options.progress = [&](std::string_view stage, double part) {
      progress.Update(part, stage);
      return true;
    };
    NIBBLE_TRY(result.calibration, Calibrate(*pool, isa, options));
  }
  NIBBLE_TRY(OutputFile file, OutputFile::Create(result.path));
  NIBBLE_RETURN_IF_ERROR(file.Write(CalibrationJson(result.calibration)));
  NIBBLE_RETURN_IF_ERROR(file.Commit());
  return result;
}

}  // namespace nibble::cli
