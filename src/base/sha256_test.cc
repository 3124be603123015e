#include "base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/sha256_block.h"

namespace nibble {
namespace {

// Examples of FIPS 180-4 and NIST's test vectors.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, SplitUpdatesGiveTheSameDigest) {
  const std::string text(300, 'x');
  for (size_t cut = 0; cut <= text.size(); cut += 7) {
    Sha256 hash;
    hash.Update(std::string_view(text).substr(0, cut));
    hash.Update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.HexDigest(), Sha256Hex(text)) << cut;
  }
}

TEST(Sha256, InstructionsDoWhatPortableCodeDoes) {
  if (!HasShaInstructions()) GTEST_SKIP() << "skipped: no such instructions here";
  uint32_t a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint32_t b[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::byte, 64> block{};
  for (uint32_t round = 0; round < 1000; ++round) {
    for (size_t i = 0; i < block.size(); ++i) block[i] = std::byte((a[i % 8] >> i % 24) & 0xffu);
    Sha256BlockPortable(a, block.data());
    Sha256BlockByInstructions(b, block.data());
    ASSERT_TRUE(std::ranges::equal(a, b)) << round;
  }
}

}  // namespace
}  // namespace nibble
