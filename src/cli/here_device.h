#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "cli/globals.h"
#include "cost/calibration.h"
#include "cost/device_shape.h"

namespace nibble {
class ThreadPool;
}

namespace nibble::cli {

// Where `nibble calibrate` writes the device file of this machine, one for each instruction set and
// number of threads, and where `--device here` looks for it.
std::filesystem::path HereDeviceFile(Isa isa, int threads);

// This machine as a device of the cost model, for the threads that the flags grant: as nibble
// calibrate measured it, or, where it has not, its bandwidth and peaks measured now, which takes
// about a second and is said on standard error unless --quiet. Errors: the file is broken or of
// another machine.
Result<DeviceShape> HereDevice(const GlobalFlags& flags);
// The same without measuring: an error where there is no device file.
Result<DeviceShape> CalibratedHere(const GlobalFlags& flags);

// Measures this machine and writes the device file (empty: HereDeviceFile).
struct CalibrateHere {
  bool quick = false;
  std::filesystem::path out = {};
};
struct CalibratedFile {
  Calibration calibration;
  std::filesystem::path path;
};
Result<CalibratedFile> RunCalibration(const GlobalFlags& flags, const CalibrateHere& what);

// Threads as the flags grant them. Error: the system gives no more.
Result<std::unique_ptr<ThreadPool>> MakeThreads(const GlobalFlags& flags);

}  // namespace nibble::cli
