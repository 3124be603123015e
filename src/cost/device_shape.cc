#include "cost/device_shape.h"

#include <algorithm>

#include "base/check.h"
#include "cost/calibration.h"
#include "cost/nearest.h"

namespace nibble {

extern const std::string_view kDeviceFiles;  // all of data/devices/ as one JSON array

namespace {

struct DeviceTable {
  std::vector<DeviceShape> devices;
  std::vector<std::string_view> names;
};

DeviceTable ReadTable() {
  DeviceTable table;
  const auto document = JsonDocument::Parse(std::string(kDeviceFiles));
  NIBBLE_CHECK(document);
  const auto list = document->root().AsArray();
  NIBBLE_CHECK(list);
  for (const JsonValue one : *list) {
    auto device = ReadDeviceShape(one);
    NIBBLE_CHECK(device);
    device->origin = "table";
    table.devices.push_back(*std::move(device));
  }
  for (const DeviceShape& device : table.devices) table.names.push_back(device.name);
  return table;
}

const DeviceTable& Table() {
  static const DeviceTable table = ReadTable();
  return table;
}

// A number from `least` to 1e18; where there is a fallback, also that.
Result<double> Number(JsonValue root, std::string_view key, double least,
                      std::optional<double> fallback = {}) {
  constexpr double kMost = 1e18;
  const auto value = root.Find(key);
  if (!value || value->is_null()) {
    if (fallback) return *fallback;
    return BadInput("'{}' is missing: expected a number from {} to {}", key, least, kMost);
  }
  const auto number = value->AsDouble();
  if (!number) return Within(fmt::format("'{}'", key), number.error());
  if ((*number >= least && *number <= kMost) || (fallback && *number == *fallback)) return *number;
  return BadInput("'{}': expected a number from {} to {}, found {}", key, least, kMost, *number);
}

Status ReadSources(JsonValue root, DeviceShape& device) {
  const auto sources = root.Find("sources");
  if (!sources || sources->is_null()) return {};
  const auto object = sources->AsObject();
  if (!object) return Within("'sources'", object.error());
  for (const auto& [key, value] : *object) {
    const auto text = value.AsString();
    if (!text) return Within(fmt::format("'sources': '{}'", key), text.error());
    device.sources.push_back({std::string(key), std::string(*text)});
  }
  return {};
}

}  // namespace

std::vector<std::string_view> DeviceShapeNames() { return Table().names; }

Result<DeviceShape> DeviceShapeByName(std::string_view name) {
  const auto found = std::ranges::find(Table().devices, name, &DeviceShape::name);
  if (found != Table().devices.end()) return *found;
  return BadInput("there is no device '{}'; the nearest names are {}", name.substr(0, 64),
                  NearestNames(name, Table().names));
}

Result<DeviceShape> ReadDeviceShape(JsonValue root) {
  if (!root.is_object()) {
    return BadInput("expected an object, found {}", JsonKindName(root.kind()));
  }
  DeviceShape device;
  const auto quantity = [&](auto& out, std::string_view key, double least,
                            std::optional<double> fallback = {}) -> Status {
    NIBBLE_TRY(out.value, Number(root, key, least, fallback));
    return {};
  };
  NIBBLE_TRY(const std::string_view name, root.GetString("name"));
  NIBBLE_TRY(const std::string_view description, root.GetStringOr("description", ""));
  device.name = name;
  device.description = description;
  NIBBLE_RETURN_IF_ERROR(quantity(device.memory, "memory_bytes", 1));
  NIBBLE_RETURN_IF_ERROR(quantity(device.bandwidth, "bandwidth", 1));
  NIBBLE_TRY(device.bandwidth_efficiency, Number(root, "bandwidth_efficiency", 1e-6, 1));
  if (device.bandwidth_efficiency > 1) {
    return BadInput("'bandwidth_efficiency': expected a number of at most 1, found {}",
                    device.bandwidth_efficiency);
  }
  NIBBLE_RETURN_IF_ERROR(quantity(device.bf16, "bf16_flops", 1));
  NIBBLE_RETURN_IF_ERROR(quantity(device.fp8, "fp8_flops", 1, 0));
  NIBBLE_RETURN_IF_ERROR(quantity(device.int8, "int8_flops", 1, 0));
  NIBBLE_RETURN_IF_ERROR(quantity(device.overhead, "overhead_s", 0, 0));
  NIBBLE_RETURN_IF_ERROR(quantity(device.link, "link_bandwidth", 1, 0));
  NIBBLE_RETURN_IF_ERROR(quantity(device.link_latency, "link_latency_s", 0, 0));
  NIBBLE_RETURN_IF_ERROR(ReadSources(root, device));
  if (HasCalibration(root)) {
    NIBBLE_TRY(Calibration calibration, ReadCalibration(root));
    device.calibration = std::make_shared<const Calibration>(std::move(calibration));
  }
  return device;
}

}  // namespace nibble
