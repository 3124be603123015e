#pragma once

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "container/grouped_matrix.h"
#include "container/hf_scheme.h"
#include "container/safetensors.h"
#include "tests/support/test_data.h"

namespace nibble::testing {

// A small matrix in a layout of Hugging Face checkpoints, as NumPy packed it
// (tools/make_layout_goldens.py): the layout's tensors under "layer.", and what they stand for.
struct LayoutGolden {
  SafetensorsModel model;
  HfScheme scheme;
  GroupedMatrix matrix;
  std::vector<float> w;  // [rows][cols]

  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(SourcePath(kFolder))) {
      names.push_back(entry.path().stem().string());
    }
    std::ranges::sort(names);
    return names;
  }

  static LayoutGolden Read(const std::string& name) {
    auto opened = SafetensorsModel::Open(SourcePath(std::string(kFolder) + name + ".safetensors"));
    LayoutGolden golden{.model = std::move(opened.value()), .scheme = {}, .matrix = {}, .w = {}};
    const auto number = [&](std::string_view key) {
      const std::string_view text = golden.model.Metadata(key).value_or("0");
      int value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value;
    };
    golden.scheme = {.layout = LayoutOf(golden.model.Metadata("layout").value_or("")),
                     .bits = number("bits"),
                     .group = number("group"),
                     .symmetric = number("symmetric") != 0,
                     .act_order = number("act_order") != 0};
    GroupedMatrix& m = golden.matrix;
    golden.Take("codes", m.codes);
    golden.Take("zeros", m.zeros);
    golden.Take("scales", m.scales);
    golden.Take("w", golden.w);
    golden.Take("group_of", m.group_of);
    const SourceTensor* codes = golden.model.tensors().Find("codes");
    m.rows = static_cast<int>(codes->shape[0]);
    m.cols = static_cast<int>(codes->shape[1]);
    m.bits = golden.scheme.bits;
    m.group = golden.scheme.group == 0 ? m.cols : golden.scheme.group;
    m.symmetric = golden.scheme.symmetric;
    return golden;
  }

 private:
  static constexpr const char* kFolder = "tests/golden/layouts/";

  static HfLayout LayoutOf(std::string_view name) {
    for (const HfLayout layout : {HfLayout::kGptq, HfLayout::kGptqV2, HfLayout::kAwq,
                                  HfLayout::kPackQuantized, HfLayout::kIntQuantized}) {
      if (HfLayoutName(layout) == name) return layout;
    }
    return HfLayout::kFloatQuantized;
  }
  template <class T>
  void Take(std::string_view name, std::vector<T>& out) const {
    const SourceTensor* tensor = model.tensors().Find(name);
    if (tensor == nullptr) return;
    out.resize(tensor->bytes.size() / sizeof(T));
    std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
  }
};

}  // namespace nibble::testing
