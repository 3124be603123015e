#pragma once

#include <cstdint>

namespace nibble {

enum class Isa;

// Register-only loops of one instruction sequence, with enough independent accumulators to hide its
// latency: what the processor can multiply at best. Each runs `rounds` rounds on the calling thread
// and returns the multiply-adds done.
struct PeakKernels {
  // The fastest exact sequence for unsigned × signed bytes: vpdpbusd, sdot, else vpmaddubsw +
  // vpmaddwd + vpaddd.
  int64_t (*int8)(int64_t rounds);
  // The same for unsigned codes up to 15: on AVX2 vpmaddubsw + vpaddw.
  int64_t (*int4)(int64_t rounds);
  int64_t (*f32)(int64_t rounds);  // fused multiply-add
};

const PeakKernels& PeakKernelsFor(Isa isa);

}  // namespace nibble
