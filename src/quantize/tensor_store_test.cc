#include "quantize/tensor_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

std::vector<std::byte> Bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string TextOf(const TensorStore& store, std::string_view name) {
  const TensorStore::Record* record = store.Find(name);
  if (record == nullptr) return "absent";
  std::string text(record->bytes, ' ');
  EXPECT_TRUE(store.Read(*record, 0, std::as_writable_bytes(std::span(text))));
  return text + "|" + record->note;
}

TEST(TensorStore, KeepsWhatIsWholeAndNothingElse) {
  const testing::TempDir dir;
  const std::filesystem::path out = dir.path() / "out";
  const std::filesystem::path part = dir.path() / "out.nibble-part";
  {
    TensorStore store = TensorStore::Open(out, "key").value();
    EXPECT_TRUE(store.Put("a", Bytes("first tensor"), "note a"));
    ASSERT_TRUE(store.Begin("b", 6));
    EXPECT_TRUE(store.Append(Bytes("sec")));
    EXPECT_TRUE(store.Append(Bytes("ond")));
    EXPECT_TRUE(store.End(""));
    ASSERT_TRUE(store.Begin("c", 100));  // never finished
    EXPECT_TRUE(store.Append(Bytes("half")));
    EXPECT_FALSE(TensorStore::Open(out, "key"));  // another process would write over it
    EXPECT_EQ(store.Keep(), part);
  }
  {
    TensorStore store = TensorStore::Open(out, "key").value();
    EXPECT_EQ(store.found(), 2U);
    EXPECT_EQ(TextOf(store, "a"), "first tensor|note a");
    EXPECT_EQ(TextOf(store, "b"), "second|");
    EXPECT_EQ(TextOf(store, "c"), "absent");
    EXPECT_TRUE(store.Put("c", Bytes("third"), ""));
    store.Keep();
  }
  // Every length of the file, and every byte of it changed: never a wrong tensor.
  const std::string whole = testing::ReadFile(part);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    for (const std::string& text : {damaged, whole.substr(0, at)}) {
      std::ofstream(part, std::ios::binary | std::ios::trunc) << text;
      TensorStore store = TensorStore::Open(out, "key").value();
      for (const auto& [name, expected] : {std::pair{"a", "first tensor|note a"},
                                           std::pair{"b", "second|"}, std::pair{"c", "third|"}}) {
        const std::string found = TextOf(store, name);
        EXPECT_TRUE(found == expected || found == "absent") << at << " " << name << " " << found;
      }
    }
  }
}

TEST(TensorStore, BeginsAnewUnderAnotherKey) {
  const testing::TempDir dir;
  const std::filesystem::path out = dir.path() / "out";
  {
    TensorStore store = TensorStore::Open(out, "key").value();
    EXPECT_TRUE(store.Put("a", Bytes("first"), ""));
    store.Keep();
  }
  {
    const TensorStore store = TensorStore::Open(out, "other").value();
    EXPECT_EQ(store.found(), 0U);
    EXPECT_EQ(store.Find("a"), nullptr);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace nibble
