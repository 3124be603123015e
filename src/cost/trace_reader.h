#pragma once

#include <istream>
#include <optional>
#include <string>

#include "base/result.h"
#include "cost/line_reader.h"
#include "cost/trace.h"

namespace nibble {

struct TraceColumns;

// The requests of a trace one after another, as the file has them, in constant memory. Errors name
// line and column, what was expected and what was found.
class TraceReader {
 public:
  // Reads what stands before the first request. The stream outlives this.
  static Result<TraceReader> Open(std::istream& in, const TraceOptions& options = {});

  // Times as in the file, in seconds. None: the end, or the limit.
  Result<std::optional<TraceRequest>> Next();

  TraceFormat format() const { return format_; }
  int64_t line() const { return lines_.number(); }  // of the last request
  bool has_arrivals() const { return has_arrivals_; }
  // The first line of `serve --trace-log`; empty in other formats.
  const std::string& head() const { return head_; }

  // Which fields of a CSV's lines are which; -1: the column is missing.
  struct CsvHeader {
    int arrival = -1;
    int input = -1;
    int output = -1;
    size_t fields = 0;
  };

 private:
  TraceReader(std::istream& in, size_t limit) : lines_(in), limit_(limit) {}
  Status ReadStart(const TraceOptions& options);

  LineReader lines_;
  size_t limit_;
  size_t count_ = 0;
  TraceFormat format_ = TraceFormat::kJsonl;
  const TraceColumns* columns_ = nullptr;
  CsvHeader header_;
  int block_tokens_ = kTraceBlockTokens;
  bool has_arrivals_ = false;
  std::string head_;
  std::optional<std::string> first_;  // a request in the line that told the format
};

}  // namespace nibble
