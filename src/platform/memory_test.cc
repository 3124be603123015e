#include "platform/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

TEST(AlignedBuffer, IsAlignedZeroedAndWritable) {
  for (size_t bytes : {size_t{1}, size_t{64}, size_t{4097}, (size_t{4} << 20) + 5}) {
    auto buffer = AlignedBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer) << bytes;
    const size_t alignment = bytes >= (size_t{4} << 20) ? size_t{2} << 20 : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{0});
    std::memset(buffer->data(), 7, bytes);
  }
}

TEST(AlignedBuffer, EmptyHasNoBytes) {
  const auto buffer = AlignedBuffer::Allocate(0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(AlignedBuffer, MoveLeavesTheSourceEmpty) {
  auto a = AlignedBuffer::Allocate(100);
  ASSERT_TRUE(a);
  a->data()[0] = std::byte{5};
  AlignedBuffer b = std::move(*a);
  EXPECT_EQ(b.data()[0], std::byte{5});
  EXPECT_EQ(a->data(), nullptr);  // NOLINT(bugprone-use-after-move): what the test is about
  AlignedBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.as<uint32_t>().size(), 25u);
}

TEST(AlignedBuffer, ImpossibleSizesAreNoRoom) {
  for (size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
    const auto buffer = AlignedBuffer::Allocate(bytes);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().kind, ErrorKind::kNoRoom);
    EXPECT_NE(buffer.error().message.find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(MappedFile, ShowsTheBytesAlsoAfterDrop) {
  const testing::TempDir dir;
  const fs::path path = dir.path() / "a.bin";
  std::string text(100000, 'x');
  text[99999] = 'z';
  std::ofstream(path, std::ios::binary) << text;
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->bytes().size(), text.size());
  file->AdviseSequential();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(std::memcmp(file->bytes().data(), text.data(), text.size()), 0);
    file->Drop(1, 50000);
    file->Drop(0, text.size());
    file->Drop(text.size(), 1);
  }
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().back(), std::byte{'z'});
  EXPECT_EQ(moved.path(), path);
}

TEST(MappedFileDeathTest, OneThatIsCutShortIsNamed) {
  const testing::TempDir dir;
  const auto path = dir.path() / "model";
  std::ofstream(path) << std::string(1 << 16, 'a');
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EXIT(
      {
        std::filesystem::resize_file(path, 100);
        const volatile std::byte* bytes = file->bytes().data();
        std::exit(bytes[1 << 15] == std::byte{0} ? 0 : 1);
      },
      ::testing::ExitedWithCode(2), "model: the file was cut short");
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const testing::TempDir dir;
  std::ofstream(dir.path() / "e", std::ios::binary).close();
  const auto file = MappedFile::Open(dir.path() / "e");
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, WhatIsNoRegularFileIsBadInput) {
  const testing::TempDir dir;
  // A named pipe without a writer must not be waited for.
  ASSERT_EQ(mkfifo((dir.path() / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {dir.path() / "nothing", dir.path() / "pipe", dir.path()}) {
    const auto file = MappedFile::Open(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind, ErrorKind::kBadInput);
    EXPECT_NE(file.error().message.find(path.string()), std::string::npos);
  }
}

TEST(ResidentBytes, GrowsByWhatIsTouched) {
  const ResidentBytes before = ReadResidentBytes();
  EXPECT_GT(before.total, 0u);
  EXPECT_LE(before.private_, before.total);
  constexpr size_t kBytes = size_t{32} << 20;
  auto buffer = AlignedBuffer::Allocate(kBytes);
  ASSERT_TRUE(buffer);
  std::memset(buffer->data(), 1, kBytes);
  const ResidentBytes after = ReadResidentBytes();
  EXPECT_GE(after.private_, before.private_ + kBytes / 4 * 3);
}

}  // namespace
}  // namespace nibble
