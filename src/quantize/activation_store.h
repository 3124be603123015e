#pragma once

#include <cstddef>
#include <filesystem>

#include "base/result.h"
#include "model/config.h"
#include "model/layer_runner.h"
#include "platform/memory.h"

namespace nibble {

// The activations of all calibration sequences between the parts of a model: in memory, or, above a
// size, in a file without a name that the system reads and writes as needed.
class ActivationStore {
 public:
  // memory: most bytes to hold; folder: where the file goes. Errors: the system gives no memory or
  // no disk (the size).
  static Result<ActivationStore> Create(const ModelConfig& config, int sequences, int tokens,
                                        size_t memory, const std::filesystem::path& folder);
  ActivationStore(ActivationStore&& other) noexcept;
  ActivationStore& operator=(ActivationStore&&) = delete;
  ~ActivationStore();

  int sequences() const { return sequences_; }
  size_t bytes() const { return sequence_bytes_ * static_cast<size_t>(sequences_); }
  bool spilled() const { return mapped_ != nullptr; }

  LayerSequence Sequence(int index);
  // The sequence is not needed for a while: its memory may go to the file.
  void Release(int index);

 private:
  ActivationStore() = default;

  int sequences_ = 0, tokens_ = 0, width_ = 0, context_ = 0;
  size_t sequence_bytes_ = 0;  // whole pages
  AlignedBuffer memory_;
  std::byte* mapped_ = nullptr;
};

}  // namespace nibble
