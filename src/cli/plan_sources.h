#pragma once

#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "cost/device_shape.h"
#include "cost/model_shape.h"
#include "cost/plan.h"

namespace nibble::cli {

// A name of the table, else SPEC.json, else a model on disk by path or name.
Result<ModelShape> FindShape(const GlobalFlags& flags, const std::string& name);

// A name of the table, SPEC.json, or "here".
Result<DeviceShape> FindDevice(const GlobalFlags& flags, const std::string& name);

// Both, with labels that name flags. The flags outlive it.
PlanSources FlagSources(const GlobalFlags& flags);

// --kv with the sides that --kv-k and --kv-v set: "int8" and --kv-v kivi2 as "int8/kivi2".
std::string PlanKvList(const GlobalFlags& flags);

}  // namespace nibble::cli
