#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace nibble::testing {

// A file or folder below the source tree's root, for committed goldens.
std::filesystem::path SourcePath(const std::string& relative);

// A file or folder below ../shared/data (or $NIBBLE_SHARED/data); empty when it is not there.
// With NIBBLE_REQUIRE_SHARED set in the environment a missing one is a test failure.
std::filesystem::path SharedPath(const std::string& relative);

// A model file that `nibble pull` has fetched (smollm2-135m, gemma3-270m), by file name; empty when
// it is not there. Looks into $NIBBLE_MODELS, then nibble's own store.
std::filesystem::path PulledModel(const std::string& file_name);

// A fresh empty folder below the system's temporary folder, removed when the value goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string ReadFile(const std::filesystem::path& path);

}  // namespace nibble::testing

// Declares `const std::filesystem::path name`, or skips the test (fails it in CI) when the shared
// data is not there.
#define NIBBLE_SHARED_OR_SKIP(name, relative)                                             \
  const std::filesystem::path name = ::nibble::testing::SharedPath(relative);             \
  if (name.empty()) {                                                                     \
    if (std::getenv("NIBBLE_REQUIRE_SHARED")) FAIL() << "no shared data: " << (relative); \
    GTEST_SKIP() << "skipped: no shared data (" << (relative) << ")";                     \
  }

#define NIBBLE_PULLED_OR_SKIP(name, file)                                               \
  const std::filesystem::path name = ::nibble::testing::PulledModel(file);              \
  if (name.empty()) {                                                                   \
    if (std::getenv("NIBBLE_REQUIRE_SHARED")) FAIL() << "model not pulled: " << (file); \
    GTEST_SKIP() << "skipped: model not pulled (" << (file) << ")";                     \
  }
