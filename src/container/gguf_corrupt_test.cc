// GGUF files that lie: each must give an error that says what is wrong, none may crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "container/gguf.h"
#include "tests/support/test_data.h"
#include "tests/support/touch_containers.h"

namespace nibble {
namespace {

// A GGUF file put together field by field.
class Bytes {
 public:
  Bytes& U8(uint8_t value) { return Raw(value); }
  Bytes& U32(uint32_t value) { return Raw(value); }
  Bytes& U64(uint64_t value) { return Raw(value); }
  Bytes& Str(std::string_view text) {
    U64(text.size());
    bytes_ += text;
    return *this;
  }
  Bytes& Header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    bytes_ += "GGUF";
    return U32(version).U64(tensors).U64(entries);
  }
  Bytes& StringEntry(std::string_view key, std::string_view value) {
    return Str(key).U32(8).Str(value);
  }
  Bytes& Uint32Entry(std::string_view key, uint32_t value) { return Str(key).U32(4).U32(value); }
  // A matrix of 32 columns and 2 rows.
  Bytes& Matrix(std::string_view name, uint32_t type, uint64_t offset) {
    return Str(name).U32(2).U64(32).U64(2).U32(type).U64(offset);
  }
  Bytes& Data(size_t count) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + count, '\1');
    return *this;
  }
  std::string_view view() const { return bytes_; }

 private:
  template <class T>
  Bytes& Raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  std::string bytes_;
};

Result<GgufFile> Parse(std::string_view bytes) {
  return GgufFile::Parse(std::as_bytes(std::span(bytes)));
}

std::string ErrorOf(std::string_view bytes) {
  const auto file = Parse(bytes);
  return file ? "no error" : file.error().message;
}

void ExpectError(const Bytes& bytes, std::string_view part) {
  const std::string error = ErrorOf(bytes.view());
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

Bytes GoodFile() {
  Bytes bytes;
  bytes.Header(2, 5).StringEntry("general.architecture", "llama");
  bytes.Uint32Entry("general.alignment", 32);
  bytes.Str("list").U32(9).U32(8).U64(2).Str("one").Str("two");
  bytes.Str("nested").U32(9).U32(9).U64(2).U32(0).U64(1).U8(7).U32(6).U64(0);
  bytes.Str("flags").U32(9).U32(7).U64(2).U8(0).U8(1);
  bytes.Matrix("a.weight", 8, 0).Matrix("b.weight", 2, 96).Data(96 + 36);
  return bytes;
}

TEST(GgufCorrupt, TheGoodFileIsGood) {
  const Bytes bytes = GoodFile();
  const auto file = Parse(bytes.view());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->tensors().total_bytes(), 68u + 36u);
  EXPECT_EQ(file->Find("nested")->TypeString(), "array of 2 array");
  EXPECT_EQ(file->Find("list")->ToString(1), "[\"one\", …]");
  EXPECT_EQ(file->GetBools("flags").value(), (std::vector<bool>{false, true}));
  EXPECT_EQ(file->GetStrings("flags").error().message,
            "'flags': expected an array of strings, found array of 2 bool");
  EXPECT_EQ(file->GetInt("general.architecture").error().message,
            "'general.architecture': expected an integer, found string");
  EXPECT_EQ(file->GetInt("x").error().message, "'x' is missing");
}

TEST(GgufCorrupt, EveryPrefixIsRefused) {
  const Bytes bytes = GoodFile();
  for (size_t length = 0; length < bytes.view().size(); ++length) {
    // A copy of exactly that size, so that a sanitizer sees every byte read beyond it.
    const std::string prefix(bytes.view().substr(0, length));
    EXPECT_NE(ErrorOf(prefix), "no error") << length;
  }
}

