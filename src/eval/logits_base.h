#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "platform/memory.h"

namespace nibble {

// A file that llama-perplexity --kl-divergence-base wrote: the tokens of a text's windows and the
// base model's log-probabilities at their scored positions (context/2 … context - 2), 16 bits each.
//   "_logits_", int32 context, int32 vocabulary, int32 windows, int32 ids [windows][context]
//   [windows][context - 1 - context/2] rows: f32 step, f32 lowest, u16 code [vocabulary], 2 bytes
//   where the vocabulary is odd; ln p = step · code + lowest, but "at most lowest" for code 0
class LogitsBase {
 public:
  // Whether a file begins as one.
  static bool Recognise(const std::filesystem::path& path);

  // Errors: no such file, sizes that do not fit one another (both numbers), ids out of range.
  static Result<LogitsBase> Open(const std::filesystem::path& path);
  // The same from bytes that outlive it.
  static Result<LogitsBase> Parse(std::span<const std::byte> bytes);

  int context() const { return context_; }
  int vocabulary() const { return vocabulary_; }
  int windows() const { return windows_; }
  std::vector<TokenId> Ids() const;  // [windows · context]

  // ln p of every token [vocabulary] behind a scored position of a window; -infinity for those that
  // llama-perplexity leaves out of the divergence (at most -16). Errors: numbers that are no
  // log-probabilities (the place and what was found).
  Status Row(int window, Position position, std::span<float> logprobs) const;
  // The same of one token, whatever its size: what a loss is made of.
  float Logprob(int window, Position position, TokenId id) const;

 private:
  LogitsBase() = default;
  size_t RowOffset(int window, Position position) const;

  MappedFile file_;
  std::span<const std::byte> bytes_;
  int context_ = 0;
  int vocabulary_ = 0;
  int windows_ = 0;
};

}  // namespace nibble
