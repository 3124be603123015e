#include "tests/support/test_data.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace nibble::testing {
namespace fs = std::filesystem;

fs::path SourcePath(const std::string& relative) { return fs::path(NIBBLE_SOURCE_DIR) / relative; }

fs::path SharedPath(const std::string& relative) {
  const char* env = std::getenv("NIBBLE_SHARED");
  const fs::path root = env ? fs::path(env) : SourcePath("../shared");
  const fs::path path = root / "data" / relative;
  return fs::exists(path) ? path.lexically_normal() : fs::path();
}

fs::path PulledModel(const std::string& file_name) {
  std::vector<fs::path> roots;
  if (const char* env = std::getenv("NIBBLE_MODELS")) roots.emplace_back(env);
  if (const char* env = std::getenv("XDG_CACHE_HOME")) {
    roots.push_back(fs::path(env) / "nibble/models");
  }
  if (const char* env = std::getenv("HOME")) {
    roots.push_back(fs::path(env) / ".cache/nibble/models");
  }
  for (const fs::path& root : roots) {
    if (fs::exists(root / file_name)) return root / file_name;
  }
  return {};
}

TempDir::TempDir() {
  std::string name = (fs::temp_directory_path() / "nibble-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace nibble::testing
