#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text.h"

namespace nibble::cli {

std::string FormatRate(double rate);  // "1234", "56.7", "3.21"

// Sends what is printed so far to standard output; throws std::system_error as fmt::print does.
void FlushOutput();

bool IsTerminal(FILE* stream);
// Error: the text is no UTF-8; names the first wrong byte and its place.
Status CheckUtf8(const std::string& what, std::string_view text);

// Whole text of a file, or of standard input for "-". At most `limit` bytes.
Result<std::string> ReadTextFile(const std::string& path, size_t limit = size_t{1} << 30);

// A line on standard error that shows how far something is, on a terminal only and only when it
// takes more than two seconds.
class Progress {
 public:
  Progress(std::string what, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // fraction 0 … 1; detail: "24 MB of 98 MB".
  void Update(double fraction, std::string_view detail);

 private:
  std::string what_;
  bool enabled_;
  bool drawn_ = false;
  double started_;
  double last_ = 0;
};

}  // namespace nibble::cli
