#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cost/calibration.h"

namespace nibble {
namespace {

using OutJson = nlohmann::ordered_json;

constexpr std::string_view kMark = "nibble_calibration";
constexpr double kMostNumber = 1e18;
constexpr size_t kMostItems = 4096;

std::string_view ActName(bool integer) { return integer ? "int8" : "f32"; }

// Reads members of one object; keeps the first error.
class MemberReader {
 public:
  explicit MemberReader(JsonValue root) : root_(root) {}

  void Number(std::string_view key, double& out, double least = 0, double most = kMostNumber) {
    if (!status_) return;
    const auto value = root_.GetDouble(key);
    if (!value) return Keep(value.error());
    if (!(*value >= least && *value <= most)) {
      status_ =
          BadInput("'{}': expected a number from {} to {}, found {}", key, least, most, *value);
      return;
    }
    out = *value;
  }
  template <class T>
  void Count(std::string_view key, T& out, int64_t least, int64_t most) {
    if (!status_) return;
    const auto value = root_.GetInt(key);
    if (!value) return Keep(value.error());
    if (*value < least || *value > most) {
      status_ = BadInput("'{}': expected a whole number from {} to {}, found {}", key, least, most,
                         *value);
      return;
    }
    out = static_cast<T>(*value);
  }
  void Text(std::string_view key, std::string& out) {
    if (!status_) return;
    const auto value = root_.GetString(key);
    if (!value) return Keep(value.error());
    out = *value;
  }
  // A name that `parse` knows.
  template <class T, class Parse>
  void Named(std::string_view key, T& out, Parse parse) {
    std::string name;
    Text(key, name);
    if (!status_) return;
    const std::optional<T> value = parse(name);
    if (value) {
      out = *value;
    } else {
      status_ = BadInput("'{}': '{}' is not known to this version", key, name.substr(0, 64));
    }
  }
  void Flag(std::string_view key, bool& out) {
    if (!status_) return;
    const auto value = root_.GetBool(key);
    if (!value) return Keep(value.error());
    out = *value;
  }
  template <class T, class Read>
  void List(std::string_view key, std::vector<T>& out, Read read) {
    if (!status_) return;
    const auto value = root_.Get(key);
    if (!value) return Keep(value.error());
    const auto array = value->AsArray();
    if (!array) return Keep(Within(fmt::format("'{}'", key), array.error()).error());
    if (array->size() > kMostItems) {
      status_ =
          BadInput("'{}': expected at most {} entries, found {}", key, kMostItems, array->size());
      return;
    }
    for (const JsonValue one : *array) {
      MemberReader member(one);
      T item;
      read(member, item);
      if (!member.status_) {
        const auto place = fmt::format("'{}' entry {}", key, out.size());
        return Keep(Within(place, member.status_.error()).error());
      }
      out.push_back(std::move(item));
    }
  }
  void Require(bool ok, std::string_view key, std::string_view expected) {
    if (status_ && !ok) status_ = BadInput("'{}': expected {}", key, expected);
  }
  Status Take() { return std::move(status_); }

 private:
  void Keep(Error error) { status_ = std::unexpected(std::move(error)); }

