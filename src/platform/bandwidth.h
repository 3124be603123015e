#pragma once

#include <cstddef>

#include "base/result.h"

namespace nibble {

class ThreadPool;

// Bytes per second that all threads of the pool together read from a buffer of `bytes` (default: 4
// × last-level cache, at most 2 GiB and a quarter of free memory), best of the rounds that fit into
// `seconds`. The prefetched read loop is the one that docs/performance.md calls the limit.
Result<double> ProbeReadBandwidth(ThreadPool& pool, double seconds = 1.0, size_t bytes = 0);

}  // namespace nibble
