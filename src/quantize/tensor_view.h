#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/tensor_source.h"

namespace nibble {

class ModelFile;

// A tensor of a file to be written, and where its values come from: a stored tensor, perhaps in
// another orientation or order of rows, or values of its own.
struct TensorView {
  std::string name = {};                 // in the file to be written
  const SourceTensor* tensor = nullptr;  // null: `values`
  std::vector<float> values = {};        // one dimension
  bool transposed = false;               // stored as {in, out}, written as {out, in}
  // > 0: in every head of so many rows, row i of the first half becomes row 2i and row i of the
  // second half row 2i + 1 (GGUF's rotation of neighbouring pairs).
  int paired_head = 0;
  int split_head = 0;  // > 0: the way back
  float add = 0;       // to every value (the 1 of Gemma's norms, -1 on the way back)

  // The stored bytes are what is to be written, if the format stays.
  bool AsStored() const {
    return tensor != nullptr && tensor->linear == nullptr && !transposed && paired_head == 0 &&
           split_head == 0 && add == 0;
  }
  uint64_t rows() const;
  uint64_t cols() const;
  uint64_t elements() const { return rows() * cols(); }
  std::vector<uint64_t> Shape() const;  // outermost dimension first
  // Row `row` [cols()] of what is to be written, decoded; any thread.
  void ReadRow(uint64_t row, float* out) const;
  // The stored row that becomes row `row`.
  uint64_t StoredRow(uint64_t row) const;
};

// The tensors of the GGUF file that holds this model, in the order in which they are to be written:
// a GGUF file's own, or a Hugging Face model's under GGUF's names, as llama.cpp's converter makes
// them (Q and K of architectures with paired rotation reordered, 1 added to Gemma's norms, gpt2's
// matrices transposed, rope_freqs and rope_factors made from config.json). Error: a tensor that
// is no weight format.
Result<std::vector<TensorView>> GgufTensors(const ModelFile& model);

// The tensors of the Hugging Face model that computes the same: a Hugging Face model's own in
// floats, or a GGUF file's under the names by which the loader finds them (architecture.h), with
// all of the above undone. rope_freqs and rope_factors have no place: they are in config.json.
Result<std::vector<TensorView>> HfTensors(const ModelFile& model);

}  // namespace nibble
