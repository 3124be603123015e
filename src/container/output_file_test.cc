#include "container/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

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
  EXPECT_EQ(missing.error().kind, ErrorKind::kBadInput);
  fs::create_directories(dir.path() / "folder/inside");
  EXPECT_FALSE(WriteAll(dir.path() / "folder", "x"));
  EXPECT_TRUE(fs::is_directory(dir.path() / "folder"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(OutputFile, FollowsLinks) {
  const testing::TempDir dir;
  fs::create_directories(dir.path() / "far");
  ASSERT_TRUE(WriteAll(dir.path() / "far/a", "old"));
  fs::create_symlink("far/b", dir.path() / "second");  // to what is not there yet
  fs::create_symlink("second", dir.path() / "first");
  fs::create_symlink("far/a", dir.path() / "one");
  ASSERT_TRUE(WriteAll(dir.path() / "one", "new"));
  ASSERT_TRUE(WriteAll(dir.path() / "first", "b"));
  EXPECT_EQ(testing::ReadFile(dir.path() / "far/a"), "new");
  EXPECT_EQ(testing::ReadFile(dir.path() / "far/b"), "b");
  EXPECT_TRUE(fs::is_symlink(dir.path() / "one"));
  EXPECT_TRUE(fs::is_symlink(dir.path() / "first"));
  fs::create_symlink("loop", dir.path() / "loop");
  EXPECT_FALSE(OutputPlace(dir.path() / "loop"));
}

TEST(OutputFile, RefusesWhatIsNoFile) {
  const testing::TempDir dir;
  const fs::path pipe = dir.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, dir.path() / "link");
  fs::create_directories(dir.path() / "folder");
  for (const char* name : {"pipe", "link", "folder", "folder/"}) {
    const auto refused = WriteAll(dir.path() / name, "x");
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().kind, ErrorKind::kBadInput) << name;
    EXPECT_NE(refused.error().message.find(name), std::string::npos) << refused.error().message;
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_FALSE(OutputPlace("/dev/null"));
  EXPECT_FALSE(OutputPlace(""));
  EXPECT_EQ(OutputPlace(dir.path() / "new")->filename(), "new");
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
