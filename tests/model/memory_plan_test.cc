#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

// What a process keeps of a real model: the plan, no page of the file, and little else.
TEST(MemoryPlan, IsKeptByARealModel) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  ThreadPool pool(2);
  const KernelTable& kernels = KernelsFor(ChooseIsa().value_or(Isa::kScalar));
  const LoadOptions options{.act = Act::kInt8, .max_rows = 64, .max_context = 2048};
  const MemoryPlan plan = Decoder::Plan(path, options, kernels, pool).value();
  EXPECT_GT(plan.weight_bytes, size_t{90} << 20);  // the file has 98 MB, its vocabulary 2 MB

  const ResidentBytes before = ReadResidentBytes();
  const auto decoder = Decoder::Load(path, options, kernels, pool).value();
  const ResidentBytes after = ReadResidentBytes();
  EXPECT_EQ(decoder->plan().Total(), plan.Total());
  const size_t slack = size_t{8} << 20;  // allocator, page tables, large pages
  EXPECT_LE(after.total, before.total + plan.Total() + slack);
  EXPECT_GE(after.private_ + slack, before.private_ + plan.weight_bytes);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NIBBLE_NO_LIMIT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NIBBLE_NO_LIMIT 1
#endif
#endif

#ifndef NIBBLE_NO_LIMIT
// In a process of its own: exits with 0 when loading is refused for want of memory with the plan.
[[noreturn]] void LoadWithLittleMemory(const std::filesystem::path& path) {
  ThreadPool pool(1);
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  statm >> pages;
  const size_t room = size_t{140} << 20;  // the mapped file and half of the weights
  const rlimit limit{.rlim_cur = pages * 4096 + room, .rlim_max = pages * 4096 + room};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  const auto decoder = Decoder::Load(path, {}, KernelsFor(Isa::kScalar), pool);
  if (decoder || decoder.error().kind != ErrorKind::kNoRoom) std::exit(3);
  const std::string& message = decoder.error().message;
  std::exit(message.find("weights 9") != std::string::npos ? 0 : 4);
}

TEST(MemoryPlanDeathTest, NoRoomIsAnErrorWithThePlan) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EXIT(LoadWithLittleMemory(path), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(MemoryPlan, TiedEmbeddingsAreStoredOnce) {
  NIBBLE_SHARED_OR_SKIP(tied, "models/hf-320/qwen2");
  NIBBLE_SHARED_OR_SKIP(untied, "models/hf-320/llama");
  Runner one(tied);
  Runner two(untied);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_TRUE(one.decoder().config().tied_embeddings);
  EXPECT_FALSE(two.decoder().config().tied_embeddings);
  const size_t embedding = size_t{512} * 64 * 4;
  // All of a tied model is read by a step; of an untied one the embedding is not.
  EXPECT_EQ(one.decoder().WeightBytesPerStep(), one.decoder().plan().weight_bytes);
  EXPECT_EQ(two.decoder().WeightBytesPerStep() + embedding, two.decoder().plan().weight_bytes);
}

TEST(ModelFile, CountsParameters) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const ModelFile file = ModelFile::Open(path).value();
  EXPECT_EQ(file.config().parameters, 134515008);
  EXPECT_TRUE(file.config().tied_embeddings);
  EXPECT_EQ(file.config().name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
}

// The step buffers hold as many rows as the options say, whatever the logits' block.
TEST(MemoryPlan, GrowsWithRowsOnly) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-320/gemma3");
  ThreadPool pool(1);
  const KernelTable& kernels = KernelsFor(Isa::kScalar);
  const MemoryPlan small = Decoder::Plan(path, {.max_rows = 8}, kernels, pool).value();
  const MemoryPlan large = Decoder::Plan(path, {.max_rows = 512}, kernels, pool).value();
  const MemoryPlan narrow =
      Decoder::Plan(path, {.max_rows = 512, .max_context = 64}, kernels, pool).value();
  EXPECT_EQ(small.weight_bytes, large.weight_bytes);
  EXPECT_LT(small.workspace_bytes, large.workspace_bytes);
  EXPECT_EQ(narrow.Total(), large.Total());
}

}  // namespace
}  // namespace nibble::testing
