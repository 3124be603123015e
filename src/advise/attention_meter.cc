#include <algorithm>
#include <cmath>
#include <cstring>

#include "advise/calibration_cases.h"
#include "advise/rate_meters.h"
#include "base/math.h"
#include "kernels/attention_kernels.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using calibration_cases::kFarContext;
using calibration_cases::kLongContext;
using calibration_cases::kShortContext;

constexpr int kQueriesPerThread = 8;  // enough that threads take whole queries

// Queries of one KV head over pages that fill the arena: all over the same few pages, or each over
// its own, from call to call others.
class PageLoop {
 public:
  PageLoop(MeterBench& bench, KvFormat kv, int head_dim)
      : bench_(bench), sealed_{.k = kv, .v = kv, .kv_heads = 1, .head_dim = head_dim} {
    open_ = OpenLayout(sealed_);
    unit_pages_ = UnitPages(sealed_);
    stride_ = RoundUp(two_forms() ? sealed_.PieceBytes() : open_.PieceBytes(), size_t{64});
    slots_ = static_cast<int>(bench.arena().size() / stride_);
    queries_ = kQueriesPerThread * bench.pool().size();
  }

  Status Fill() {
    open_stride_ = RoundUp(open_.PieceBytes(), size_t{64});
    NIBBLE_TRY(open_arena_, AlignedBuffer::Allocate(open_stride_ * size_t(unit_pages_)));
    const int tokens = kPageTokens * unit_pages_;
    const std::vector<float> k = RandomFloats(static_cast<size_t>(tokens * sealed_.head_dim), 1);
    const std::vector<float> v = RandomFloats(k.size(), 2);
    PlacePages(0, unit_pages_, true);
    const AttentionSequence sequence = Sequence(0, 0, tokens);
    WriteKv(bench_.kernels(), bench_.pool(), {&sequence, 1},
            DenseView(k.data(), tokens, sealed_.head_dim),
            DenseView(v.data(), tokens, sealed_.head_dim));
    std::byte* arena = bench_.arena().data();
    bench_.pool().ParallelFor(slots_, 1, [&](int64_t begin, int64_t end, int) {
      for (auto slot = std::max<int64_t>(begin, unit_pages_); slot < end; ++slot) {
        std::memcpy(arena + static_cast<size_t>(slot) * stride_,
                    arena + static_cast<size_t>(slot % unit_pages_) * stride_, stride_);
      }
    });
    return {};
  }

  Status Prepare(int group, Act act) {
    shape_ = {.heads = group,
              .kv_heads = 1,
              .head_dim = sealed_.head_dim,
              .scale = 1 / std::sqrt(static_cast<float>(sealed_.head_dim)),
              .act = act};
    q_ = RandomFloats(static_cast<size_t>(queries_) * group * sealed_.head_dim, 3);
    out_.resize(q_.size());
    return workspace_.Reserve(shape_, bench_.pool().size());
  }

  // All queries once, each behind `context` positions.
  void Run(int context, bool near) {
    const int pages = context / kPageTokens + 1;
    if (near || next_ + queries_ * pages > slots_) next_ = 0;
    PlacePages(next_, pages, near);
    if (!near) next_ += queries_ * pages;
    sequences_.clear();
    for (int s = 0; s < queries_; ++s) sequences_.push_back(Sequence(s, context, 1));
    const int cols = shape_.heads * shape_.head_dim;
    Attention(bench_.kernels(), bench_.pool(), shape_,
              {.sequences = sequences_,
               .q = DenseView<const float>(q_.data(), queries_, cols),
               .out = DenseView(out_.data(), queries_, cols)},
              workspace_);
  }

  int queries() const { return queries_; }
  bool two_forms() const { return sealed_ != open_; }
  // Of one query: all but the newest page from memory.
  double BytesOf(int context) const {
    const int pages = context / kPageTokens;
    return static_cast<double>(stride_) * pages;
  }

 private:
  // Page ids of all queries; near: all have the same.
  void PlacePages(int first, int pages, bool near) {
    if (placed_ == Placed{first, pages, near}) return;
    placed_ = {first, pages, near};
    per_query_ = pages;
    ids_.clear();
    open_ids_.clear();
    for (int query = 0; query < queries_; ++query) {
      for (int p = 0; p < pages; ++p) {
        ids_.emplace_back(near ? p : first + query * pages + p);
        open_ids_.emplace_back(p % unit_pages_);
      }
    }
  }

