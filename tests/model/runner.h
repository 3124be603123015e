#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "container/json.h"
#include "model/decoder.h"
#include "platform/thread_pool.h"
#include "tests/support/test_data.h"

namespace nibble::testing {

using Ids = std::vector<int>;

// Pages of one sequence for every group, in an order that no kernel can guess.
class TestKv {
 public:
  TestKv(std::span<const KvGroup> groups, int positions);
  std::span<const KvTable> tables() const { return tables_; }
  // Pages that no later position from `next` on can see become kNoPage, as when a window moves on;
  // where pages have two forms, when their unit is full.
  void Release(std::span<const KvGroup> groups, int next);

 private:
  std::vector<AlignedBuffer> arenas_;
  std::vector<AlignedBuffer> sealed_arenas_;
  std::vector<std::vector<PageId>> pages_;  // the same in both forms
  std::vector<KvTable> tables_;
};

struct RunnerOptions {
  Act act = Act::kF32;
  std::optional<Act> attention_act = {};  // as LoadOptions
  KvFormats kv = {.k = KvFormat::kF32, .v = KvFormat::kF32};
  int threads = 2;
  int max_rows = 512;
  int max_context = 0;
};

// A loaded decoder and what a step needs around it.
class Runner {
 public:
  // Fails the test when loading fails; then ok() is false.
  Runner(const std::filesystem::path& path, const RunnerOptions& options = {});
  bool ok() const { return decoder_ != nullptr; }
  Decoder& decoder() { return *decoder_; }
  std::span<const KvGroup> groups() const { return groups_; }

  // Hands the logits of every position to visit(position, logits).
  using Visitor = std::function<void(int, std::span<const float>)>;
  void Visit(const Ids& ids, int chunk, const Visitor& visit);
  // The same into a cache, which keeps all its pages.
  void Fill(TestKv& cache, const Ids& ids, int chunk, const Visitor& visit);
  // Logits [ids][vocabulary] of every position, in chunks (0: whole).
  std::vector<float> Logits(const Ids& ids, int chunk = 0);
  // The same of several sequences that share every step, each in its own chunks.
  std::vector<std::vector<float>> LogitsTogether(std::span<const Ids> ids,
                                                 std::span<const int> chunks);
  // `count` greedy tokens after the prompt.
  Ids Greedy(const Ids& prompt, int count);

 private:
  void VisitWith(TestKv& cache, bool release, const Ids& ids, int chunk, const Visitor& visit);

  ThreadPool pool_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<KvGroup> groups_;
};

// ln p(next) of a row of logits.
double LogProbability(std::span<const float> logits, int next);
int ArgMax(std::span<const float> logits);
std::span<const float> Row(const std::vector<float>& logits, int row, int vocabulary);

// JSON goldens.
Ids ReadIds(JsonValue array);
std::vector<double> ReadDoubles(JsonValue array);

// A folder with links to a model's files under the names that Hugging Face gives them.
class LinkedFolder {
 public:
  void Link(const std::filesystem::path& file, const std::string& name);
  void Write(const std::string& name, const std::string& text);
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace nibble::testing
