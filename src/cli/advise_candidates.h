#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "advise/adviser.h"
#include "base/result.h"
#include "cli/advise_flags.h"
#include "cli/globals.h"
#include "model/config/model_file.h"
#include "quantize/card.h"

namespace nibble::cli {

// What is written: GGUF files for nibble, folders of compressed-tensors for vLLM.
enum class AdviseEmit : uint8_t { kNibble, kVllm };

// The formats of the grid's weights: the model as it is, and those of --weights or the usual ones
// that are smaller. A model below 8 bits a weight stays as it is. Errors: an unknown format.
Result<std::vector<WeightsCandidate>> WeightsCandidates(const AdviseFlags& own, AdviseEmit emit,
                                                        const ModelFile& model,
                                                        const ModelShape& shape);
// The caches': those of --kv, or all that the model can have. f16 is always the first.
Result<std::vector<KvChoice>> KvCandidates(const GlobalFlags& flags, const AdviseFlags& own,
                                           AdviseEmit emit, const ModelConfig& config);

// What is written of a row's weights: for vLLM a GGUF file as it is becomes a folder of floats.
WeightsCandidate MadeAs(const ModelFile& model, const WeightsCandidate& weights, AdviseEmit emit);

// Makes the model in a format by `quantize`'s own code, without its quality measurement, under a
// name of its own; a card tells what `quality` says.
struct CandidateMaker {
  const GlobalFlags& flags;
  const AdviseFlags& own;
  const std::filesystem::path& in;
  const ModelFile& model;
  const Tokenizer& tokenizer;
  ThreadPool& pool;
  std::string source_hash;

  Result<std::filesystem::path> Make(const WeightsCandidate& weights,
                                     const std::filesystem::path& out,
                                     const std::optional<CardQuality>& quality) const;
};

// "smollm2-135m-f16-q4_k_m.gguf", or without an end for a folder.
std::string CandidateName(const std::filesystem::path& model, const std::string& to,
                          AdviseEmit emit);

}  // namespace nibble::cli