// Any one byte changed in any way: an error, or a file whose every view is safe.
TEST(GgufCorrupt, EveryChangedByteIsSafe) {
  const Bytes good = GoodFile();
  int refused = 0;
  for (size_t at = 0; at < good.view().size() - 132; ++at) {
    for (const int change : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF}) {
      std::string bytes(good.view());
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      const auto file = Parse(bytes);
      if (file) {
        EXPECT_GT(testing::TouchGguf(*file), 0u);
      } else {
        EXPECT_FALSE(file.error().message.empty());
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(GgufCorrupt, SharedFilesCutAndChanged) {
  for (const char* name :
       {"models/hf-tiny/tiny_llama_f16.gguf", "models/hf-tiny/tiny_kquant.gguf"}) {
    NIBBLE_SHARED_OR_SKIP(path, name);
    const std::string good = testing::ReadFile(path);
    size_t end = 0;  // of the last tensor; only padding follows
    const auto file = Parse(good);
    for (const SourceTensor& tensor : file->tensors().tensors()) {
      const auto* last = reinterpret_cast<const char*>(tensor.bytes.data() + tensor.bytes.size());
      end = std::max(end, static_cast<size_t>(last - good.data()));
    }
    for (size_t length = 0; length < end; length += 7) {
      EXPECT_NE(ErrorOf(good.substr(0, length)), "no error") << name << " " << length;
    }
    for (size_t at = 0; at < std::min<size_t>(good.size(), 2000); ++at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 0xFF);
      const auto changed = Parse(bytes);
      EXPECT_GT(changed ? testing::TouchGguf(*changed) : changed.error().message.size(), 0u);
    }
  }
}

TEST(GgufCorrupt, OtherFiles) {
  EXPECT_NE(ErrorOf("").find("an empty file"), std::string::npos);
  EXPECT_NE(ErrorOf("tjgg\1\0\0\0").find("before GGUF"), std::string::npos);
  EXPECT_NE(ErrorOf("version https://git-lfs.github.com/spec/v1\n").find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(ErrorOf("<!DOCTYPE html>").find("HTML"), std::string::npos);
  ExpectError(Bytes().Header(0, 0, 0), "GGUF version 0");
  ExpectError(Bytes().Header(0, 0, 4), "versions 1, 2 and 3 are read");
  ExpectError(Bytes().Header(0, 0, 0x03000000), "a big-endian GGUF file (version 3)");
}

TEST(GgufCorrupt, Counts) {
  ExpectError(Bytes().Header(uint64_t{1} << 63, 0).Data(64), "tensors claimed");
  ExpectError(Bytes().Header(0, uint64_t{1} << 63).Data(64), "metadata entries claimed");
  ExpectError(Bytes().Header(0, 1).U64(uint64_t{1} << 62).Data(64), "a key needs");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(8).U64(UINT64_MAX).Data(9), "a string needs");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(13).Data(9), "value type 13 is unknown");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(9).U32(4).U64(uint64_t{1} << 62).Data(9),
              "an array of 4611686018427387904 uint32 values claimed");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(9).U32(8).U64(1000).Data(9), "1000 string values");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(9).U32(9).U64(1000).Data(9), "1000 array values");
  ExpectError(Bytes().Header(0, 1).Str("").U32(0).U8(1).Data(9), "the key is empty");
  ExpectError(Bytes().Header(0, 1).Str("\xFF").U32(0).U8(1).Data(9), "not valid UTF-8");
  ExpectError(Bytes().Header(0, 1).Str("k").U32(7).U8(2).Data(9), "a bool of value 2");
  ExpectError(Bytes().Header(0, 2).Uint32Entry("k", 1).Uint32Entry("k", 2), "'k' appears twice");
}

