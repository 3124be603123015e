#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "cost/units.h"
#include "format/format.h"
#include "format/kv_format.h"
#include "platform/cpu.h"
#include "platform/machine.h"

namespace nibble {

// A matrix product of so many rows of activations, per weight of the matrix, with all threads.
struct RowRate {
  int rows = 0;
  double cpu_s = 0;    // seconds per weight from a near cache: unpacking and multiplying
  double overlap = 0;  // p of (t_mem^p + t_cpu^p)^(1/p), from a matrix in memory; 0: not measured
};

struct KernelRates {
  Format format = Format::kF32;
  bool integer = false;  // int8 activations; else f32
  Isa isa = Isa::kScalar;
  double gemv_bandwidth = 0;  // bytes/s of one row from memory
  double gemm_macs = 0;       // multiply-adds/s of many rows from cache
  // Least squares of cpu_s over rows: unpack + row · rows.
  double unpack_s_per_weight = 0;
  double row_s_per_weight = 0;
  double overlap_p = 0;       // the median of those below
  std::vector<RowRate> rows;  // ascending
  double spread = 0;          // of repeated measurements: (upper − lower quartile) / median

  // At a number of rows between those measured: linear; beyond the last: proportional.
  RowRate At(double rows) const;
};

// Attention over pages of one format, per page and KV head, on one thread while all are at work.
struct AttentionRates {
  KvFormat kv = KvFormat::kF16;
  bool integer = false;
  int head_dim = 0;
  int group = 0;      // query rows that share a page: heads of a group, or 8 of a chunk
  double page_s = 0;  // one page for these rows, from a near cache
  double unit_s = 0;  // beside its pages: gathering the query, finishing
  double overlap_p = 0;
  double spread = 0;
};

struct BandwidthPoint {
  double bytes = 0;  // working set of all threads together
  double bandwidth = 0;
};
struct ThreadBandwidth {
  int threads = 0;
  double bandwidth = 0;
};

// What of a step is neither matrix product nor attention. Those per value are of one thread.
struct StepOverheads {
  double step_s = 0;         // per step
  double layer_s = 0;        // per layer: its parallel regions and their barriers
  double row_value_s = 0;    // per number of a row that is normed and quantised for a product
  double place_value_s = 0;  // per number of queries, keys and values: rotation, writing of pages
  double gate_value_s = 0;   // per number of the feed-forward's width: gate, quantising
  double logit_value_s = 0;  // per row with logits and token of the vocabulary
  double spread = 0;         // median of |residual| / time of the fitted steps
};

// A machine as `nibble calibrate` measured it: the part of a device file that predictions of steps
// are made from (docs/cost-model.md).
struct Calibration {
  static constexpr int kVersion = 1;

  Machine machine;
  Isa isa = Isa::kScalar;
  int threads = 1;
  bool quick = false;
  double seconds = 0;  // that measuring took
  double memory_bytes = 0;
  double read_bandwidth = 0;  // over at least four times the last-level cache
  double read_spread = 0;
  double int4_macs = 0;
  double int8_macs = 0;
  double f32_macs = 0;
  std::vector<ThreadBandwidth> thread_bandwidth;  // from memory, by threads
  std::vector<BandwidthPoint> cache_bandwidth;    // by working set, ascending
  std::vector<KernelRates> kernels;
  std::vector<AttentionRates> attention;
  double barrier_s = 0;
  double region_s = 0;
  StepOverheads overheads;

  // β of a working set: linear between the curve's points over the logarithm of the bytes.
  double BandwidthOf(double bytes) const;
  // β of the near cache that cpu times were measured from: they include reading at that rate.
  double NearBandwidth() const;
  // Seconds of work that takes `cpu` from a near cache, when it reads `bytes` at `bandwidth`: what
  // reading takes beyond the near cache's rate overlaps with cpu; and nothing is faster than β.
  double WorkSeconds(double bytes, double bandwidth, double cpu, double overlap) const;
  // The same machine while memory is read `read` times as fast, and all else done `cpu` times as
  // fast, as when it was calibrated.
  Calibration Scaled(double read, double cpu) const;
  // Null: not calibrated. The kernel of the calibration's own instruction set.
  const KernelRates* KernelOf(Format format, bool integer) const;
  // Between measured head sizes and groups: linear. Error: the format was not calibrated.
  Result<AttentionRates> AttentionOf(KvFormat kv, bool integer, int head_dim, double group) const;
};

// p for which (memory^p + cpu^p)^(1/p) is `both`, from kLeastOverlap (more than one after the
// other) to kMostOverlap (the larger alone).
inline constexpr double kLeastOverlap = 0.7;
inline constexpr double kMostOverlap = 16;
double OverlapOf(double memory, double cpu, double both);
double Overlapped(double memory, double cpu, double p);

// The members of a device file (cli.md's keys). Errors name the key.
Result<Calibration> ReadCalibration(JsonValue root);
// Whether a device file holds one.
bool HasCalibration(JsonValue root);
// The whole device file.
std::string CalibrationJson(const Calibration& calibration);

// Error: the calibration is of another machine; says both and what to run.
Status CheckMachine(const Calibration& calibration, const Machine& machine);

}  // namespace nibble
