#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "advise/model_work.h"
#include "base/result.h"
#include "model/decoder.h"
#include "platform/numa.h"

namespace nibble {

struct KernelTable;
class ThreadPool;

enum class BenchTest : uint8_t {
  kPrompt,    // pp: prompts of `prompt` tokens, `batch` of them
  kGenerate,  // tg: `gen` steps of one token for each of `batch` sequences
  kBoth,      // pg: the one, then the other
};

struct BenchCase {
  BenchTest test = BenchTest::kGenerate;
  int prompt = 0;
  int gen = 0;
  int batch = 1;
  int depth = 0;  // tokens that every sequence already holds

  int TokensPerSequence() const { return depth + prompt + gen; }
};

// What some steps cost and read.
struct BenchWork {
  double seconds = 0;
  int64_t tokens = 0;
  int64_t steps = 0;
  double bytes = 0;  // weights and KV
  Macs macs;
};

struct BenchRow {
  BenchCase test;
  std::vector<double> seconds;  // of each repetition
  BenchWork work;               // of one repetition

  double MedianSeconds() const;
};

struct ModelBenchOptions {
  KvFormats formats;
  Act act = Act::kInt8;                  // that the decoder was loaded with
  int batch = 1;                         // sequences
  int tokens = 0;                        // room of each
  std::span<const NumaNode> nodes = {};  // that the KV pages are spread over
};

// Times forward passes of a decoder without the engine around it. The answers are greedy, so that
// the step has all that a real one has.
class ModelBench {
 public:
  static Result<ModelBench> Create(Decoder& decoder, const KernelTable& kernels,
                                   const ModelWork& work, const ModelBenchOptions& options);
  ModelBench(ModelBench&&) noexcept;
  ~ModelBench();

  // Bytes of the KV cache that a case needs.
  static double KvBytes(std::span<const KvGroup> groups, const BenchCase& test);

  // One warm-up and `repetitions` measured rounds.
  BenchRow Run(const BenchCase& test, int repetitions);

  // The next steps of the case that Run had last, from its start again after its end, until they
  // have taken so long: pieces short enough to alternate with something else.
  BenchWork RunPiece(double least_seconds);

 private:
  struct Impl;
  explicit ModelBench(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