  JsonValue root_;
  Status status_;
};

std::optional<bool> IntegerFromName(std::string_view name) {
  if (name == "int8") return true;
  if (name == "f32") return false;
  return std::nullopt;
}

template <class Items, class Axis>
bool Ascends(const Items& items, Axis axis) {
  return std::ranges::adjacent_find(items, [&](const auto& a, const auto& b) {
           return axis(a) >= axis(b);
         }) == items.end();
}

void ReadKernel(MemberReader& in, KernelRates& out) {
  in.Named("format", out.format, [](std::string_view name) { return FormatFromName(name); });
  in.Named("act", out.integer, IntegerFromName);
  in.Named("isa", out.isa, IsaFromName);
  in.Number("gemv_bandwidth", out.gemv_bandwidth, 1);
  in.Number("gemm_macs", out.gemm_macs, 1);
  in.Number("unpack_s_per_weight", out.unpack_s_per_weight, -1, 1);
  in.Number("row_s_per_weight", out.row_s_per_weight, -1, 1);
  in.Number("overlap_p", out.overlap_p, kLeastOverlap, kMostOverlap);
  in.Number("spread", out.spread);
  in.List("rows", out.rows, [](MemberReader& member, RowRate& row) {
    member.Count("rows", row.rows, 1, 1 << 20);
    member.Number("cpu_s", row.cpu_s, 1e-18, 1);
    member.Number("overlap_p", row.overlap, kLeastOverlap, kMostOverlap);
  });
  in.Require(!out.rows.empty() && Ascends(out.rows, [](const RowRate& r) { return r.rows; }),
             "rows", "one entry at least, ascending by rows");
}

void ReadAttention(MemberReader& in, AttentionRates& out) {
  in.Named("kv", out.kv, [](std::string_view name) { return KvFormatFromName(name); });
  in.Named("act", out.integer, IntegerFromName);
  in.Count("head_dim", out.head_dim, 1, 1 << 16);
  in.Count("group", out.group, 1, 8);
  in.Number("page_s", out.page_s, 1e-12, 1);
  in.Number("unit_s", out.unit_s, 0, 1);
  in.Number("overlap_p", out.overlap_p, kLeastOverlap, kMostOverlap);
  in.Number("spread", out.spread);
}

void ReadOverheads(MemberReader& in, StepOverheads& out) {
  in.Number("step_overhead_s", out.step_s, 0, 1);
  in.Number("layer_overhead_s", out.layer_s, 0, 1);
  in.Number("row_value_s", out.row_value_s, 0, 1);
  in.Number("place_value_s", out.place_value_s, 0, 1);
  in.Number("gate_value_s", out.gate_value_s, 0, 1);
  in.Number("logit_value_s", out.logit_value_s, 0, 1);
  in.Number("overhead_spread", out.spread);
}

OutJson KernelJson(const KernelRates& kernel) {
  OutJson rows = OutJson::array();
  for (const RowRate& row : kernel.rows) {
    rows.push_back({{"rows", row.rows}, {"cpu_s", row.cpu_s}, {"overlap_p", row.overlap}});
  }
  return {{"format", TraitsOf(kernel.format).name},
          {"act", ActName(kernel.integer)},
          {"isa", IsaName(kernel.isa)},
          {"gemv_bandwidth", kernel.gemv_bandwidth},
          {"gemm_macs", kernel.gemm_macs},
          {"unpack_s_per_weight", kernel.unpack_s_per_weight},
          {"row_s_per_weight", kernel.row_s_per_weight},
          {"overlap_p", kernel.overlap_p},
          {"spread", kernel.spread},
          {"rows", rows}};
}

OutJson AttentionJson(const AttentionRates& one) {
  return {{"kv", TraitsOf(one.kv).name}, {"act", ActName(one.integer)}, {"head_dim", one.head_dim},
          {"group", one.group},          {"page_s", one.page_s},        {"unit_s", one.unit_s},
          {"overlap_p", one.overlap_p},  {"spread", one.spread}};
}

// What a plan without calibrated terms takes (docs/plan.md).
void AddShape(const Calibration& c, OutJson& out) {
  const std::string measured = "measured by nibble calibrate: the median of repeated rounds of ";
  out["description"] =
      fmt::format("{}; {} threads, {}", c.machine.processor, c.threads, IsaName(c.isa));
  out["memory_bytes"] = c.memory_bytes;
  out["bandwidth"] = c.read_bandwidth;
  out["bf16_flops"] = 2 * c.f32_macs;
  out["int8_flops"] = 2 * c.int8_macs;
  out["overhead_s"] = c.overheads.step_s;
  out["sources"] = {{"memory_bytes", "what the process may use: the machine or its cgroup"},
                    {"bandwidth", measured + "reading memory"},
                    {"bf16_flops", measured + "f32 multiply-adds, which floats compute in"},
                    {"int8_flops", measured + "8-bit integer multiply-adds"},
                    {"overhead_s", "fitted by nibble calibrate to steps of small models"}};
}

}  // namespace

bool HasCalibration(JsonValue root) { return root.is_object() && root.Find(kMark).has_value(); }

Result<Calibration> ReadCalibration(JsonValue root) {
  if (!root.is_object()) {
    return BadInput("expected an object, found {}", JsonKindName(root.kind()));
  }
  NIBBLE_TRY(const int64_t version, root.GetInt(kMark));
  if (version != Calibration::kVersion) {
    return BadInput("'{}': expected version {}, found {}; run nibble calibrate", kMark,
                    Calibration::kVersion, version);
  }
  Calibration out;
  MemberReader in(root);
  in.Text("processor", out.machine.processor);
  in.Count("processors", out.machine.processors, 1, 1 << 20);
  in.Count("last_level_cache", out.machine.last_level_cache, 0, int64_t{1} << 50);
  in.Named("isa", out.isa, IsaFromName);
  in.Count("threads", out.threads, 1, 1 << 20);
  in.Flag("quick", out.quick);
  in.Number("seconds", out.seconds);
  in.Number("memory_bytes", out.memory_bytes, 1);
  in.Number("read_bandwidth", out.read_bandwidth, 1);
  in.Number("read_spread", out.read_spread);
  in.Number("int4_macs", out.int4_macs, 1);
  in.Number("int8_macs", out.int8_macs, 1);
  in.Number("f32_macs", out.f32_macs, 1);
  in.List("thread_bandwidth", out.thread_bandwidth, [](MemberReader& m, ThreadBandwidth& one) {
    m.Count("threads", one.threads, 1, 1 << 20);
    m.Number("bandwidth", one.bandwidth, 1);
  });
  in.List("cache_bandwidth", out.cache_bandwidth, [](MemberReader& m, BandwidthPoint& one) {
    m.Number("bytes", one.bytes, 1);
    m.Number("bandwidth", one.bandwidth, 1);
  });
  in.Require(Ascends(out.cache_bandwidth, [](const BandwidthPoint& p) { return p.bytes; }),
             "cache_bandwidth", "entries that ascend by bytes");
  in.List("kernels", out.kernels, ReadKernel);
  in.List("attention", out.attention, ReadAttention);
  in.Number("barrier_s", out.barrier_s, 0, 1);
  in.Number("region_s", out.region_s, 0, 1);
  ReadOverheads(in, out.overheads);
  NIBBLE_RETURN_IF_ERROR(in.Take());
  return out;
}

std::string CalibrationJson(const Calibration& c) {
  OutJson out = {{kMark, Calibration::kVersion}, {"name", "here"}};
  out["processor"] = c.machine.processor;
  out["processors"] = c.machine.processors;
  out["last_level_cache"] = c.machine.last_level_cache;
  out["isa"] = IsaName(c.isa);
  out["threads"] = c.threads;
  out["quick"] = c.quick;
  out["seconds"] = c.seconds;
  AddShape(c, out);
  out["read_bandwidth"] = c.read_bandwidth;
  out["read_spread"] = c.read_spread;
  out["int4_macs"] = c.int4_macs;
  out["int8_macs"] = c.int8_macs;
  out["f32_macs"] = c.f32_macs;
  out["thread_bandwidth"] = OutJson::array();
  for (const ThreadBandwidth& one : c.thread_bandwidth) {
    out["thread_bandwidth"].push_back({{"threads", one.threads}, {"bandwidth", one.bandwidth}});
  }
  out["cache_bandwidth"] = OutJson::array();
  for (const BandwidthPoint& one : c.cache_bandwidth) {
    out["cache_bandwidth"].push_back({{"bytes", one.bytes}, {"bandwidth", one.bandwidth}});
  }
  out["barrier_s"] = c.barrier_s;
  out["region_s"] = c.region_s;
  out["step_overhead_s"] = c.overheads.step_s;
  out["layer_overhead_s"] = c.overheads.layer_s;
  out["row_value_s"] = c.overheads.row_value_s;
  out["place_value_s"] = c.overheads.place_value_s;
  out["gate_value_s"] = c.overheads.gate_value_s;
  out["logit_value_s"] = c.overheads.logit_value_s;
  out["overhead_spread"] = c.overheads.spread;
  out["kernels"] = OutJson::array();
  for (const KernelRates& one : c.kernels) out["kernels"].push_back(KernelJson(one));
  out["attention"] = OutJson::array();
  for (const AttentionRates& one : c.attention) out["attention"].push_back(AttentionJson(one));
  return out.dump(1) + "\n";
}

}  // namespace nibble
