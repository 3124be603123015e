#pragma once

#include <cstdint>
#include <vector>

namespace nibble {

// A weight matrix of integer codes whose scales belong to groups of inputs: what GPTQ, AWQ and
// compressed-tensors files store, each in an order of its own (methods: RTN, GPTQ, AWQ).
//
//   w[r][c] = scales[r][g] · (codes[r][c] − zeros[r][g]),  g = group_of[c], or c / group without it
struct GroupedMatrix {
  int rows = 0;   // outputs
  int cols = 0;   // inputs
  int bits = 4;   // of a code, 2 to 8
  int group = 0;  // inputs that share a scale; cols: one scale a row. The last may be shorter.
  bool symmetric = true;  // every zero is 2^(bits − 1) and is not stored

  std::vector<uint8_t> codes;     // [rows][cols], 0 … 2^bits − 1
  std::vector<float> scales;      // [rows][groups()], values that the stored type holds exactly
  std::vector<uint8_t> zeros;     // [rows][groups()]; 2^(bits − 1) everywhere when symmetric
  std::vector<int32_t> group_of;  // [cols]; empty: groups are consecutive inputs

  int groups() const { return (cols + group - 1) / group; }
};

}  // namespace nibble
