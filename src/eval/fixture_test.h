#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/logits_file.h"
#include "tests/support/test_data.h"

namespace nibble::testing {

// A model of the source tree under act=f32.
inline std::unique_ptr<Engine> OpenExact(const std::string& model, KvFormat kv = KvFormat::kF32,
                                         int max_rows = 512) {
  EngineOptions options;
  options.act = Act::kF32;
  options.kv = {kv, kv};
  options.threads = 2;
  options.max_rows = max_rows;
  auto engine = Engine::Create(SourcePath(model), options);
  EXPECT_TRUE(engine) << engine.error().message;
  return *std::move(engine);
}

// ln p [tokens][vocabulary] of one sequence, by the formula from `eval --logits`' file.
inline std::vector<std::vector<double>> Logprobs(Engine& engine, std::span<const TokenId> ids) {
  const TempDir folder;
  const auto path = folder.path() / "logits.npy";
  EXPECT_TRUE(WriteLogits(engine, ids, path));
  const std::string bytes = ReadFile(path);
  const auto vocabulary = static_cast<size_t>(engine.config().vocabulary);
  std::vector<std::vector<double>> rows(ids.size(), std::vector<double>(vocabulary));
  const char* at = bytes.data() + bytes.size() - ids.size() * vocabulary * sizeof(float);
  for (auto& row : rows) {
    double sum = 0;
    for (double& x : row) {
      float logit = 0;
      std::memcpy(&logit, at, sizeof logit);
      at += sizeof logit;
      x = double{logit};
      sum += std::exp(x);
    }
    for (double& x : row) x -= std::log(sum);
  }
  return rows;
}

}  // namespace nibble::testing
