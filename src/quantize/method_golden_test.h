#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "container/safetensors.h"
#include "tensor/matrix.h"
#include "tests/support/test_data.h"

namespace nibble::testing {

// The tensors of tests/golden/methods/NAME.safetensors (tools/make_method_goldens.py), as floats.
class MethodGolden {
 public:
  explicit MethodGolden(const std::string& name) {
    const auto model =
        SafetensorsModel::Open(SourcePath("tests/golden/methods/" + name + ".safetensors"));
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return;
    }
    for (const SourceTensor& tensor : model->tensors().tensors()) {
      Array& array = arrays_[std::string(tensor.name)];
      array.rows = static_cast<int>(tensor.rows());
      array.cols = static_cast<int>(tensor.cols());
      array.values.resize(tensor.elements());
      std::memcpy(array.values.data(), tensor.bytes.data(), tensor.bytes.size());
    }
  }

  bool Has(const std::string& name) const { return arrays_.contains(name); }
  const std::vector<float>& operator[](const std::string& name) const { return Find(name).values; }
  MatrixView<const float> Matrix(const std::string& name) const {
    const Array& array = Find(name);
    return DenseView(array.values.data(), array.rows, array.cols);
  }
  // What stands before the first tail of this kind: "a.b" for "a.b.codes" and ".codes".
  std::vector<std::string> NamesBefore(const std::string& tail) const {
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays_) {
      if (name.ends_with(tail)) names.push_back(name.substr(0, name.size() - tail.size()));
    }
    return names;
  }

 private:
  struct Array {
    int rows = 0;
    int cols = 0;
    std::vector<float> values;
  };
  const Array& Find(const std::string& name) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) {
      ADD_FAILURE() << "no golden '" << name << "'";
      static const Array kEmpty;
      return kEmpty;
    }
    return found->second;
  }
  std::map<std::string, Array> arrays_;
};

// The largest difference over the largest magnitude of the second.
inline double RelativeDifference(const auto& found, const auto& expected) {
  if (found.size() != expected.size()) return 1e30;
  double difference = 0;
  double largest = 1e-30;
  for (size_t i = 0; i < found.size(); ++i) {
    const double e = static_cast<double>(expected[i]);
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - e));
    largest = std::max(largest, std::abs(e));
  }
  return difference / largest;
}

}  // namespace nibble::testing
