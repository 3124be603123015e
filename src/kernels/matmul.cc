#include "kernels/matmul.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/activations_layout.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_kernels.h"
#include "kernels/outliers.h"
#include "kernels/panel_layout.h"
#include "kernels/work_shares.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Runs of consecutive rows within one tile.
std::vector<TokenRun> AllRows(int rows) {
  std::vector<TokenRun> runs;
  for (int row = 0; row < rows; row += kTokenTile) {
    runs.push_back({row / kTokenTile, 0, std::min(kTokenTile, rows - row), row});
  }
  return runs;
}

std::vector<TokenRun> ListedRows(std::span<const int> rows, int count) {
  std::vector<TokenRun> runs;
  for (size_t i = 0; i < rows.size(); ++i) {
    NIBBLE_CHECK(rows[i] >= 0 && rows[i] < count);
    const int tile = rows[i] / kTokenTile;
    const int index = rows[i] % kTokenTile;
    if (!runs.empty() && runs.back().tile == tile &&
        runs.back().first + runs.back().count == index) {
      ++runs.back().count;
    } else {
      runs.push_back({tile, index, 1, static_cast<int>(i)});
    }
  }
  return runs;
}

// Units of work of all tasks in one row: unit u of a task is panels [u · step, (u + 1) · step).
struct WorkItem {
  MatmulJob job;
  PanelFn fn;
  int panels;
  int step;
  int first_unit;
  int units() const { return CeilDiv(panels, step); }
};

// A unit is small, so that shares balance: a thread's units follow each other in memory anyway (64
// KiB left SmolLM2's output matrices two units for one thread and one for the other). Many tokens:
// two panels, which share an unpacked tile on AVX-512.
constexpr int kManyTokens = 8;
constexpr size_t kUnitBytes = size_t{8} << 10;

int StepOf(const MatmulJob& job, int tokens) {
  if (tokens > kManyTokens) return 2;
  return static_cast<int>(std::max<size_t>(1, kUnitBytes / job.panel_bytes));
}

void RunUnit(const std::vector<WorkItem>& items, int unit) {
  for (const WorkItem& item : items) {
    if (unit >= item.first_unit + item.units()) continue;
    const int begin = (unit - item.first_unit) * item.step;
    item.fn(item.job, begin, std::min(begin + item.step, item.panels));
    return;
  }
}

// Zen's own prefetcher follows the one stream of the weights: with one token it wants only a few
// requests that lead it, unless codes whose bits lie apart, or FP8, make a line last long. Measured
// on Zen 4, two threads, GB/s (sparse, twice) where memory gives 37: AVX2 with one token Q5_0 23,
// 33, Q5_K 24, 32, Q6_K 26, 30, Q4_1 37, 33; AVX-512 VNNI Q5_0 31, 33, Q5_1 35, 32. With more
// tokens twice is best for all: Q4_0 with four 19, 32; every line at one distance, 31, was never
// better.
Prefetch PrefetchFor(const PanelLayout& layout, int tokens) {
  static const bool kAmd = CpuVendorIsAmd();
  const bool fp8 = layout.planes == CodePlanes::kFloat && layout.chunk_bytes == 16;
  const bool light =
      layout.planes != CodePlanes::kNibbleCrumb && layout.planes != CodePlanes::kNibbleBit && !fp8;
  return kAmd && light && tokens == 1 ? Prefetch::kSparse : Prefetch::kTwice;
}

MatmulJob MakeJob(const MatmulTask& task, Act act, const ActivationBlock& x,
                  std::span<const TokenRun> runs) {
  const PackedMatrix& w = *task.weights;
  const PanelLayout layout = PanelLayoutOf(w.format());
  const MatrixView<const float> floats = x.floats();
  NIBBLE_CHECK(w.cols() == floats.cols);
  MatmulJob job{};
  job.weights = reinterpret_cast<const uint8_t*>(w.bytes().data());
  job.format = w.format();
  job.rows = w.rows();
  job.cols = w.cols();
  job.panel_bytes =
      static_cast<size_t>(w.cols() / layout.block) * static_cast<size_t>(layout.chunk_bytes);
  job.y = task.y.data;
  job.y_stride = task.y.stride;
  job.row_scale = w.row_scales();
  job.block_scale = w.block_scales();
  job.block_depth = w.block_depth();
  job.bias = task.bias;
  job.accumulate = task.accumulate;
  const ActNeeds needs = w.Needs(act);
  if (!needs.f32) job.q = ActivationAccess::Rows(x, needs.group32 ? 32 : 256);
  job.x = floats.data;
  job.x_stride = floats.stride;
  job.runs = runs.data();
  job.run_count = static_cast<int>(runs.size());
  job.prefetch = PrefetchFor(layout, runs.back().y_row + runs.back().count);
  return job;
}

void Multiply(const KernelTable& kernels, ThreadPool& pool, Act act, const ActivationBlock& x,
              std::span<const MatmulTask> tasks, const std::vector<TokenRun>& runs) {
  const int tokens = runs.back().y_row + runs.back().count;

  std::vector<WorkItem> items;
  items.reserve(tasks.size());
  int units = 0;
  for (const MatmulTask& task : tasks) {
    if (task.weights->empty()) continue;
    NIBBLE_CHECK(task.y.rows >= tokens && task.y.cols == task.weights->rows());
    WorkItem item{};
    item.job = MakeJob(task, act, x, runs);
    const auto format = static_cast<size_t>(item.job.format);
    item.fn =
        task.weights->Needs(act).f32 ? kernels.matmul->f32[format] : kernels.matmul->int8[format];
    item.panels = CeilDiv(item.job.rows, kPanelRows);
    item.step = StepOf(item.job, tokens);
    item.first_unit = units;
    units += item.units();
    items.push_back(item);
  }
  if (pool.size() == 1 || units == 1) {
    for (int unit = 0; unit < units; ++unit) RunUnit(items, unit);
    return;
  }
  WorkShares shares(units, pool.size());
  pool.Run([&](int thread) {
    for (int unit = shares.Take(thread); unit >= 0; unit = shares.Take(thread)) {
      RunUnit(items, unit);
    }
  });
}

}  // namespace

void Matmul(const KernelTable& kernels, ThreadPool& pool, Act act, const ActivationBlock& x,
            std::span<const MatmulTask> tasks, std::optional<std::span<const int>> token_rows) {
  const std::vector<TokenRun> runs =
      token_rows ? ListedRows(*token_rows, x.floats().rows) : AllRows(x.floats().rows);
  if (runs.empty()) return;
  Multiply(kernels, pool, act, x, tasks, runs);
  for (const MatmulTask& task : tasks) AddOutliers(pool, x, task, token_rows);
}

}  // namespace nibble