TEST(GgufCorrupt, NestedArrays) {
  Bytes bytes;
  bytes.Header(0, 1).Str("k").U32(9);
  for (int i = 0; i < 100'000; ++i) bytes.U32(9).U64(1);
  ExpectError(bytes, "arrays nested more than 8 deep");
}

TEST(GgufCorrupt, Alignment) {
  for (const uint32_t alignment : {0u, 3u, 48u, 0xFFFFFFFFu}) {
    ExpectError(Bytes().Header(0, 1).Uint32Entry("general.alignment", alignment),
                "'general.alignment': expected a power of two");
  }
  ExpectError(Bytes().Header(0, 1).StringEntry("general.alignment", "x"), "expected an integer");
  ExpectError(Bytes().Header(1, 1).Uint32Entry("general.alignment", 1u << 31).Matrix("t", 8, 0),
              "do not lie in the file");
}

TEST(GgufCorrupt, Tensors) {
  const auto one = [](const std::function<void(Bytes&)>& tensor) {
    Bytes bytes;
    bytes.Header(1, 0);
    tensor(bytes);
    return bytes.Data(256);
  };
  ExpectError(one([](Bytes& b) { b.Str("t").U32(5).U64(1).U64(1).U64(1).U64(1).U64(1).U32(0); }),
              "5 dimensions, at most 4");
  ExpectError(one([](Bytes& b) { b.Str("t").U32(2).U64(1u << 31).U64(1u << 31).U32(0).U64(0); }),
              "no tensor has that size");
  ExpectError(one([](Bytes& b) { b.Str("t").U32(2).U64(32).U64(0).U32(0).U64(0); }),
              "dimension 1 is 0");
  ExpectError(one([](Bytes& b) { b.Str("t").U32(2).U64(UINT64_MAX).U64(2).U32(0).U64(0); }),
              "no tensor has that size");
  ExpectError(one([](Bytes& b) { b.Str("t").U32(1).U64(33).U32(8).U64(0); }),
              "rows of 33 elements do not divide into q8_0 blocks of 32");
  ExpectError(one([](Bytes& b) { b.Matrix("t", 16, 0); }),
              "tensor type IQ2_XXS is not supported (supported: F32, F16, BF16, Q4_0");
  ExpectError(one([](Bytes& b) { b.Matrix("t", 4711, 0); }), "tensor type 4711 is not supported");
  ExpectError(one([](Bytes& b) { b.Matrix("t", 8, 1); }), "not a multiple of the alignment 32");
  ExpectError(one([](Bytes& b) { b.Matrix("t", 8, 256); }), "do not lie in the file's 256 bytes");
  ExpectError(one([](Bytes& b) { b.Matrix("t", 8, ~uint64_t{31}); }), "do not lie in the file's");
  ExpectError(Bytes().Header(2, 0).Matrix("t", 8, 0).Matrix("u", 8, 64).Data(256),
              "tensors 't' and 'u' overlap");
  ExpectError(Bytes().Header(2, 0).Matrix("t", 8, 0).Matrix("t", 8, 96).Data(256),
              "two tensors named 't'");
}

TEST(GgufCorrupt, FilesThatAreNoModels) {
  const auto refusal = [](const Bytes& bytes) -> std::string {
    const auto file = Parse(bytes.view());
    if (!file) return file.error().message;
    const Status status = file->CheckIsModel();
    return status ? "no error" : status.error().message;
  };
  const auto typed = [](std::string_view type, std::string_view architecture) {
    Bytes bytes;
    bytes.Header(1, 2).StringEntry("general.type", type);
    bytes.StringEntry("general.architecture", architecture);
    return bytes.Matrix("t", 8, 0).Data(96);
  };
  EXPECT_EQ(refusal(typed("model", "llama")), "no error");
  EXPECT_NE(refusal(typed("adapter", "llama")).find("LoRA adapter"), std::string::npos);
  EXPECT_NE(refusal(typed("mmproj", "clip")).find("image projector"), std::string::npos);
  EXPECT_NE(refusal(typed("model", "clip")).find("image projector"), std::string::npos);
  EXPECT_NE(refusal(typed("imatrix", "x")).find("importance matrix"), std::string::npos);
  EXPECT_NE(refusal(Bytes().Header(1, 0).Matrix("t", 8, 0).Data(96))
                .find("'general.architecture' is missing"),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
