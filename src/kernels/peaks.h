#pragma once

#include <cstdint>
#include <string_view>

#include "format/format.h"
#include "format/kv_format.h"
#include "kernels/activations.h"

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

// Which of them bounds the products of a format: kInt4 where its codes are small enough for that
// sequence (levels of a table are bytes), kF32 where nothing is integer.
enum class Peak : uint8_t { kInt4, kInt8, kF32 };
std::string_view PeakName(Peak peak);  // "int4", "int8", "f32"
Peak PeakOf(Format format, Act act);
Peak PeakOf(KvFormat sealed, Act act);

}  // namespace nibble
