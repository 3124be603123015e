#pragma once

#include <filesystem>
#include <span>

#include "base/result.h"

namespace nibble {

// A base model's logits at the scored positions of one window, [rows][vocabulary] floats as they
// are, in a file without a name: a window of 2,048 tokens over a vocabulary of 49,152 has 201 MB,
// which the system keeps in memory only as long as nothing else wants it.
class BaseRows {
 public:
  // Errors: the folder, a full disk (the size).
  static Result<BaseRows> Create(const std::filesystem::path& folder, int rows, int vocabulary);
  BaseRows(BaseRows&& other) noexcept;
  BaseRows& operator=(BaseRows&& other) noexcept;
  ~BaseRows();

  int rows() const { return rows_; }
  int vocabulary() const { return vocabulary_; }
  Status Write(int row, std::span<const float> logits);
  Status Read(int row, std::span<float> logits) const;

 private:
  BaseRows() = default;

  int file_ = -1;
  int rows_ = 0;
  int vocabulary_ = 0;
};

}  // namespace nibble
