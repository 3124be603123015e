#include "platform/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/math.h"
#include "base/split_mix.h"
#include "base/statistics.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr size_t kLine = 64;
// Every part of a thread is so many bytes' multiple, so that each form reads all of it.
constexpr size_t kUnit = 4096;
constexpr int kLeastRounds = 15;

uint64_t Word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// kStreams parts of the buffer side by side, each prefetched kAhead bytes before its use into the
// second-level cache (0: not).
template <size_t kAhead, size_t... kStream>
uint64_t ReadStreams(const std::byte* data, size_t bytes, std::index_sequence<kStream...>) {
  constexpr size_t kStreams = sizeof...(kStream);
  uint64_t even[kStreams] = {};
  uint64_t odd[kStreams] = {};
  const size_t part = bytes / kStreams;
  const auto take = [&](size_t stream, const std::byte* line) {
    if constexpr (kAhead > 0) {
      __builtin_prefetch(line + kAhead, 0, 2);
      __builtin_prefetch(line + kAhead + kLine, 0, 2);
    }
    even[stream] ^= Word(line);
    odd[stream] ^= Word(line + kLine);
  };
  for (size_t at = 0; at < part; at += 2 * kLine) {
    (take(kStream, data + kStream * part + at), ...);  // a loop would keep the sums in memory
  }
  return ((even[kStream] ^ odd[kStream]) ^ ...);
}

template <size_t kStreams, size_t kAhead>
uint64_t ReadAll(const std::byte* data, size_t bytes) {
  return ReadStreams<kAhead>(data, bytes, std::make_index_sequence<kStreams>());
}

struct ReadForm {
  std::string_view name;
  uint64_t (*read)(const std::byte* data, size_t bytes);
};
constexpr ReadForm kForms[] = {{"plain", ReadAll<1, 0>},
                               {"prefetch 4 KiB ahead", ReadAll<1, 4096>},
                               {"4 streams", ReadAll<4, 0>},
                               {"4 streams, prefetch 2 KiB ahead", ReadAll<4, 2048>}};

// Different in every byte: pages of one value may be merged, and lines be compressed.
void FillRandom(std::byte* data, size_t bytes, uint64_t seed) {
  uint64_t state = seed * kSplitMixStep + 1;
  for (size_t at = 0; at < bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data + at, &state, sizeof state);
  }
}

}  // namespace

Status ReadProbe::Fill(size_t bytes, size_t reserved) {
  const auto threads = static_cast<size_t>(pool_->size());
  if (buffer_.data() == nullptr) {
    NIBBLE_TRY(buffer_, AlignedBuffer::Allocate(RoundUp(reserved, kUnit) + threads * kUnit));
  }
  share_ = RoundUp(std::max(bytes / threads, kUnit), kUnit);
  pool_->Run([&](int thread) {
    const auto number = static_cast<size_t>(thread);
    FillRandom(buffer_.data() + number * share_, share_, number + 1);
  });
  return {};
}

double ReadProbe::Read(size_t form, size_t begin, size_t bytes, size_t passes) {
  std::atomic<uint64_t> sink = 0;
  const double started = MonotonicSeconds();
  pool_->Run([&](int thread) {
    const std::byte* part = buffer_.data() + static_cast<size_t>(thread) * share_ + begin;
    for (size_t pass = 0; pass < passes; ++pass) sink += kForms[form].read(part, bytes);
  });
  const double seconds = MonotonicSeconds() - started;
  return static_cast<double>(bytes * passes) * pool_->size() / std::max(seconds, 1e-9);
}

double ReadProbe::Read(size_t form) {
  // Small buffers several times, so that starting the threads does not count.
  constexpr size_t kLeastBytes = size_t{16} << 20;
  return Read(form, 0, share_, CeilDiv(kLeastBytes, share_));
}

double ReadProbe::Sample() {
  constexpr size_t kAllThreads = size_t{64} << 20;
  const size_t wanted = RoundUp(kAllThreads / static_cast<size_t>(pool_->size()), kUnit);
  const size_t bytes = std::min(share_, wanted);
  if (next_ + bytes > share_) next_ = 0;
  const double rate = Read(form_, next_, bytes, 1);
  next_ += bytes;
  return rate;
}

void ReadProbe::ChooseForm() {
  double best[std::size(kForms)] = {};
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t form = 0; form < std::size(kForms); ++form) {
      best[form] = std::max(best[form], Read(form));
    }
  }
  form_ = static_cast<size_t>(std::ranges::max_element(best) - best);
}

Result<ReadProbe> ReadProbe::OfSize(ThreadPool& pool, size_t bytes) {
  ReadProbe probe(pool);
  NIBBLE_RETURN_IF_ERROR(probe.Fill(bytes, bytes));
  probe.ChooseForm();
  return probe;
}

Result<ReadProbe> ReadProbe::OfMemory(ThreadPool& pool) {
  constexpr size_t kLeast = size_t{128} << 20;
  constexpr size_t kMost = size_t{2} << 30;  // where doubling stops
  const CpuTopology topology = ReadTopology();
  const size_t room = topology.memory_available / 4;
  size_t bytes = std::max(kLeast, 4 * topology.last_level_cache);
  if (bytes > room) {
    return Fail(ErrorKind::kNoRoom,
                "to read memory and no cache takes a buffer of {} MiB, and {} MiB are free",
                bytes >> 20, topology.memory_available >> 20);
  }
  bytes = std::max(bytes, std::min(4 * topology.all_last_level_caches, room));
  const size_t most = std::max(bytes, std::min(kMost, room));
  ReadProbe probe(pool);
  NIBBLE_RETURN_IF_ERROR(probe.Fill(bytes, most));
  probe.ChooseForm();
  // Falls by less than that when the caches have no part in it.
  constexpr double kSame = 0.9;
  while (2 * bytes <= most) {
    double small = 0;
    double large = 0;
    NIBBLE_RETURN_IF_ERROR(probe.Fill(2 * bytes, most));
    const size_t twice = probe.share_;
    for (int round = 0; round < 3; ++round) {
      probe.share_ = twice / 2 / kUnit * kUnit;
      small = std::max(small, std::max(probe.Round(), probe.Round()));
      probe.share_ = twice;
      large = std::max(large, probe.Round());
    }
    if (large >= kSame * small) break;
    bytes *= 2;
    probe.ChooseForm();
  }
  return probe;
}

ReadRates ReadProbe::Measure(double seconds) {
  std::vector<double> rates;
  const double until = MonotonicSeconds() + seconds;
  while (std::ssize(rates) < kLeastRounds || MonotonicSeconds() < until) rates.push_back(Round());
  return {.best = std::ranges::max(rates),
          .median = Median(rates),
          .form = kForms[form_].name,
          .bytes = share_ * static_cast<size_t>(pool_->size())};
}

Result<double> ProbeReadBandwidth(ThreadPool& pool, double seconds) {
  NIBBLE_TRY(ReadProbe probe, ReadProbe::OfMemory(pool));
  return probe.Measure(seconds).best;
}

}  // namespace nibble
