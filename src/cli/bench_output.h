#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "advise/attention_exactness.h"
#include "advise/bench.h"
#include "advise/fractions.h"
#include "advise/limits.h"
#include "cli/json_output.h"

namespace nibble::cli {

// What is the same in all rows of one bench run.
struct BenchHeader {
  std::string model;
  int64_t parameters = 0;
  size_t weight_bytes_per_step = 0;
  std::string act;  // what is computed: f32 where no weight has integer products
  int threads = 0;
  Isa isa = Isa::kScalar;
};

Json LimitsJson(const MachineLimits& limits);
// fractions: none unless limits were measured.
Json BenchRowJson(const BenchHeader& header, const std::string& kv, const BenchRow& row,
                  const std::optional<LimitFractions>& fractions);

// "md", "csv", "json" or "jsonl" to standard output. Rows are printed as they come, except for
// json, which is one object at the end.
class BenchPrinter {
 public:
  BenchPrinter(std::string output, BenchHeader header);

  void Limits(const MachineLimits& limits);
  void Row(const Json& row);
  void Finish();

 private:
  void MarkdownRow(const Json& row) const;
  void MarkdownNotes() const;
  void CsvRow(const Json& row) const;

  std::string output_;
  BenchHeader header_;
  Json limits_;
  Json rows_ = Json::array();
};

void PrintExactness(const std::string& output, std::span<const AttentionExactness> entries);

}  // namespace nibble::cli
