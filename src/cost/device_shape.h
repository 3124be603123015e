#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "cost/units.h"

namespace nibble {

struct Calibration;

enum class Arithmetic : uint8_t { kBf16, kFp8, kInt8 };

// What the cost model needs to know of a device: files of data/devices/, SPEC.json, or measured.
struct DeviceShape {
  std::string name;
  std::string description;
  Bytes memory;
  BytesPerSecond bandwidth;         // of its data sheet
  double bandwidth_efficiency = 1;  // β is the product
  FlopsPerSecond bf16;              // φ: 16-bit weights, dense
  FlopsPerSecond fp8;               // 0: none of its own, computes as bf16
  FlopsPerSecond int8;              // 0: likewise
  Seconds overhead;                 // t0 of a step
  BytesPerSecond link;              // to other devices of its kind, one direction; 0: unknown
  Seconds link_latency;             // of one all-reduce

  struct Source {
    std::string field;
    std::string text;
  };
  std::vector<Source> sources = {};  // where each number is from
  std::string origin = {};           // "table", "a file", "measured now"
  // Of a machine that nibble calibrate measured: true bytes are then priced term by term.
  std::shared_ptr<const Calibration> calibration = {};

  BytesPerSecond Bandwidth() const { return bandwidth * bandwidth_efficiency; }
  FlopsPerSecond Peak(Arithmetic arithmetic) const {
    const FlopsPerSecond own = arithmetic == Arithmetic::kFp8    ? fp8
                               : arithmetic == Arithmetic::kInt8 ? int8
                                                                 : bf16;
    return own.value > 0 ? own : bf16;
  }
};

// A name of data/devices/. Errors offer the nearest names.
Result<DeviceShape> DeviceShapeByName(std::string_view name);
std::vector<std::string_view> DeviceShapeNames();

// The keys of data/devices/*.json (docs/plan.md). Errors name the key.
Result<DeviceShape> ReadDeviceShape(JsonValue root);

}  // namespace nibble
