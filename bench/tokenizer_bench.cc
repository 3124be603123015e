// deps: tokenizer
// Bytes per second of encoding and decoding, one thread: set NIBBLE_BENCH_TOKENIZER (any tokenizer
// file or GGUF) and NIBBLE_BENCH_TEXT (such as
// ../shared/data/corpora/wikitext-2-raw/wiki.test.raw).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tokenizer/load.h"

namespace {

std::string TextFromEnvironment() {
  const char* path = std::getenv("NIBBLE_BENCH_TEXT");
  if (path == nullptr) return {};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

nibble::Result<nibble::Tokenizer> TokenizerFromEnvironment() {
  const char* path = std::getenv("NIBBLE_BENCH_TOKENIZER");
  if (path == nullptr) return nibble::BadInput("set NIBBLE_BENCH_TOKENIZER");
  return nibble::LoadTokenizer(path);
}

void Encode(benchmark::State& state) {
  const auto tokenizer = TokenizerFromEnvironment();
  const std::string text = TextFromEnvironment();
  if (!tokenizer || text.empty()) {
    state.SkipWithError("set NIBBLE_BENCH_TOKENIZER and NIBBLE_BENCH_TEXT");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(Encode)->Unit(benchmark::kMillisecond);

void Load(benchmark::State& state) {
  for (auto _ : state) {
    const auto tokenizer = TokenizerFromEnvironment();
    if (!tokenizer) {
      state.SkipWithError("set NIBBLE_BENCH_TOKENIZER");
      return;
    }
    benchmark::DoNotOptimize(tokenizer->vocab_size());
  }
}
BENCHMARK(Load)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
