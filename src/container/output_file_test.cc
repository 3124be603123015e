#include "container/output_file.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

Status WriteAll(const fs::path& path, std::string_view text) {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  NIBBLE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

TEST(OutputFile, ReplacesAndLeavesNothingElse) {
  const testing::TempDir dir;
  const fs::path path = dir.path() / "a.txt";
  ASSERT_TRUE(WriteAll(path, "old and long"));
  ASSERT_TRUE(WriteAll(path, "new"));
  EXPECT_EQ(testing::ReadFile(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(OutputFile, FailureKeepsTheOldStateAndNamesThePlace) {
  const testing::TempDir dir;
  const auto missing = WriteAll(dir.path() / "no/such/a", "x");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kIo);
  fs::create_directories(dir.path() / "folder/inside");
  EXPECT_FALSE(WriteAll(dir.path() / "folder", "x"));
  EXPECT_TRUE(fs::is_directory(dir.path() / "folder"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(OutputFile, WithoutCommitNothingIsLeft) {
  const testing::TempDir dir;
  {
    auto file = OutputFile::Create(dir.path() / "a");
    ASSERT_TRUE(file);
    EXPECT_TRUE(file->Write("half"));
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

}  // namespace
}  // namespace nibble
