#include "kernels/seal_block.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/paging.h"
#include "format/kv_codec.h"
#include "kernels/attention_kernels.h"

namespace nibble {
namespace {

// Numbers of one head's open page, [reduced][lanes]: of very different sizes, zeros of both signs,
// constant rows and columns, ties of the rounding.
std::vector<float> OpenNumbers(int rows, int cols, int kind, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      float value = normal(random);
      if (kind == 1) value *= std::exp2(static_cast<float>(r % 30) - 24.0F);
      if (kind == 2) value = static_cast<float>(static_cast<int>(random() % 512) - 256) / 2;
      if (kind == 3) value = r % 3 == 0 ? 0.0F : c % 5 == 0 ? -0.0F : r % 3 == 1 ? 7.25F : value;
      if (kind == 4) value *= 20000;
      if (kind == 5) value = -0.0F;
      x[static_cast<size_t>(r * cols + c)] = value;
    }
  }
  return x;
}

struct Sealed {
  std::vector<std::byte> block;
  float page_float = -1;
};
Sealed RunSeal(void (*seal)(const SealBlock&), SealBlock block) {
  std::vector<float> scratch(static_cast<size_t>(kPageTokens * block.head_dim));
  Sealed out;
  out.block.assign(KvBlockBytes(block.format, block.side, block.head_dim), std::byte{0xa5});
  block.scratch = scratch.data();
  block.to = out.block.data();
  block.page_float = &out.page_float;
  seal(block);
  return out;
}

class SealBlockTest : public ::testing::TestWithParam<std::tuple<Isa, KvFormat>> {
 protected:
  // Compares with the scalar form.
  void Check(KvFormat open, KvSide side, int head_dim, const std::vector<float>& numbers) {
    std::vector<std::byte> from(KvBlockBytes(open, side, head_dim));
    const AttentionKernels& kernels = *AttentionKernelsFor(Isa::kScalar);
    if (open == KvFormat::kF16) {
      kernels.to_half(numbers.data(), kPageTokens * head_dim,
                      reinterpret_cast<uint16_t*>(from.data()));
    } else {
      std::memcpy(from.data(), numbers.data(), from.size());
    }
    for (const size_t at : nan_) {
      if (open == KvFormat::kF16) {
        reinterpret_cast<uint16_t*>(from.data())[at % numbers.size()] = 0x7e00;
      } else {
        reinterpret_cast<float*>(from.data())[at % numbers.size()] =
            std::numeric_limits<float>::quiet_NaN();
      }
    }
    SealBlock block{.open = open,
                    .format = std::get<1>(GetParam()),
                    .side = side,
                    .head_dim = head_dim,
                    .from = from.data()};
    for (const float given_scale : {0.0F, 0.003F}) {  // a checkpoint's own: much saturates
      block.given_scale = given_scale;
      const Sealed want = RunSeal(SealScalar, block);
      const Sealed got = RunSeal(AttentionKernelsFor(std::get<0>(GetParam()))->seal, block);
      ASSERT_EQ(got.block, want.block) << "head_dim " << head_dim;
      ASSERT_EQ(std::bit_cast<uint32_t>(got.page_float), std::bit_cast<uint32_t>(want.page_float));
    }
  }
  std::vector<size_t> nan_;
};

TEST_P(SealBlockTest, StoresTheBytesOfTheScalarForm) {
  std::mt19937 random(7);
  for (const int head_dim : {4, 16, 24, 32, 48, 64, 80, 96, 128, 256, 512, 528}) {
    for (int kind = 0; kind < 6; ++kind) {
      for (const KvFormat open : {KvFormat::kF16, KvFormat::kF32}) {
        if (kind == 1 && open == KvFormat::kF32) continue;  // f16 has no numbers below its steps
        Check(open, KvSide::kKeys, head_dim, OpenNumbers(head_dim, kPageTokens, kind, random));
        Check(open, KvSide::kValues, head_dim, OpenNumbers(kPageTokens, head_dim, kind, random));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SealBlockTest, NansPoisonTheSameScales) {
  std::mt19937 random(8);
  nan_ = {5, 777, 2047};
  for (const int head_dim : {40, 64, 128}) {
    Check(KvFormat::kF16, KvSide::kKeys, head_dim, OpenNumbers(head_dim, kPageTokens, 0, random));
    Check(KvFormat::kF16, KvSide::kValues, head_dim, OpenNumbers(kPageTokens, head_dim, 0, random));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SealBlockTest,
                         ::testing::Combine(::testing::ValuesIn(SupportedIsas()),
                                            ::testing::Values(KvFormat::kF16, KvFormat::kFp8,
                                                              KvFormat::kInt8, KvFormat::kInt4,
                                                              KvFormat::kKivi4, KvFormat::kKivi2)),
                         [](const auto& info) {
                           return std::string(IsaName(std::get<0>(info.param))) + "_" +
                                  std::string(TraitsOf(std::get<1>(info.param)).name);
                         });

}  // namespace
}  // namespace nibble