  AttentionSequence Sequence(int query, int first, int rows) {
    const auto begin = static_cast<size_t>(query * per_query_);
    const auto count = static_cast<size_t>(per_query_);
    const std::span<const PageId> own = std::span(ids_).subspan(begin, count);
    KvTable table = {.arena = bench_.arena().data(), .page_bytes = stride_, .pages = own};
    if (two_forms()) {
      table = {.arena = open_arena_.data(),
               .page_bytes = open_stride_,
               .pages = std::span(open_ids_).subspan(begin, count),
               .sealed_arena = bench_.arena().data(),
               .sealed_page_bytes = stride_,
               .sealed = own};
    }
    const KvView view = {.table = table,
                         .layer_offset = 0,
                         .layout = open_,
                         .sealed_offset = 0,
                         .sealed = sealed_,
                         .unit_pages = unit_pages_};
    return {.row_begin = query, .rows = rows, .first = Position{first}, .kv = view};
  }

  struct Placed {
    int first = -1;
    int pages = 0;
    bool near = false;
    bool operator==(const Placed&) const = default;
  };

  MeterBench& bench_;
  KvLayout sealed_;
  KvLayout open_;
  int unit_pages_ = 1;
  size_t stride_ = 0;
  size_t open_stride_ = 0;
  int slots_ = 0;
  int queries_ = 0;
  int per_query_ = 0;
  int next_ = 0;
  Placed placed_;
  AlignedBuffer open_arena_;
  std::vector<PageId> ids_;
  std::vector<PageId> open_ids_;
  AttentionShape shape_;
  std::vector<AttentionSequence> sequences_;
  std::vector<float> q_;
  std::vector<float> out_;
  AttentionWorkspace workspace_;
};

}  // namespace

AttentionMeter::AttentionMeter(KvFormat kv, bool integer, int head_dim)
    : kv_(kv), integer_(integer), head_dim_(head_dim) {
  for (const int group : calibration_cases::kGroups) {
    points_.push_back({.group = group, .near_short = {}, .near_long = {}, .far = {}});
  }
}

Status AttentionMeter::Measure(MeterBench& bench) {
  PageLoop loop(bench, kv_, head_dim_);
  NIBBLE_RETURN_IF_ERROR(loop.Fill());
  const double threads = bench.pool().size();
  for (Point& point : points_) {
    NIBBLE_RETURN_IF_ERROR(loop.Prepare(point.group, integer_ ? Act::kInt8 : Act::kF32));
    point.queries = loop.queries();
    point.threads = threads;
    const auto near = [&](int context, StateSamples& samples) {
      bench.Time(samples, bench.quick() ? 2 : 4, threads / loop.queries(), bench.region_s(),
                 [&] { loop.Run(context, true); });
    };
    near(kShortContext, point.near_short);
    near(kLongContext, point.near_long);
    point.far_bytes = loop.BytesOf(kFarContext) * loop.queries();
    bench.TimeFar(point.far, bench.quick() ? 1 : 2, 1, [&] { loop.Run(kFarContext, false); });
  }
  return {};
}

std::vector<AttentionRates> AttentionMeter::Rates(const Calibration& calibration,
                                                  const MachineState& usual,
                                                  std::span<const AttentionRates> open) const {
  constexpr int kShortPages = kShortContext / kPageTokens;
  constexpr int kLongPages = kLongContext / kPageTokens;
  constexpr int kFarPages = kFarContext / kPageTokens;
  constexpr int kFarSplits = kFarPages / kSplitPages + 1;
  std::vector<AttentionRates> out;
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    AttentionRates rates{
        .kv = kv_, .integer = integer_, .head_dim = head_dim_, .group = point.group};
    const Samples longer = point.near_long.NearAt(usual);
    const double less = point.near_short.NearAt(usual).typical();
    const double more = longer.typical();
    rates.page_s = std::max((more - less) / (kLongPages - kShortPages), 1e-10);
    const double open_page = open.empty() ? rates.page_s : open[i].page_s;
    rates.unit_s = std::max(less - kShortPages * rates.page_s - open_page, 0.0);
    const double query = kFarSplits * rates.unit_s + kFarPages * rates.page_s + open_page;
    const double cpu = query * point.queries / point.threads;
    const Samples far = point.far.FarAt(usual);
    const double beyond = std::max(0.0, point.far_bytes / calibration.read_bandwidth -
                                            point.far_bytes / calibration.NearBandwidth());
    rates.overlap_p = OverlapOf(beyond, cpu, far.typical());
    rates.spread = (longer.spread() + far.spread()) / 2;
    out.push_back(rates);
  }
  return out;
}

}  // namespace nibble
