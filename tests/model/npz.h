#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace nibble::testing {

// An array of an .npz file; float32 and int64 only, as doubles.
struct NpyArray {
  std::vector<int> shape;
  std::vector<double> values;
};

// Every array of an .npz file (members stored or deflated), by name without ".npy". Fails the test
// and gives nothing when the file is not what it should be.
std::map<std::string, NpyArray> ReadNpz(const std::filesystem::path& path);

}  // namespace nibble::testing
