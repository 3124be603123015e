#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/serving_flags.h"

namespace CLI {
class App;
}

namespace nibble {
class ModelFile;
}

namespace nibble::cli {

// Flags of `bench` that measure a whole engine instead of a decoder.
struct BenchServeFlags {
  std::string trace;
  std::string format;
  int shared_prefix = 0;
  int interference = 0;
  double rate = 0;  // requests per second; 0: as the file says
  int limit = 0;    // requests
  int concurrency = 0;
  int answers = 1;
  std::vector<std::string> batching = {"continuous", "static"};
  ServingFlags serving;

  bool any() const { return !trace.empty() || shared_prefix > 0 || interference > 0; }
};

void AddBenchServeFlags(CLI::App& command, BenchServeFlags& flags);

// --serve-trace, --shared-prefix, --interference. model: for the headline; output: md, csv, json or
// jsonl.
Status RunBenchServe(const GlobalFlags& flags, const BenchServeFlags& own, const ModelFile& file,
                     const std::string& model, const std::string& output);

}  // namespace nibble::cli
