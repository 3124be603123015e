#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "advise/state_loop.h"
#include "base/result.h"
#include "cost/calibration.h"
#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "platform/bandwidth.h"
#include "platform/memory.h"

namespace nibble {

class MeterBench;
class ThreadPool;

// Rows of a format for the products that are timed.
std::vector<std::byte> RandomBlocks(Format format, size_t bytes);
// Normally distributed numbers, the same for the same seed.
std::vector<float> RandomFloats(size_t count, unsigned seed);

// Repeated measurements of one time.
class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  void Add(const Samples& more) {
    values_.insert(values_.end(), more.values_.begin(), more.values_.end());
  }
  bool empty() const { return values_.empty(); }
  double typical() const;  // the median
  double spread() const;   // (upper − lower quartile) / median

 private:
  std::vector<double> values_;
};

// How fast the machine was at a moment.
struct MachineState {
  double read = 0;   // bytes/s of the probe
  double cpu_s = 0;  // of StateLoop
};

// Times with the state in which each was measured: where others use the machine, memory or
// processors are fast or slow for seconds on end.
class StateSamples {
 public:
  // Times of what stays in a near cache: as they would be in the usual state of the processors.
  Samples NearAt(const MachineState& usual) const;
  // Times of what reads memory: those measured in nearly the usual state, of all where none was.
  Samples FarAt(const MachineState& usual) const;
  bool empty() const { return entries_.empty(); }
  void Add(double seconds, const MachineState& before, const MachineState& after);

 private:
  struct Entry {
    double seconds = 0;
    MachineState state;  // the mean of before and after
  };
  std::vector<Entry> entries_;
};

// What all meters share: threads, a buffer larger than the caches, and a probe of memory, because
// the machine's rates change while others use it: what is read from memory is compared with the
// probe's rate of the same moment.
class MeterBench {
 public:
  static Result<MeterBench> Create(ThreadPool& pool, Isa isa, bool quick);

  ThreadPool& pool() const { return *pool_; }
  const KernelTable& kernels() const { return *kernels_; }
  bool quick() const { return quick_; }
  double region_s() const { return region_s_; }
  ReadProbe& probe() { return probe_; }
  // The processors now, and with `read` memory too; remembers all.
  MachineState State(bool read);
  // The median of what State has seen.
  MachineState UsualState() const;
  std::span<std::byte> arena() { return arena_.as<std::byte>(); }

  // Seconds of one call of `work` times `scale`, in rounds of about `round_s`, less `overhead_s` a
  // call (a parallel region's own).
  template <class Work>
  void Time(StateSamples& out, int rounds, double scale, double overhead_s, Work&& work) {
    constexpr double kRound = 4e-4;
    int calls = 1;
    while (Clocked(calls, work) < kRound / 2) calls *= 2;  // warms up as well
    MachineState before = State(false);
    for (int i = 0; i < rounds; ++i) {
      const double seconds = std::max(Clocked(calls, work) / calls - overhead_s, 1e-9);
      const MachineState after = State(false);
      out.Add(seconds * scale, before, after);
      before = after;
    }
  }
  // Work that reads memory, which goes on for some milliseconds a round.
  template <class Work>
  void TimeFar(StateSamples& out, int rounds, double scale, Work&& work) {
    constexpr double kRound = 6e-3;
    MachineState before = State(true);
    for (int i = 0; i < rounds; ++i) {
      int calls = 0;
      const double started = Now();
      double seconds = 0;
      do {
        work();
        ++calls;
        seconds = Now() - started;
      } while (seconds < kRound);
      const MachineState after = State(true);
      out.Add(std::max(seconds / calls - region_s_, 1e-9) * scale, before, after);
      before = after;
    }
  }

 private:
  MeterBench(ThreadPool& pool, Isa isa, bool quick, ReadProbe probe, StateLoop loop);
  template <class Work>
  static double Clocked(int calls, Work& work) {
    const double started = Now();
    for (int i = 0; i < calls; ++i) work();
    return Now() - started;
  }
  static double Now();

  ThreadPool* pool_;
  const KernelTable* kernels_;
  bool quick_;
  double region_s_ = 0;
  ReadProbe probe_;
  StateLoop loop_;
  std::vector<double> reads_;
  std::vector<double> cpu_s_;
  AlignedBuffer arena_;
};

// A matrix that fits a near cache, and copies of it that fill the arena.
class MeterMatrix {
 public:
  MeterMatrix(Format format, MeterBench& bench);
  double weights() const;
  int rows() const { return rows_; }
  const PackedMatrix& first() const { return copies_[0]; }
  const PackedMatrix& Next() {
    next_ = (next_ + 1) % copies_.size();
    return copies_[next_];
  }

 private:
  int rows_ = 0;
  std::vector<PackedMatrix> copies_;
  size_t next_ = 0;
};

// One format's products.
class MatmulMeter {
 public:
  MatmulMeter(Format format, bool integer, Isa isa) : isa_(isa) {
    rates_.format = format;
    rates_.integer = integer;
    rates_.isa = isa;
  }
  // One round: all rows from a near cache and from memory. `near_only`: beside the usual
  // instruction set one row from memory is enough.
  Status Measure(MeterBench& bench, MeterMatrix& matrix, bool near_only);
  KernelRates Rates(const Calibration& calibration, const MachineState& usual) const;

 private:
  struct Point {
    int rows = 0;
    StateSamples near;  // seconds per weight
    StateSamples far;   // likewise, from memory
  };
  Point& PointOf(int rows);

  Isa isa_;
  KernelRates rates_;
  std::vector<Point> points_;
};

// Attention of one format of pages, head size and arithmetic, for all groups.
class AttentionMeter {
 public:
  AttentionMeter(KvFormat kv, bool integer, int head_dim);
  Status Measure(MeterBench& bench);
  // open: rates of the form that pages are written in, same head size, by group; empty where that
  // is this format.
  std::vector<AttentionRates> Rates(const Calibration& calibration, const MachineState& usual,
                                    std::span<const AttentionRates> open) const;
  KvFormat kv() const { return kv_; }
  int head_dim() const { return head_dim_; }

 private:
  struct Point {
    int group = 0;
    StateSamples near_short;  // seconds of one query's pages on one thread
    StateSamples near_long;
    StateSamples far;  // seconds of all queries
    double far_bytes = 0;
    double queries = 0;
    double threads = 1;
  };
  KvFormat kv_;
  bool integer_;
  int head_dim_;
  std::vector<Point> points_;
};

}  // namespace nibble
