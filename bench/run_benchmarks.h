#pragma once

#include <benchmark/benchmark.h>

namespace nibble {

// What main() does once the benchmarks are registered; the exit code.
inline int RunBenchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace nibble
