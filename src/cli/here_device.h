#pragma once

#include "base/result.h"
#include "cli/globals.h"
#include "cost/device_shape.h"

namespace nibble::cli {

// This machine as a device of the cost model, measured now with the threads that the flags grant:
// about a second. Says so on standard error unless --quiet.
Result<DeviceShape> MeasureHere(const GlobalFlags& flags);

}  // namespace nibble::cli
