#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

// Lines of a stream one after another, in the memory of the longest one.
class LineReader {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of a line

  explicit LineReader(std::istream& in) : in_(&in) {}

  // Without its end, which may be \r\n; good until the next call. None: the stream has ended.
  // Errors: a line that is too long; the stream failed.
  Result<std::optional<std::string_view>> Next();
  int64_t number() const { return number_; }  // of the line that Next gave last, from 1

 private:
  std::istream* in_;
  std::string buffer_;
  size_t begin_ = 0;  // of what Next has not given yet
  int64_t number_ = 0;
};

}  // namespace nibble
